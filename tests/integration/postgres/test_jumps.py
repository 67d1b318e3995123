"""Edits of the offsets, followed by the next start: back, ahead, anew; once, whatever dies on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.postgres.snapshot_rig import Crash, Rig, Row, nothing
from tests.integration.postgres.world import until
from tests.servers import Database, await_readers
from tidelog.core import metadata
from tidelog.engine import capture
from tidelog.engine.jumps import Jump
from tidelog.engine.signals import send
from tidelog.errors import PositionLost
from tidelog.spark.source import JUMP

RETENTION = {"journal.retention.bytes": "100mb", "snapshot.mode": "no_data"}


@dataclass
class Jumper(Rig):
    """Counts every event that reaches the target, and follows edits."""

    events: list[tuple[str, int]] = field(default_factory=list)
    edits: int = 0

    def jump(self, offset: dict[str, Any] | None) -> None:
        """The pipeline is stopped, its offset edited; whoever touches it next has started it again."""
        self.crash()
        self.edits += 1
        self.source[JUMP] = Jump(self.edits, offset).to_json()

    def _apply_table(self, rows: list[Row]) -> None:
        for row in rows:
            if row["path"] and not row["keep"]:
                self.events += [(e[metadata.OP], e.get("id")) for e in self._load(row).to_pylist()]
        super()._apply_table(rows)


@pytest.fixture
def fresh(database: Database, tmp_path: Path) -> Jumper:
    """Never started."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, body text)")
    database.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    return Jumper(database, tmp_path / "pipeline", dict(RETENTION))


@pytest.fixture
def rig(fresh: Jumper) -> Jumper:
    assert fresh.start
    return fresh


def _confirmed(rig: Rig) -> int:
    sql = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 FROM pg_replication_slots WHERE slot_name LIKE '%_rig'"
    return int(rig.database.execute(sql)[0][0])


def insert(rig: Rig, first: int, last: int) -> None:
    for i in range(first, last + 1):
        rig.database.execute(f"INSERT INTO t VALUES ({i}, 'v{i}', repeat('x', 3000))")


def lsn(rig: Rig) -> dict[str, Any]:
    """The offset as a person sees it."""
    return {k: v for k, v in rig.start.items() if not k.startswith("tidelog_")}


def caught_up(rig: Rig) -> None:
    """The whole log that there is now is delivered."""
    rig.plan()
    rig.catch_up()
    rig.run()


def test_back(rig: Jumper) -> None:
    """What was delivered since then comes again; the target ends as it was."""
    with rig:
        insert(rig, 1, 2)
        caught_up(rig)
        early = lsn(rig)
        insert(rig, 3, 5)
        rig.database.execute("DELETE FROM t WHERE id = 4")
        caught_up(rig)
        assert len(rig.events) == 6
        rig.jump(early)
        rig.run()
        assert rig.events[6:] == [("c", 3), ("c", 4), ("c", 5), ("d", 4)]
        rig.check("t")
        rig.crash()
        insert(rig, 6, 6)
        caught_up(rig)
        assert rig.events[10:] == [("c", 6)]  # the edit is still there, and followed already


def test_back_to_what_the_source_alone_has(rig: Jumper) -> None:
    """Delivered, but not acknowledged: an open window, say, holds the slot; the journal keeps nothing."""
    rig.source["journal.mode"] = "transient"
    with rig:
        insert(rig, 1, 1)
        rig.plan()
        rig.catch_up()
        while len(rig.events) < 1:
            rig.batch()
        first = rig.log[0][1]
        rig.jump({"lsn": first["lsn"]})
        rig.run()
        rig.check("t")


def test_back_past_what_anybody_has(rig: Jumper) -> None:
    del rig.source["journal.retention.bytes"]
    rig.source["schema.refresh.interval.ms"] = "60000"
    with rig:
        early = lsn(rig)
        for i in range(3):
            insert(rig, i * 10 + 1, i * 10 + 3)
            caught_up(rig)
            rig.crash()
        insert(rig, 100, 100)
        caught_up(rig)
        rig.crash()
        await_readers(rig.database)
        rig.database.execute(
            "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) "
            "FROM pg_replication_slots WHERE slot_name LIKE '%_rig'"
        )
        for file in (rig.folder / "journal").glob("**/*.arrow"):
            file.unlink()
        rig.jump(early)
        with pytest.raises(PositionLost, match="past the wanted"):
            rig.run()


