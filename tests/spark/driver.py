"""A driver process for the crash tests: several pipelines in one Spark session, to be killed at any moment.

python -m tests.spark.driver [--once] a.yaml b.yaml
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.spark_session import cluster_session, local_session
from tidelog.engine.definition import load
from tidelog.spark.pipeline import Pipeline


def main() -> None:
    once = "--once" in sys.argv
    files = [Path(a) for a in sys.argv[1:] if not a.startswith("--")]
    spark = cluster_session() if "--cluster" in sys.argv else local_session()
    with ThreadPoolExecutor(len(files)) as pool:
        runs = [pool.submit(Pipeline.of(load(file)).run, spark, once=once) for file in files]
        for run in runs:
            run.result()
    spark.stop()


if __name__ == "__main__":
    main()
