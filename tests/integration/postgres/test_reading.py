"""What a query asks of a source, on a real log: the same two offsets always give the same records."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.integration.postgres.world import World, catch_up, decode, follow, told, until
from tests.servers import drop_slots
from tidelog.contracts import Status
from tidelog.core.snapshot.state import Snapshot
from tidelog.engine import apart as apart_module
from tidelog.engine import following, serving
from tidelog.engine import readers as readers_module
from tidelog.engine.apart import run_apart
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.errors import ConfigError, CorruptState, PositionLost, Refused
from tidelog.model.offset import Offset


def write(world: World, first: int, count: int, each: int = 3) -> None:
    """So many transactions of three rows."""
    with world.database.connect() as session:
        for i in range(first, first + count):
            session.execute("INSERT INTO t SELECT %s * 100 + g, 'x' FROM generate_series(1, %s) g", [i, each])


def ids(first: int, count: int, each: int = 3) -> list[int]:
    return [i * 100 + g for i in range(first, first + count) for g in range(1, each + 1)]


@pytest.fixture
def table(world: World) -> World:
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return world


def test_batches_end_between_transactions(table: World) -> None:
    reading = table.reading()
    offset = reading.initial()
    write(table, 1, 10)
    reading.drain()
    sizes, found = [], []
    while (end := reading.latest(offset, 7, None)) != offset:
        events = decode(reading.plan(offset, end))
        sizes.append(len(events))
        found += [e.row["id"] for e in events]
        offset = end
    assert found == ids(1, 10)
    assert all(size in (3, 6) for size in sizes)


def test_a_drain_ends_where_the_log_ended(table: World) -> None:
    reading = table.reading()
    offset = reading.initial()
    write(table, 1, 4)
    reading.drain()
    write(table, 5, 2)
    found = []
    while (end := reading.latest(offset, None, None)) != offset:
        found += [e.row["id"] for e in decode(reading.plan(offset, end))]
        offset = end
    assert found == ids(1, 4)
    _, rest = catch_up(reading, offset)
    assert [e.row["id"] for e in rest] == ids(5, 2)


def test_chunks_that_were_never_finished_go_at_the_next_start(table: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_LOCK_S", 0.2)
    first = table.reading()
    offset = first.initial()
    first.latest(offset, None, None)
    drafts = [table.folder / "journal" / "chunks" / reader / "c1.a1.arrow.tmp" for reader in ("main", "other")]
    for draft in drafts:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(b"half a chunk")
    second = table.reading()
    with pytest.raises(ConfigError, match="alive already"):
        second.initial()
    assert [d.exists() for d in drafts] == [True, True], "the first one still lives"
    first.close()
    second.latest(offset, None, None)
    assert [d.exists() for d in drafts] == [False, True]


def test_a_batch_is_the_same_after_a_crash_and_after_the_journal_is_lost(table: World) -> None:
    table.journal = {"memory.bytes": "5mb"}
    reading = table.reading()
    start = reading.initial()
    write(table, 1, 30, each=90)
    until(lambda: reading.latest(start, None, None) != start, "the first transaction")
    reading.drain()
    until(lambda: reading._drained(Snapshot()), "the end of the log")
    end = reading.latest(start, 1000, None)
    first = decode(reading.plan(start, end))
    assert len(first) == 990
    reading.close()
    for lost in ("nothing", "ledger", "segments", "all"):
        if lost in ("ledger", "all"):
            for path in table.folder.glob("ledger.sqlite*"):
                path.unlink()
        if lost in ("segments", "all"):
            shutil.rmtree(table.folder / "journal" / "segments")
        again = table.reading()
        assert decode(again.plan(start, end)) == first
        again.close()
    last = table.reading()
    assert decode(last.plan(start, end)) == first
    _, rest = catch_up(last, end)
    assert [e.row["id"] for e in first + rest] == ids(1, 30, each=90)


def test_a_replayed_batch_keeps_its_filters(table: World) -> None:
    table.database.execute("CREATE TABLE u (id int PRIMARY KEY)")
    table.source["table.include.list"] = r"public\.(t|u)"
    reading = table.reading()
    start = reading.initial()
    table.database.execute("INSERT INTO t VALUES (1, 'secret'); INSERT INTO u VALUES (1)")
    end, events = follow(reading, start, 2)
    reading.close()
    table.source |= {"table.include.list": r"public\.t", "column.mask.with.3.chars": r"public\.t\.v"}
    again = table.reading()
    assert told(decode(again.plan(start, end))) == told(events)
    table.database.execute("INSERT INTO t VALUES (2, 'secret'); INSERT INTO u VALUES (2)")
    later, events = follow(again, end, 1)
    assert told(events) == [("t", "c", {"id": 2, "v": "***"})]
    assert later.selection != end.selection
    again.close()
    (table.folder / "journal" / "selections" / f"{end.selection}.json").unlink()
    with pytest.raises(CorruptState, match="which the journal does not have any more"):
        table.reading().plan(start, end)


def test_an_offset_beyond_the_log_is_no_offset_of_this_log(table: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.engine.reading._REPLAY_S", 0.3)
    reading = table.reading()
    start = reading.initial()
    with pytest.raises(PositionLost, match="can't be read again: the log has come to"):
        reading.plan(start, Offset(start.position + (1 << 40), start.selection))


# -- capture apart -------------------------------------------------------------------------------------------------


@contextmanager
def capturing(world: World, watch: Callable[[Status], None], expiry_s: float) -> Iterator[None]:
    """`tidelog capture`, in a thread."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            run_apart(world.definition, stop, watch, expiry_s=expiry_s)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: (world.folder / "journal" / "capture.json").exists() or failures, "the capture's start")
        yield
    finally:
        stop.set()
        thread.join()
    assert failures == []