def test_back_over_a_moved_key_with_unchanged_values(rig: Jumper) -> None:
    """The target is ahead of the log: the old key is gone from it, and with it the value that the log leaves out."""
    with rig:
        insert(rig, 1, 3)
        caught_up(rig)
        early = lsn(rig)
        rig.database.execute("UPDATE t SET v = 'touched' WHERE id = 1")
        rig.database.execute("UPDATE t SET id = 20 WHERE id = 2")
        rig.database.execute("UPDATE t SET id = 30, v = 'moved' WHERE id = 20")
        caught_up(rig)
        rig.jump(early)
        rig.run()
        rig.check("t")
        assert rig.target["public.t"][(30,)]["body"] == "x" * 3000


def test_back_over_an_altered_table(rig: Jumper) -> None:
    with rig:
        insert(rig, 1, 2)
        caught_up(rig)
        early = lsn(rig)
        insert(rig, 3, 3)
        rig.database.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 7")
        rig.database.execute("UPDATE t SET n = id")
        caught_up(rig)
        rig.jump(early)
        rig.run()
        rig.check_loosely("t")


def test_ahead(rig: Jumper) -> None:
    """What lies between never arrives."""
    with rig:
        insert(rig, 1, 1)
        caught_up(rig)
        rig.crash()
        insert(rig, 2, 4)
        rig.jump({"lsn": _log_end(rig)})
        insert(rig, 5, 5)
        rig.run()
        assert rig.events == [("c", 1), ("c", 5)]


