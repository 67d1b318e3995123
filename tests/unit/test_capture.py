"""A capture that loses its connection goes on at what was acknowledged, with the note of that place."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.patience import Patience
from tidelog.contracts import MARKS, RECORDS, TRANSACTIONS, Block, Connector, Kept, Lag, Limits, Mixed, Portion, Status
from tidelog.engine.capture import Capture, last_status, write_status
from tidelog.errors import DatabaseAway, PositionLost, SlotBusy, StateLost, TidelogError
from tidelog.journal.buffer import Abandoned
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

TABLE = Table(1, "public", "t", (Column("id", "int4"),), ("id",))

Turn = Portion | Mixed | Callable[[], None]


def rows(position: int, xid: int = 1, count: int = 3) -> pa.RecordBatch:
    plain = dict.fromkeys(RECORDS.names, 0) | {"op": ord(Op.CREATE), "origin": None, "payload": b"x"}
    told = [plain | {"position": position, "ordinal": i, "xid": xid, "lsn": position} for i in range(count)]
    return pa.RecordBatch.from_pylist(told, schema=RECORDS)


def committed(position: int, end: int, note: str | None = None) -> Portion:
    commit = {"position": position, "end": end, "xid": 1, "committed": 5, "events": 3, "bytes": 3, "note": note}
    return Portion(end, [Block(TABLE, rows(position))], pa.RecordBatch.from_pylist([commit], schema=TRANSACTIONS))


def begun(position: int) -> Portion:
    """The first part of a large transaction."""
    return Portion(0, [Block(TABLE, rows(position))], pa.RecordBatch.from_pylist([], schema=TRANSACTIONS))


@dataclass
class Script:
    """A tail that says its lines."""

    turns: list[Turn]

    def poll(self, wait_s: float, eager: bool) -> Portion | Mixed | None:  # noqa: ARG002
        if not self.turns:
            time.sleep(0.01)
            return None
        turn = self.turns.pop(0)
        if isinstance(turn, Portion | Mixed):
            return turn
        turn()
        return None

    def merging(self, xid: int) -> None: ...
    def acknowledge(self, position: int) -> None: ...
    def seen(self) -> int:
        return 0

    reached = seen

    def quiet(self) -> bool:
        return False

    def keep_alive(self) -> None: ...
    def ping(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class Stage:
    """A connector whose sessions follow a script each."""

    sessions: list[list[Turn]]
    keeps: bool = False
    bounds: Limits = field(default_factory=Limits)
    begins: list[tuple[int, str | None]] = field(default_factory=list)
    kept: list[Kept | None] = field(default_factory=list)

    def selection(self) -> Selection:
        return Selection()

    def scope(self) -> str:
        return "all" if self.keeps else ""

    def limits(self) -> Limits:
        return self.bounds

    def lag(self) -> Lag:
        return Lag(0, 0)

    def tail(
        self,
        start: int,
        known: Sequence[Table],  # noqa: ARG002
        memory_bytes: int,  # noqa: ARG002
        *,
        note: str | None = None,
        kept: Kept | None = None,
    ) -> Script:
        self.begins.append((start, note))
        self.kept.append(kept)
        return Script(self.sessions.pop(0) if self.sessions else [])


def cut() -> None:
    raise DatabaseAway("the connection is cut")


def captured(stage: Stage, folder: Path, **more: Any) -> Capture:
    files = Files(str(folder))
    journal = SegmentJournal(files, Ledger(str(folder / "ledger.db")))
    return Capture(cast("Connector", stage), journal, files, **more)


def until(what: Callable[[], bool]) -> None:
    patience = Patience()
    while not what():
        assert not patience.is_over()
        time.sleep(0.01)


@pytest.mark.parametrize("note", [None, "n100"], ids=["without notes", "with notes"])
def test_a_cut_in_a_large_transaction_does_not_lead_back_to_the_first_start(tmp_path: Path, note: str | None) -> None:
    stage = Stage([[committed(99, 100, note), begun(299), lambda: capture.acknowledge(100), cut]])
    capture = captured(stage, tmp_path)
    capture.start(50, "n50")
    until(lambda: len(stage.begins) == 2)
    capture.stop()
    assert stage.begins[1] == (100, note or "n50")


def test_a_cut_does_not_take_what_is_not_delivered_yet(tmp_path: Path) -> None:
    turns: list[Turn] = [committed(99, 100, "n100"), committed(199, 200, "n200")]
    stage = Stage([[*turns, lambda: capture.acknowledge(100), cut]])
    capture = captured(stage, tmp_path)
    capture.start(50, "n50")
    until(lambda: len(stage.begins) == 2)
    capture.stop()
    assert stage.begins[1] == (200, "n200")
    assert len(capture.journal.plan(100, 200)) == 1


def test_the_note_of_what_was_released_is_not_lost(tmp_path: Path) -> None:
    """The journal's files may be gone when the connection comes back."""

    def lose() -> None:
        for file in (tmp_path / "segments").iterdir():
            file.unlink()
        cut()

    turns: list[Turn] = [committed(99, 100, "n100"), committed(199, 200, "n200"), lambda: capture.acknowledge(100)]
    stage = Stage([[*turns, lose]])
    capture = captured(stage, tmp_path)
    capture.start(50, "n50")
    until(lambda: len(stage.begins) == 2)
    capture.stop()
    assert stage.begins[1] == (100, "n100")


