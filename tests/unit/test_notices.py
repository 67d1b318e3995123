"""How snapshots are told: what each notification lists, how fast a table goes, and that nothing is told twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.snapshot import plan, requests
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.state import INCREMENTAL, INITIAL, Chunk, Emission, Entry, Snapshot
from tidelog.engine import notices
from tidelog.engine.home import Home
from tidelog.engine.notices import Notices
from tidelog.engine.watching import walks


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(notices.time, "monotonic", lambda: now[0])
    return now


def teller(home: Home) -> Notices:
    return Notices(SnapshotSettings(), home, "shop")


def told(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.notifications.read_text().splitlines()]


def reading(entry: Entry, rows: int) -> Entry:
    """As it is while it is read."""
    return replace(entry, oid=1, estimate=1000, rows=rows, chunks=(Chunk(0, None, ("9",), 0),), next=1)


def test_every_notification_lists_what_was_asked_for(home: Home) -> None:
    """Also when some of it is done; and the state forgets a request when its end is told."""
    teller_ = teller(home)
    snapshot = requests.ask(Snapshot(), "a", [Wanted("s.t"), Wanted("s.u")], INCREMENTAL)
    for step in (
        lambda s: s,
        requests.pause,
        requests.resume,
        lambda s: plan.end(s, s.entries[0], "SUCCEEDED"),
        lambda s: requests.stop(s, None),
    ):
        snapshot = Snapshot.from_json(step(snapshot).to_json())
        teller_.tell(snapshot)
        snapshot = snapshot.settled()
    assert {one["additional_data"]["data_collections"] for one in told(home)} == {"s.t,s.u"}
    types = ["STARTED", "PAUSED", "RESUMED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "ABORTED"]
    assert [one["type"] for one in told(home)] == types
    assert snapshot.asked == ()


def test_of_an_imported_request_what_is_left_is_listed() -> None:
    assert Snapshot((Entry("a", "s.t", INCREMENTAL),)).tables_of("a") == ("s.t",)


def test_a_pace_begins_with_the_turn_and_not_with_the_queue(home: Home, clock: list[float]) -> None:
    teller_ = teller(home)
    waiting = Entry("a", "s.t", INCREMENTAL)
    teller_.tell(Snapshot((waiting,)))
    clock[0] += 500
    teller_.tell(Snapshot((reading(waiting, 0),)))
    clock[0] += 2
    teller_.tell(Snapshot((reading(waiting, 200),)))
    (walk,) = walks(home).tables
    assert (walk.rows_per_second, walk.seconds_left) == (100, 8)


def test_a_pause_does_not_count(home: Home, clock: list[float]) -> None:
    teller_ = teller(home)
    entry = reading(Entry("a", "s.t", INCREMENTAL), 200)
    teller_.tell(Snapshot((entry,)))
    clock[0] += 2
    resting = replace(entry, rows=400, chunks=())
    teller_.tell(Snapshot((resting,), paused=True))
    clock[0] += 500
    teller_.tell(Snapshot((resting,), paused=True))
    assert walks(home).tables[0].seconds_left is None
    teller_.tell(Snapshot((replace(entry, rows=400),)))
    clock[0] += 2
    teller_.tell(Snapshot((replace(entry, rows=500),)))
    assert walks(home).tables[0].rows_per_second == 50


def test_a_walk_that_begins_anew_is_not_negative(home: Home, clock: list[float]) -> None:
    teller_ = teller(home)
    entry = Entry("a", "s.t", INCREMENTAL)
    for rows in (500, 0, 100):
        teller_.tell(Snapshot((reading(entry, rows),)))
        clock[0] += 1
    assert walks(home).tables[0].rows_per_second == 100


def test_without_an_estimate_nothing_is_guessed(home: Home, clock: list[float]) -> None:
    teller_ = teller(home)
    entry = replace(reading(Entry("a", "s.t", INCREMENTAL), 0), estimate=0)
    teller_.tell(Snapshot((entry,)))
    clock[0] += 1
    teller_.tell(Snapshot((replace(entry, rows=50),)))
    (walk,) = walks(home).tables
    assert (walk.begun, walk.estimate, walk.rows_per_second, walk.seconds_left) == (True, 0, 50, None)


def test_a_restart_tells_nothing_again(home: Home) -> None:
    """Unless the state is another one, or the last process died before it had told everything."""
    snapshot = requests.ask(Snapshot(), "a", [Wanted("s.t")], INCREMENTAL)
    teller(home).tell(snapshot, "one")
    teller(home).tell(snapshot, "one")
    assert len(told(home)) == 1
    teller(home).tell(requests.pause(snapshot.settled()), "two")
    assert len(told(home)) == 2
    home.snapshot.write_text("{")
    teller(home).tell(snapshot, "two")
    assert len(told(home)) == 3


# -- the last row of all ---------------------------------------------------------------------------------------------


def emission(table: str, *, keys: bool = False) -> tuple[Entry, Emission]:
    entry = Entry("initial", table, INITIAL, sweep=True, oid=1, cursor=("9",), maximum=("9",), swept=keys)
    return entry, Emission(entry, Chunk(0, None, ("9",), 0, keys=keys))


def test_the_last_chunk_with_rows_is_marked() -> None:
    """Though a sweep comes behind it, which has none."""
    entry, rows = emission("s.t")
    _, sweep = emission("s.t", keys=True)
    other, _ = emission("s.u")
    assert [e.last for e in plan._marked(Snapshot((entry, other)), [rows])] == [True]
    assert [e.last for e in plan._marked(Snapshot((entry,)), [rows, sweep])] == [True, False]
    assert [e.last for e in plan._marked(Snapshot((entry,)), [sweep])] == [False]
    unread = replace(other, cursor=("5",))
    assert [e.last for e in plan._marked(Snapshot((entry, unread)), [rows])] == [False]
    assert [e.last for e in plan._marked(Snapshot((entry, unread.closed())), [rows])] == [False]
