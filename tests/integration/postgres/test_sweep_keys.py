"""The keys that a sweep hands over: of the table as it is then, whatever it was when they were planned and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.postgres.test_chunks import options, table_of
from tests.servers import Database
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.engine.stage import Stage
from tidelog.journal.files import Files
from tidelog.model.schema import Table
from tidelog.model.selection import Selection
from tidelog.spark import arrow_files, chunks
from tidelog.spark.chunks import Emit, Read

POURED = "keys.arrow"


@pytest.fixture
def connector(database: Database) -> Iterator[PostgresConnector]:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, tenant int NOT NULL)")
    database.execute("INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 10) i")
    made = create(options(database))
    yield made
    made.close()


def sweep(database: Database, table: Table) -> Read:
    return Read(
        chunk="c",
        table=table.to_json(),
        key=("id",),
        low=None,
        high=None,
        condition="",
        asked_by="",
        reader="main",
        connector="postgres",
        pipeline="p",
        options=options(database),
        sweep=True,
    )


def delivered(connector: PostgresConnector, folder: Path, emit: Emit) -> tuple[chunks.Found, pa.Table]:
    found = chunks.deliver_keys(
        str(folder), emit, connector.decoder(), Selection(), Files(str(folder / "batch")), POURED
    )
    assert found.file is not None
    place = Files(str(folder / "batch")) if found.file == POURED else Stage(str(folder), "main").files
    return found, pa.Table.from_batches(arrow_files.draw(place, found.file))


def test_keys_are_handed_over_by_the_file_that_was_staged(
    database: Database, connector: PostgresConnector, tmp_path: Path
) -> None:
    task = sweep(database, table_of(connector))
    note = chunks.read(str(tmp_path), task, texts=False)
    found, keys = delivered(connector, tmp_path, Emit(task, note.to_json(), (), "incremental"))
    assert found.file == Stage(str(tmp_path), "main").rows("c", note.manifest.attempt)
    assert sorted(keys.to_pydict()["id"]) == list(range(1, 11))


def test_a_key_that_changed_between_planning_and_reading_is_read_again(
    database: Database, connector: PostgresConnector, tmp_path: Path
) -> None:
    """What was staged has the old key's columns, and is of the new version of the table all the same."""
    task = sweep(database, table_of(connector))
    database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, tenant)")
    note = chunks.read(str(tmp_path), task, texts=False)
    assert note.version.key == ("id", "tenant")
    now = replace(task, table=table_of(connector).to_json())
    found, keys = delivered(connector, tmp_path, Emit(now, note.to_json(), (), "incremental"))
    assert (found.file, found.table.key, keys.column_names) == (POURED, ("id", "tenant"), ["id", "tenant"])
    assert sorted(keys.to_pydict()["tenant"]) == sorted(i % 3 for i in range(1, 11))


def test_keys_whose_file_is_gone_are_read_again(
    database: Database, connector: PostgresConnector, tmp_path: Path
) -> None:
    task = sweep(database, table_of(connector))
    note = chunks.read(str(tmp_path), task, texts=False)
    Stage(str(tmp_path), "main").keep(set())
    found, keys = delivered(connector, tmp_path, Emit(task, note.to_json(), (), "incremental"))
    assert (found.file, keys.num_rows) == (POURED, 10)
