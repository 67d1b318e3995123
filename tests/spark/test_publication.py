"""A table that is taken out of the publication and put back, from PostgreSQL to Delta."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.test_pipeline import rows, wait


def test_the_target_has_what_changed_meanwhile(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path
) -> None:
    """While the pipeline runs, and while it is down: then its next start publishes the table itself."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    pipeline = build(source={"snapshot.mode": "initial"})
    with pipeline.start(spark) as run:
        wait(run, lambda: (tmp_path / "lake/public/t").exists() and len(rows(tmp_path, "t", "id")) == 4)
        database.execute("ALTER PUBLICATION tidelog_shop DROP TABLE t")
        database.execute("DELETE FROM t WHERE id = 1")
        database.execute("UPDATE t SET v = 'B' WHERE id = 2")
        database.execute("ALTER PUBLICATION tidelog_shop ADD TABLE t")
        database.execute("INSERT INTO t VALUES (5, 'e')")
        wait(run, lambda: rows(tmp_path, "t", "id", "v") == [(2, "B"), (3, "c"), (4, "d"), (5, "e")])
    database.execute("ALTER PUBLICATION tidelog_shop DROP TABLE t")
    database.execute("DELETE FROM t WHERE id = 3")
    database.execute("UPDATE t SET v = 'D' WHERE id = 4")
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v") == [(2, "B"), (4, "D"), (5, "e")]
