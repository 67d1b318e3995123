"""Several Delta tables change their shape at the same time, on one core: `test_delta_rust` runs it, as it may hang.

python -m tests.contract.schema_changes FOLDER
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from tidelog.core.evolve import Step
from tidelog.spark.sinks.delta_rust import RustEngine
from tidelog.spark.sinks.target import Target

TABLES, FILES, ROWS, CHANGES = 4, 12, 40_000, 4
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def table(folder: str, number: int) -> Target:
    target = RustEngine({}, 50, 24).target(f"{folder}/t{number}")
    target.create(SCHEMA, {})
    for _ in range(FILES):
        target.append(pa.table({"id": range(ROWS), "v": ["x" * 100] * ROWS}, schema=SCHEMA), None)
    return target


def rewrite(target: Target) -> None:
    for _ in range(CHANGES):
        schema = target.schema()
        assert schema is not None
        target.rewrite([Step(field, field.name) for field in schema])


def extend(target: Target) -> None:
    for number in range(3 * CHANGES):
        target.extend([pa.field(f"c{number}", pa.int32())])
        target.describe({"tidelog.test": str(number)})


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    targets = [table(sys.argv[1], number) for number in range(TABLES)]
    with ThreadPoolExecutor(TABLES) as pool:
        changes = [pool.submit(rewrite if n % 2 else extend, target) for n, target in enumerate(targets)]
        for change in changes:
            change.result()


if __name__ == "__main__":
    main()