@pytest.fixture
def apart(table: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("TIDELOG_HOME", str(table.folder.parent))
    monkeypatch.setattr(apart_module, "_CHECK_S", 0.05)
    monkeypatch.setattr(readers_module, "_BEAT_S", 0.1)
    table.stream = {"capture": "apart"}
    return table


def test_two_queries_share_a_capture_and_the_least_is_acknowledged(apart: World) -> None:
    with pytest.raises(ConfigError, match="No capture has written to this journal yet"):
        apart.reading().initial()
    with capturing(apart, lambda _: None, expiry_s=600):
        fast, slow = apart.reading("fast"), apart.reading("slow")
        start = fast.initial()
        assert slow.initial() == start
        slow_at = slow.latest(start, None, None)
        [(before,)] = apart.database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        write(apart, 1, 5)
        fast_at, events = follow(fast, start, 15)
        assert [e.row["id"] for e in events] == ids(1, 5)
        assert fast.latest(fast_at, None, None) == fast_at
        write(apart, 6, 1)
        fast_at, _ = follow(fast, fast_at, 3)
        assert apart.confirmed() <= before
        slow_at, events = follow(slow, slow_at, 18)
        assert [e.row["id"] for e in events] == ids(1, 6)
        for reading, offset in ((slow, slow_at), (fast, fast_at)):
            assert reading.latest(offset, None, None) == offset
        until(lambda: apart.confirmed() >= fast_at.position & ~7, "the acknowledgement of both")
        assert slow.metrics()["state"] == "running"


def test_two_queries_of_one_name_do_not_share_a_capture(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be taken to be as far as the other, and would delete the other's chunks."""
    monkeypatch.setattr(serving, "_LOCK_S", 0.2)
    with capturing(apart, lambda _: None, expiry_s=600):
        first = apart.reading()
        start = first.initial()
        first.latest(start, None, None)
        with pytest.raises(ConfigError, match=r"under the name 'main'.*the option reader"):
            apart.reading().latest(start, None, None)
        elsewhere = Home(apart.folder.parent / "elsewhere")
        elsewhere.path.mkdir()
        apart.journal = {"path": str(apart.folder / "journal")}
        apart.runs.append(Reading(apart.definition, elsewhere))
        with pytest.raises(ConfigError, match="under the name 'main'"):
            apart.runs[-1].latest(start, None, None)
        write(apart, 1, 1)
        assert len(follow(apart.reading("other"), start, 3)[1]) == 3


def test_a_query_that_is_started_again_waits_for_the_end_of_the_last_one(apart: World) -> None:
    with capturing(apart, lambda _: None, expiry_s=600):
        first, again = apart.reading(), apart.reading()
        start = first.initial()
        first.latest(start, None, None)
        threading.Timer(0.5, first.close).start()
        again.latest(start, None, None)


def test_who_waits_for_the_end_hears_that_the_capture_is_gone(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with capturing(apart, lambda _: None, expiry_s=600):
        query = apart.reading()
        offset = query.initial()
        write(apart, 1, 2)
        offset, _ = follow(query, offset, 6)
    write(apart, 3, 1)
    monkeypatch.setattr(following, "_SILENCE_S", 1.0)
    assert query.latest(offset, None, None) == offset  # who goes on for ever waits until it is back
    until(lambda: "The capture has said nothing for" in query.metrics()["warning"], "the warning")
    query.drain()
    with pytest.raises(Refused, match=r"has said nothing for \d+ s. It was stopped then. Start it again"):
        query.latest(offset, None, None)
    monkeypatch.setattr(following, "_SILENCE_S", 120.0)
    with capturing(apart, lambda _: None, expiry_s=600):
        assert len(follow(query, offset, 3)[1]) == 3


def published(world: World) -> set[str]:
    sql = "SELECT tablename FROM pg_publication_tables WHERE pubname = %s"
    return {name for (name,) in world.database.execute(sql, [world.options["publication.name"]])}


def test_who_only_looks_changes_no_publication(table: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does who may not read, because another one does: the log would not tell of the tables that they leave out."""
    monkeypatch.setattr(serving, "_LOCK_S", 0.2)
    table.database.execute("CREATE TABLE u (id int PRIMARY KEY)")
    first = table.reading()
    start = first.initial()
    assert published(table) == {"t", "u"}
    table.source["table.include.list"] = r"public\.t"
    with pytest.raises(ConfigError, match="alive already"):
        table.reading().initial()
    first.close()
    look = Reading(table.definition, Home(table.folder), silent=True)
    assert look.initial().position == start.position
    look.close()
    assert published(table) == {"t", "u"}
    table.reading().initial()
    assert published(table) == {"t"}


def test_who_only_looks_leaves_a_query_where_it_is(apart: World) -> None:
    readers = apart.folder / "journal" / "readers"
    with capturing(apart, lambda _: None, expiry_s=600):
        query = apart.reading()
        start = query.initial()
        query.latest(start, None, None)
        write(apart, 1, 2)
        offset, _ = follow(query, start, 6)
        told = (readers / "main.json").read_bytes()
        look = Reading(apart.definition, Home(apart.folder), silent=True)
        assert len(decode(look.plan(start, offset))) == 6
        assert (len(list(readers.iterdir())), (readers / "main.json").read_bytes()) == (2, told)
        look.close()
        assert len(list(readers.iterdir())) == 2  # its tasks may still read: the log stays


def forgotten(warning: str) -> list[str]:
    """The queries that it names: on a busy machine also one that was only slow, and comes again."""
    found = re.search(r"Forgotten, because silent for too long: (.*?)\.", warning)
    return found[1].split(", ") if found else []


def test_a_silent_query_expires_and_is_told_when_it_comes_back(apart: World) -> None:
    warnings: list[str] = []
    with capturing(apart, lambda status: warnings.append(status.warning), expiry_s=1.0):
        silent, alive = apart.reading("silent"), apart.reading("alive")
        start = silent.initial()
        silent.latest(start, None, None)
        offset = start
        for round_ in range(3):
            write(apart, 1 + round_, 1)
            offset, _ = follow(alive, offset, 3)

        def expired() -> bool:
            nonlocal offset
            offset = alive.latest(offset, None, None)
            return any("silent" in forgotten(w) for w in warnings)

        until(expired, "the expiry")
        until(lambda: expired() and apart.confirmed() >= offset.position & ~7, "the acknowledgement")
        silent.close()
        with pytest.raises(PositionLost, match="was released"):
            apart.reading("silent").latest(start, None, None)


def test_capture_apart_survives_its_own_restart(apart: World) -> None:
    with capturing(apart, lambda _: None, expiry_s=600):
        reading = apart.reading()
        start = reading.initial()
        other = apart.reading("other")
        other.plan(start, start)  # the log is kept for it from now on
        write(apart, 1, 2)
        offset, first = follow(reading, start, 6)
    write(apart, 3, 2)
    with capturing(apart, lambda _: None, expiry_s=600):
        offset, rest = follow(reading, offset, 6)
        assert [e.row["id"] for e in first + rest] == ids(1, 4)
        assert decode(other.plan(start, offset)) == first + rest


def test_capture_apart_goes_on_after_an_idle_time(apart: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.engine.capture._IDLE_S", 0.05)
    apart.database.execute("CREATE TABLE noise (id int)")
    apart.source["table.include.list"] = r"public\.t"
    with capturing(apart, lambda _: None, expiry_s=600):
        reading = apart.reading()
        start = reading.initial()
        write(apart, 1, 1)
        offset, first = follow(reading, start, 3)
        assert reading.latest(offset, None, None) == offset
        apart.database.execute("INSERT INTO noise SELECT generate_series(1, 10000)")
        [(busy,)] = apart.database.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        until(lambda: apart.confirmed() >= busy, "the idle acknowledgement")
    write(apart, 2, 1)
    with capturing(apart, lambda _: None, expiry_s=600):
        offset, rest = follow(reading, offset, 3)
        assert [e.row["id"] for e in first + rest] == ids(1, 2)


def test_capture_apart_never_goes_on_with_another_slot(apart: World) -> None:
    with capturing(apart, lambda _: None, expiry_s=600):
        reading = apart.reading()
        start = reading.initial()
        write(apart, 1, 1)
        offset, _ = follow(reading, start, 3)
        reading.latest(offset, None, None)
    drop_slots(apart.database)
    write(apart, 2, 1)
    with pytest.raises(PositionLost, match="can't be read again"):
        run_apart(apart.definition, threading.Event(), expiry_s=600)