def test_ahead_and_back_again_after_an_idle_time(rig: Jumper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot has passed an empty stretch of the log: that is no gap in what the journal keeps for a step back."""
    monkeypatch.setattr(capture, "_IDLE_S", 0.05)
    with rig:
        insert(rig, 1, 1)
        caught_up(rig)
        early = lsn(rig)
        rig.database.execute("SELECT pg_switch_wal()")
        until(lambda: _confirmed(rig) > early["lsn"], "the idle acknowledgement")
        rig.crash()
        insert(rig, 2, 3)
        rig.jump({"lsn": _log_end(rig)})
        insert(rig, 4, 4)
        rig.run()
        assert rig.events == [("c", 1), ("c", 4)]
        rig.jump(early)
        rig.run()
        assert rig.events[2:] == [("c", 2), ("c", 3), ("c", 4)]


def test_past_a_batch_that_cannot_be_applied(rig: Jumper) -> None:
    """It was planned, and would come again for ever; the edit supersedes it."""
    with rig:
        insert(rig, 1, 1)
        caught_up(rig)
        insert(rig, 2, 2)
        rig.plan()
        rig.catch_up()
        rig.hooks.executed = crash
        with pytest.raises(Crash):
            rig.run()
        insert(rig, 3, 3)
        rig.crash()
        planned = rig.log[-1][1]
        rig.jump({"lsn": (planned["tidelog_position"] | 7) + 1})
        rig.hooks.executed = nothing
        rig.run()
        assert [id for _, id in rig.events] == [1, 3]


def test_anew(fresh: Jumper) -> None:
    """Without an offset, the next start behaves as the first; the target loses what the source does not have."""
    fresh.source["snapshot.mode"] = "initial"
    with fresh:
        insert(fresh, 1, 5)
        fresh.run()
        fresh.check("t")
        fresh.crash()
        fresh.database.execute("DELETE FROM t WHERE id = 2")
        fresh.jump({"lsn": _log_end(fresh)})
        fresh.run()
        assert (2,) in fresh.target["public.t"]
        fresh.jump(None)
        fresh.run()
        fresh.check("t")
        assert len(fresh.reads) == 9


def test_anew_while_somebody_waits_for_a_snapshot(fresh: Jumper) -> None:
    """Everything is read anyway; whoever has asked hears that his own request is over."""
    fresh.source |= {"snapshot.mode": "initial", "incremental.snapshot.chunk.size": "5"}
    with fresh:
        insert(fresh, 1, 30)
        fresh.run()
        send(fresh.folder / "signals", "execute-snapshot", {"data-collections": ["public.t"]}, "asked")
        fresh.run(until=lambda r: len(r.reads) > 32)
        fresh.jump(None)
        fresh.run()
        fresh.check("t")
        assert [n["id"] for n in fresh.told("ABORTED")] == ["asked"]


def test_a_first_start_from_an_offset_of_elsewhere(fresh: Jumper) -> None:
    """Moved here from another connector: its slot, its place, and no second snapshot."""
    fresh.source["snapshot.mode"] = "initial"
    fresh._reader().reading.connector.prepare()
    insert(fresh, 1, 1)
    there = _log_end(fresh)
    insert(fresh, 2, 3)
    with fresh:
        fresh.jump({"lsn": there, "lsn_proc": there, "lsn_commit": there, "txId": 700, "ts_usec": 1})
        fresh.run()
        assert fresh.events == [("c", 2), ("c", 3)]
        assert not fresh.reads


def test_a_first_start_in_the_middle_of_the_first_snapshot_of_elsewhere(fresh: Jumper) -> None:
    """It cannot be continued: it begins anew."""
    fresh.source["snapshot.mode"] = "initial"
    fresh._reader().reading.connector.prepare()
    insert(fresh, 1, 2)
    there = {"lsn": _log_end(fresh), "snapshot": "INITIAL", "last_snapshot_record": False, "snapshot_completed": False}
    with fresh:
        fresh.jump(there)
        fresh.run()
        fresh.check("t")
        assert len(fresh.reads) == 2


def test_back_while_a_snapshot_runs(fresh: Jumper) -> None:
    """What was read and not delivered is read again; what was asked for is not forgotten."""
    fresh.source |= {"snapshot.mode": "initial", "incremental.snapshot.chunk.size": "5"}
    fresh.database.execute("INSERT INTO t SELECT i, 'v', 'b' FROM generate_series(1, 100) i")
    with fresh:
        early = lsn(fresh)
        fresh.run(until=lambda r: len(r.reads) >= 20)
        fresh.database.execute("UPDATE t SET v = 'late' WHERE id IN (3, 40, 99)")
        fresh.database.execute("DELETE FROM t WHERE id IN (7, 77)")
        fresh.run(until=lambda r: len(r.reads) >= 40)
        fresh.jump({"lsn": early["lsn"]})
        fresh.run()
        fresh.check("t")
        assert 98 <= len(fresh.reads) <= 130


def test_taken_back(fresh: Jumper) -> None:
    """An undo brings the whole offset back, snapshots included. Where the server has written other log meanwhile, the
    slot may stand past that offset, and what it keeps no more is never passed over in silence."""
    fresh.source |= {"snapshot.mode": "initial", "incremental.snapshot.chunk.size": "5"}
    fresh.database.execute("INSERT INTO t SELECT i, 'v', 'b' FROM generate_series(1, 100) i")
    with fresh:
        fresh.run(until=lambda r: len(r.reads) >= 20)
        stood = fresh.start
        fresh.jump(None)
        fresh.run(until=lambda r: len(r.reads) >= 40)
        fresh.jump(stood)
        fresh.database.execute("UPDATE t SET v = 'late' WHERE id IN (3, 40, 99)")
        try:
            fresh.run()
        except PositionLost:
            assert _confirmed(fresh) > stood["tidelog_position"]
            return
        fresh.check("t")
        assert len(fresh.reads) < 150


def crash() -> None:
    raise Crash


MOMENTS = ("planned", "executed", "applied", "committed")


@pytest.mark.parametrize(
    ("way", "moment"),
    [
        *(("back", moment) for moment in MOMENTS),
        ("ahead", "planned"),
        ("anew", "applied"),
        *(pytest.param("ahead", moment, marks=pytest.mark.long) for moment in MOMENTS[1:]),
        *(pytest.param("anew", moment, marks=pytest.mark.long) for moment in MOMENTS if moment != "applied"),
    ],
)
def test_whatever_dies_an_edit_is_followed_once(rig: Jumper, way: str, moment: str) -> None:
    """The process dies at this moment of each of the first four batches after the edit."""
    rig.source["snapshot.mode"] = "no_data" if way != "anew" else "initial"
    with rig:
        insert(rig, 1, 2)
        caught_up(rig)
        early = lsn(rig)
        insert(rig, 3, 4)
        caught_up(rig)
        before = len(rig.events)
        rig.crash()
        if way == "ahead":
            insert(rig, 5, 6)
        rig.jump({"back": early, "ahead": {"lsn": _log_end(rig)}, "anew": None}[way])
        insert(rig, 7, 7)
        crashes = rig_dies(rig, moment, 4)
        assert crashes >= 2
        found = rig.events[before:]
        match way:
            case "back":
                assert found == [("c", 3), ("c", 4), ("c", 7)]
            case "ahead":
                assert found == [("c", 7)]
            case _:
                assert sorted(id for op, id in found if op == "r") == [1, 2, 3, 4, 7]
        if way != "ahead":
            rig.check("t")


def rig_dies(rig: Rig, moment: str, times: int) -> int:
    """Run to the end, dying so often at a moment, each time in another batch."""
    died: set[int] = set()

    def hook() -> None:
        if rig.committed not in died and len(died) < times:
            died.add(rig.committed)
            raise Crash

    setattr(rig.hooks, moment, hook)
    return rig.survive()


def _log_end(rig: Rig) -> int:
    with rig.database.connect() as session:
        row = session.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])
