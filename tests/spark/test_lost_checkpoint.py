"""A checkpoint that is deleted, moved, replaced or incomplete: one sentence, and a remedy that works."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers import Database
from tests.spark.conftest import Build
from tidelog.engine.home import Home
from tidelog.errors import CorruptState, StateLost
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.progress import Progress


@pytest.fixture
def shop(database: Database, build: Build) -> Pipeline:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    return build(source={"snapshot.mode": "initial"})


def rows(folder: Path) -> list[int]:
    found: list[int] = DeltaTable(str(folder / "lake/public/t")).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def delete_as_told(hint: str) -> None:
    """The first half of the printed remedy; the other one is `fresh`."""
    (path,) = re.findall(r"delete (/\S+) and start with `tidelog run --fresh`", hint)
    shutil.rmtree(path, ignore_errors=True)


def require_equal(shop: Pipeline, spark: SparkSession, database: Database, folder: Path) -> None:
    """The target has the rows of the source, also of changes that come now."""
    source = [number for (number,) in database.execute("SELECT id FROM t ORDER BY id")]
    assert rows(folder) == source
    following = source[-1] + 1
    database.execute(f"INSERT INTO t VALUES ({following})")
    shop.run(spark, once=True)
    assert rows(folder) == [*source, following]


def replace_by_copy(checkpoint: Path) -> None:
    checkpoint.rename(checkpoint.with_name("original"))
    shutil.copytree(checkpoint.with_name("original"), checkpoint)


def replace_offsets(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "offsets")
    (checkpoint / "offsets").mkdir()


LONG = pytest.mark.long
LOSSES: dict[str, Callable[[Path], object]] = {
    "deleted": shutil.rmtree,
    "moved": lambda checkpoint: checkpoint.rename(checkpoint.with_name("elsewhere")),
    "replaced": replace_by_copy,
    "metadata": lambda checkpoint: (checkpoint / "metadata").unlink(),
    "offsets": replace_offsets,
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "loss", [pytest.param(loss, marks=[] if loss in ("deleted", "replaced") else LONG) for loss in LOSSES]
)
def test_a_running_pipeline_notices_that_its_checkpoint_is_lost(
    spark: SparkSession, database: Database, shop: Pipeline, tmp_path: Path, loss: str
) -> None:
    checkpoint = Home.at("shop").checkpoint
    lost = False

    def lose(progress: Progress) -> None:
        nonlocal lost
        if progress.events_total and not lost and (checkpoint / "commits/0").exists():
            lost = True
            LOSSES[loss](checkpoint)
            database.execute("INSERT INTO t VALUES (2)")

    with pytest.raises(StateLost, match=r"The checkpoint \S+ was deleted, moved or replaced while 'shop' was") as told:
        shop.run(spark, watch=lose)
    assert lost
    database.execute("DELETE FROM t WHERE id = 1")
    if loss == "moved":
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.with_name("elsewhere").rename(checkpoint)
        shop.run(spark, once=True)
    else:
        delete_as_told(told.value.hint)
        shop.run(spark, once=True, fresh=True)
    require_equal(shop, spark, database, tmp_path)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "deleted",
    ["metadata", *(pytest.param(d, marks=LONG) for d in ("offsets", "the last offset", "the offset before it"))],
)
def test_a_start_tells_that_its_checkpoint_is_incomplete(
    spark: SparkSession, database: Database, shop: Pipeline, tmp_path: Path, deleted: str
) -> None:
    checkpoint = Home.at("shop").checkpoint
    shop.run(spark, once=True)
    database.execute("INSERT INTO t VALUES (2)")
    shop.run(spark, once=True)
    last = max(int(path.name) for path in checkpoint.glob("commits/[0-9]*"))
    missing = {"metadata": "metadata", "the offset before it": f"offsets/{last - 1}"}.get(deleted, f"offsets/{last}")
    delete(checkpoint / ("offsets" if deleted == "offsets" else missing))
    for fresh in (False, True):
        with pytest.raises(CorruptState, match=rf"The checkpoint \S+ is incomplete: {missing} is missing\.") as told:
            shop.run(spark, once=True, fresh=fresh)
    database.execute("DELETE FROM t WHERE id = 1")
    delete_as_told(told.value.hint)
    shop.run(spark, once=True, fresh=True)
    require_equal(shop, spark, database, tmp_path)


@pytest.mark.timeout(1200)
def test_the_query_of_a_checkpoint_without_batches_is_another_one(
    spark: SparkSession, database: Database, shop: Pipeline, tmp_path: Path
) -> None:
    """The sink knows the batches that were deleted by the id of their query."""
    checkpoint = Home.at("shop").checkpoint
    shop.run(spark, once=True)
    delete(checkpoint / "offsets")
    delete(checkpoint / "commits")
    database.execute("INSERT INTO t VALUES (2)")
    shop.run(spark, once=True, fresh=True)
    require_equal(shop, spark, database, tmp_path)


@pytest.mark.timeout(1200)
def test_commits_that_were_deleted_are_written_again(
    spark: SparkSession, database: Database, shop: Pipeline, tmp_path: Path
) -> None:
    shop.run(spark, once=True)
    delete(Home.at("shop").checkpoint / "commits")
    shop.run(spark, once=True)
    require_equal(shop, spark, database, tmp_path)


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
