"""A target whose disk is full, or cannot be written: a sentence says so, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.patience import wait_until
from tests.servers import Database
from tests.spark.conftest import Build
from tests.spark.test_pipeline import prepare, rows
from tidelog import ConfigError
from tidelog.spark import delivery
from tidelog.spark.progress import Progress


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes, for the lake alone."""
    place = tmp_path / "lake"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a disk of its own")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill_up(disk: Path) -> Path:
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(b"\0" * ((free.f_bavail - 2) * free.f_bsize))
    return ballast


@pytest.mark.parametrize("kind", ["delta", "history"])
def test_a_full_disk_is_named_and_waited_for(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, small_disk: Path, kind: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pipeline = build({"type": kind, "path": str(small_disk), **({"format": "delta"} if kind == "history" else {})})
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    pipeline.run(spark, once=True)
    ballast = fill_up(small_disk)
    database.execute("INSERT INTO t SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(2, 2000) i")
    said: set[str] = set()

    def watch(progress: Progress) -> None:
        said.update(progress.warnings)
        if progress.warnings:
            ballast.unlink(missing_ok=True)

    pipeline.run(spark, once=True, watch=watch)
    assert any("the disk is full. Free some space" in text and "\n" not in text for text in said), said
    assert [row[0] for row in sorted(rows(tmp_path, "t", "id"))] == list(range(1, 2001))


def test_a_disk_that_cannot_be_written_stops_the_pipeline_with_a_sentence(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, small_disk: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pipeline = build({"type": "delta", "path": str(small_disk)})
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    pipeline.run(spark, once=True)
    database.execute("INSERT INTO t VALUES (2, 'b')")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ConfigError, match=r"cannot be written: Read-only file system\. Make it writable"):
        pipeline.run(spark, once=True)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v") == [(1, "a"), (2, "b")]


class SilentFile:
    """A pipe in the place of a file of the table: whoever opens it waits for a writer."""

    def __init__(self, folder: Path) -> None:
        (self._file,) = (folder / "lake" / "public" / "t").glob("*.parquet")
        self._kept, self._pipe = folder / "kept", folder / "pipe"
        self._file.rename(self._kept)
        os.mkfifo(self._pipe)
        os.link(self._pipe, self._file)

    def answer(self) -> None:
        """Bring the file back, and let go whoever waits."""
        if self._kept.exists():
            self._kept.rename(self._file)
            os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))


def test_a_storage_that_does_not_answer_is_named(
    spark: SparkSession, database: Database, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_SLOW_WRITE_S", 0.5)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    pipeline.run(spark, once=True)
    silent = SilentFile(tmp_path)
    database.execute("UPDATE t SET v = 'b'")
    said: set[str] = set()

    def watch(progress: Progress) -> None:
        said.update(text for text in progress.warnings if "has been writing public.t" in text)
        if said:
            silent.answer()

    pipeline.run(spark, once=True, watch=watch)
    assert any("end the command: the next run writes the batch again" in text for text in said)
    assert rows(tmp_path, "t", "id", "v") == [(1, "b")]


def test_the_end_of_a_run_says_what_it_waits_for(
    spark: SparkSession,
    database: Database,
    build: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(delivery, "_WAIT_ANNOUNCED_S", 0.5)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    pipeline = build()
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    pipeline.run(spark, once=True)
    silent = SilentFile(tmp_path)
    database.execute("UPDATE t SET v = 'b'")
    run = pipeline.start(spark)
    wait_until(lambda: run.progress().writing == "public.t", "the sink to write")
    ending = threading.Thread(target=run.stop)
    ending.start()
    wait_until(lambda: "still writing public.t, and the end of the run waits for it" in caplog.text, "the announcement")
    silent.answer()
    ending.join()
    pipeline.run(spark, once=True)
    assert rows(tmp_path, "t", "id", "v") == [(1, "b")]