def test_the_status_says_since_when_the_database_is_away(tmp_path: Path) -> None:
    class Away(Stage):
        def tail(self, *arguments: Any, **named: Any) -> Script:
            if len([status for status in seen if status.state == "reconnecting"]) < 2:
                cut()
            return super().tail(*arguments, **named)

    seen: list[Status] = []
    capture = captured(Away([]), tmp_path, publish=seen.append)
    capture.start(50)
    until(lambda: bool(seen) and seen[-1].state == "running")
    capture.stop()
    away = [status.unreachable_since_us for status in seen if status.state == "reconnecting"]
    assert len(away) == 2
    assert away[0] == away[1] > 0, "since the first failure, however often it is tried"
    assert all(not status.unreachable_since_us for status in seen if status.state == "running")


@pytest.mark.parametrize("then", [SlotBusy, PositionLost])
def test_a_database_that_refuses_has_answered(tmp_path: Path, then: type[TidelogError]) -> None:
    """After a failure to connect: the slot is read by another, or is gone."""

    class Refusing(Stage):
        def tail(self, *arguments: Any, **named: Any) -> Script:
            if not seen or seen[-1].state != "reconnecting":
                raise DatabaseAway("Connection refused.")
            if then is PositionLost or not seen[-1].waits_for.endswith("slot"):
                raise then("No slot.")
            return super().tail(*arguments, **named)

    seen: list[Status] = []
    capture = captured(Refusing([]), tmp_path, publish=seen.append)
    capture.start(50)
    until(lambda: bool(seen) and seen[-1].state in ("running", "failed"))
    capture.stop()
    states = [(s.state, s.waits_for, s.unreachable_since_us > 0) for s in seen if s.state not in ("running", "stopped")]
    after = ("failed", "", False) if then is PositionLost else ("reconnecting", "the replication slot", False)
    assert list(dict.fromkeys(states)) == [("reconnecting", "the database", True), after]
    assert (seen[-1].waits_for, seen[-1].unreachable_since_us) == ("", 0)


def test_a_capture_that_may_not_write_any_more_writes_nothing(tmp_path: Path) -> None:
    def refuse() -> None:
        raise StateLost("The state folder was deleted.")

    seen: list[Status] = []
    capture = captured(Stage([[committed(99, 100, None)]]), tmp_path, publish=seen.append, check=refuse)
    capture.start(50)
    with pytest.raises(StateLost):
        until(lambda: bool(capture.raise_failure()))
    assert capture.journal.end() == 50
    assert "failed" not in {status.state for status in seen}


def test_two_may_publish_at_once(tmp_path: Path) -> None:
    publish = write_status(tmp_path / "status.json")

    def often(state: str) -> None:
        for position in range(300):
            publish(Status(state, position=position))

    with ThreadPoolExecutor(2) as both:
        told = [both.submit(often, state) for state in ("running", "stopped")]
        while not all(one.done() for one in told):
            if (tmp_path / "status.json").exists():
                json.loads((tmp_path / "status.json").read_text())
        for one in told:
            one.result()
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]


def test_a_status_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture writes one every second, and a slow disk would hold up the log."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_status(tmp_path / "status.json")(Status("running"))
    assert last_status(tmp_path / "status.json") == Status("running")
    assert not synced


def open_only(position: int, count: int = 3) -> Mixed:
    return Mixed([Block(TABLE, rows(position, 7, count))], pa.RecordBatch.from_pylist([], schema=MARKS), position)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_stop_in_order_keeps_what_is_open(tmp_path: Path, keeps: bool) -> None:
    stage = Stage([[open_only(60)]], keeps=keeps)
    capture = captured(stage, tmp_path)
    capture.start(50)
    until(lambda: capture._buffer is not None and bool(capture._buffer.open()))
    capture.stop()
    again = captured(stage, tmp_path)
    again.start(50)
    until(lambda: len(stage.kept) == 2)
    again.stop()
    assert stage.kept[1] == (Kept(60, {7: 60}) if keeps else None)


def test_a_transaction_that_is_given_up_is_told_of(tmp_path: Path) -> None:
    told: list[Abandoned] = []
    stage = Stage([[open_only(60, 5)]], bounds=Limits(events=4))
    capture = captured(stage, tmp_path, abandoned=told.append)
    capture.start(50)
    until(lambda: bool(told))
    warning = capture.status().warning
    capture.stop()
    assert (told[0].xid, told[0].events) == (7, 5)
    assert "was given up, because it has 5 events" in warning
