"""Snapshots beside a log that streams: here every change of every transaction is told while it is open.

A window is closed by how far the log is known, and open transactions must neither hold it back nor slip through it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import HOOKS, Crash
from tests.integration.postgres.snapshot_writers import WINDOWS, Writer, finished, items, write_at
from tests.integration.postgres.test_log_end import IN_TIME_S, end_within_a_record
from tests.integration.postgres.world import World, until
from tests.patience import Patience
from tests.servers import Database
from tidelog.contracts import Mixed
from tidelog.model.record import Mark

AT_ONCE = "debug_logical_replication_streaming = 'immediate'"


@pytest.fixture(params=["database", "database16"], ids=["18", "16"])
def at_once(request: pytest.FixtureRequest) -> Iterator[Database]:
    database: Database = request.getfixturevalue(request.param)
    database.execute(f"ALTER DATABASE {database.dbname} SET {AT_ONCE}")
    yield database
    sql = "SELECT sum(stream_count) FROM pg_stat_replication_slots WHERE slot_name LIKE %s"
    until(lambda: database.server.execute(sql, [f"{database.dbname}%"])[0][0], "streaming")


@pytest.mark.parametrize("windows", WINDOWS)
def test_every_change_everywhere(at_once: Database, tmp_path: Path, windows: str) -> None:
    with items(at_once, tmp_path, windows, 20, streaming="on") as rig:
        writer = write_at(rig, *HOOKS, seed=2, most=40)
        rig.run(until=finished)
        assert writer.calls > 5
        writer.close()
        rig.run()
        rig.check("items")


def test_a_crash_at_every_step(at_once: Database, tmp_path: Path) -> None:
    with items(at_once, tmp_path, size=30, streaming="on") as rig:
        writer, steps = Writer(at_once, most=20), count(1)

        def step() -> None:
            writer()
            if next(steps) % 19 == 0:
                raise Crash

        for hook in HOOKS:
            setattr(rig.hooks, hook, step)
        rig.hooks.committed = writer
        assert rig.survive() >= 2
        writer.close()
        rig.run()
        rig.check("items")


def test_windows_close_while_a_stream_is_open(at_once: Database, tmp_path: Path) -> None:
    """The walk goes on and ends; what the open transaction did is told when it commits."""
    with items(at_once, tmp_path, size=50, streaming="on") as rig, at_once.connect(autocommit=False) as long:
        assert rig.start  # a slot would wait for the transaction
        long.execute("UPDATE items SET n = -1 WHERE id % 70 = 0")
        began = time.monotonic()
        while not finished(rig):
            assert time.monotonic() - began < 6 * IN_TIME_S
            rig.batch()
        long.execute("UPDATE items SET id = id + 5 WHERE id % 90 = 0 AND id % 70 <> 0")
        long.execute("SAVEPOINT a")
        long.execute("DELETE FROM items")
        long.execute("ROLLBACK TO a")
        long.execute("DELETE FROM items WHERE id = 110")
        long.commit()
        rig.run()
        rig.check("items")


def test_the_end_is_reached_beside_an_open_stream_and_is_no_place_to_read_on_from(any_world: World) -> None:
    """The commit of the open transaction may begin before what is reached, and never before what is seen."""
    database = any_world.database
    if database.server.version < 14:
        pytest.skip("PostgreSQL 13 sends no open transactions")
    database.execute(f"ALTER DATABASE {database.dbname} SET logical_decoding_work_mem = '64kB'")
    database.execute("CREATE TABLE big (id int4 PRIMARY KEY, v text)")
    any_world.source["streaming"] = "on"
    with (
        closing(any_world.connector()) as connector,
        closing(connector.tail(connector.prepare(), [], 16 << 20)) as tail,
        database.connect(autocommit=False) as open_one,
    ):
        read: list[Mixed] = []
        for _ in range(10):
            end_within_a_record(open_one, database)
            end, patience = connector.log_end(), Patience(IN_TIME_S)
            while tail.reached() < end or not tail.quiet():
                assert not patience.is_over()
                read += [found for found in [tail.poll(0.05, True)] if isinstance(found, Mixed)]
                tail.ping()
            if tail.seen() < end:  # else the server has written something by itself
                break
        seen = tail.seen()
        assert seen < end <= tail.reached()
        assert sum(block.records.num_rows for reading in read for block in reading.blocks) > 0
        assert not any(ends(reading) for reading in read)
        open_one.commit()
        until(lambda: read.append(found) or ends(found) if (found := tail.poll(0.05, True)) else None, "the commit")
        (position,) = ends(read[-1])
        assert position >= seen


def ends(reading: object) -> list[int]:
    """The places of the commits."""
    assert isinstance(reading, Mixed)
    marks = reading.marks.to_pylist()
    return [mark["position"] for mark in marks if chr(mark["kind"]) == Mark.COMMIT]
