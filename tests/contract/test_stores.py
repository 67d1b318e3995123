"""One behaviour, every store of control state: a SQLite file and a PostgreSQL database.

The oracle of the random walk is a few dictionaries. Processes here are real ones, and those that die are killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.patience import Patience
from tests.proxy import Proxy
from tests.servers import Database, Postgres, free_port
from tidelog.contracts import ControlStore
from tidelog.errors import ConfigError, Conflict, CorruptState, NotFound, TidelogError, TransientError
from tidelog.model.control import PAUSED, RUNNING, STOPPED, Change, Committed, Connector, Kept, Partition, Told
from tidelog.stores import open_store
from tidelog.stores.sqlite import SqliteStore

SHOP: Partition = {"server": "shop"}
ODD = ["zoë/店 '\"; DROP TABLE change; --", "%s ? $1 {}", "🦀" * 50, " ", "..", "a\nb\tc", "\u202e\u0301"]
FORK = multiprocessing.get_context("fork")
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload([__name__])


class Place(Protocol):
    """Where a store is, with a way into it that the store does not know of."""

    where: str

    def execute(self, statement: str) -> list[Any]: ...


@dataclass
class File:
    where: str

    def execute(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.where)) as db, db:
            return db.execute(statement).fetchall()

    def await_alone(self) -> None:
        """A process that is dead holds no file."""


@dataclass
class Server:
    where: str
    database: Database

    def execute(self, statement: str) -> list[Any]:
        with self.database.connect(options="-c search_path=tidelog") as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def await_alone(self) -> None:
        """The server goes on for a moment with what a process asked before it died."""
        others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        patience = Patience()
        while self.execute(f"{others} AND backend_type = 'client backend'"):
            assert not patience.is_over(), "somebody is still connected"
            time.sleep(0.02)


def url(database: Database, **parts: Any) -> str:
    p = {"user": database.user, "password": database.password, "host": database.host, "port": database.port}
    p = {key: quote(str(value), safe="") for key, value in (p | {"dbname": database.dbname} | parts).items()}
    return f"postgresql://{p['user']}:{p['password']}@{p['host']}:{p['port']}/{p['dbname']}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return File(str(tmp_path / "deep" / "tidelog.sqlite"))
    database = request.getfixturevalue("database")
    return Server(url(database), database)


@pytest.fixture
def store(place: Place) -> Iterator[ControlStore]:
    with closing(open_store(place.where)) as opened:
        yield opened


def edit(after: dict[str, Any] | None, name: str = "shop", partition: Partition = SHOP, **more: Any) -> Change:
    made = Change(0, name, partition, "delete" if after is None else "set", None, after, "ann", "because", 7)
    return replace(made, **more)


def commit(batch: int, change: int = 0, query: str = "q", **offset: Any) -> Committed:
    contained = {"tidelog_change": change} if change else {}
    return Committed(query, batch, {"lsn": 100 + batch, **offset, **contained}, 1000 + batch)


def only(store: ControlStore, name: str = "shop") -> Kept:
    [kept] = store.offsets(name)
    return kept


# -- connectors ------------------------------------------------------------------------------------------------------


def test_a_new_store_is_empty(store: ControlStore) -> None:
    assert store.connectors() == []
    assert store.offsets("shop") == []
    assert store.pending("shop") == []
    assert store.history("shop") == []
    assert store.told("signal", "shop") == []


def test_connectors_are_kept_as_written(store: ControlStore) -> None:
    config = {"connector.class": "postgres", "database.password": "${PGPASSWORD}", "snow": "☃ \0 \ud800"}
    made = store.create(Connector("shop", config, PAUSED))
    assert made.version == 1
    assert made.updated_us > 0
    assert store.connector("shop") == made
    assert store.connector("shop").config == config
    store.create(Connector("Älter", {}, STOPPED))
    store.create(Connector("audit", {}))
    assert [c.name for c in store.connectors()] == ["audit", "shop", "Älter"]


def test_a_taken_name_is_a_conflict(store: ControlStore) -> None:
    store.create(Connector("shop", {"a": "1"}))
    with pytest.raises(Conflict, match="shop exists"):
        store.create(Connector("shop", {"a": "2"}))
    assert store.connector("shop").config == {"a": "1"}


def test_what_does_not_exist_is_not_found(store: ControlStore) -> None:
    for asked in (
        lambda: store.connector("shop"),
        lambda: store.update(Connector("shop", {})),
        lambda: store.forget("shop"),
    ):
        with pytest.raises(NotFound, match="no connector shop"):
            asked()


def test_a_stale_writer_of_a_connector_is_refused(store: ControlStore) -> None:
    read = store.create(Connector("shop", {"a": "1"}))
    written = store.update(replace(read, config={"a": "2"}, target=STOPPED))
    assert written.version == 2
    assert written.updated_us >= read.updated_us
    with pytest.raises(Conflict, match="version 2 is the last, not 1"):
        store.update(replace(read, config={"a": "3"}))
    assert store.connector("shop") == written


def test_a_stale_writer_is_refused_even_after_the_connector_came_anew(store: ControlStore) -> None:
    read = store.create(Connector("shop", {"password": "old"}))
    store.forget("shop")
    assert store.connectors() == []
    anew = store.create(Connector("shop", {"password": "new"}))
    assert anew.version > read.version
    with pytest.raises(Conflict):
        store.update(read)
    assert store.connector("shop") == anew


def test_a_forgotten_connector_leaves_no_config(place: Place, store: ControlStore) -> None:
    store.create(Connector("shop", {"database.password": "hunter2"}))
    store.forget("shop")
    assert "hunter2" not in str(place.execute("SELECT * FROM connector"))


def test_offsets_and_history_outlive_their_connector(store: ControlStore) -> None:
    store.create(Connector("shop", {}))
    store.mirror("shop", SHOP, commit(1))
    made = store.change(edit({"lsn": 5}), expected=0)
    store.forget("shop")
    assert store.history("shop") == [made]
    assert only(store).offset == {"lsn": 5}
    store.create(Connector("shop", {}))
    assert store.pending("shop") == [made]


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_a_mirror_is_shown_as_it_was_committed(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(3, txId=9))
    assert only(store) == Kept(SHOP, {"lsn": 103, "txId": 9}, 0, False, "q", 3, 1003)
    store.mirror("shop", SHOP, commit(4))
    assert only(store) == Kept(SHOP, {"lsn": 104}, 0, False, "q", 4, 1004)


def test_the_same_batch_again_is_no_conflict(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(3))
    store.mirror("shop", SHOP, commit(3))
    assert only(store).batch == 3


def test_an_older_batch_of_the_same_query_is_a_conflict(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(3))
    with pytest.raises(Conflict, match="Batch 2 of shop comes after batch 3"):
        store.mirror("shop", SHOP, commit(2))
    store.mirror("shop", SHOP, commit(0, query="anew"))
    assert only(store).query == "anew"
    with pytest.raises(Conflict, match="Batch 2 of shop comes after batch 3"):
        store.mirror("shop", SHOP, commit(2))
    assert only(store).query == "anew"


def test_partitions_and_names_are_kept_apart(store: ControlStore) -> None:
    one, two = {"server": "s", "database": "one"}, {"database": "two", "server": "s"}
    store.mirror("shop", one, commit(1))
    store.mirror("shop", two, commit(2))
    store.mirror("shop", dict(reversed(one.items())), commit(3))
    store.mirror("other", one, commit(9))
    store.change(edit({"lsn": 1}, partition=two), expected=0)
    kept = {str(k.partition["database"]): k for k in store.offsets("shop")}
    assert (kept["one"].batch, kept["one"].pending) == (3, False)
    assert (kept["two"].offset, kept["two"].pending) == ({"lsn": 1}, True)
    assert only(store, "other").batch == 9


def test_a_change_waits_until_a_commit_contains_it(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(1))
    made = store.change(edit({"lsn": 5}, undoes=None), expected=0)
    assert made == edit({"lsn": 5}, id=made.id, before={"lsn": 101})
    assert only(store) == Kept(SHOP, {"lsn": 5}, made.id, True, "q", 1, 7)
    assert store.pending("shop") == store.history("shop") == [made]
    store.mirror("shop", SHOP, commit(2, made.id))
    assert only(store) == Kept(SHOP, {"lsn": 102, "tidelog_change": made.id}, made.id, False, "q", 2, 1002)
    assert store.pending("shop") == []
    assert store.history("shop") == [replace(made, applied_us=1002)]
    store.mirror("shop", SHOP, commit(3, made.id))
    assert store.history("shop") == [replace(made, applied_us=1002)]


def test_a_late_commit_neither_hides_nor_applies_a_waiting_change(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(1))
    made = store.change(edit({"lsn": 5}), expected=0)
    store.mirror("shop", SHOP, commit(2))
    assert only(store) == Kept(SHOP, {"lsn": 5}, made.id, True, "q", 2, 7)
    assert store.pending("shop") == [made]
    again = store.change(edit({"lsn": 6}), expected=made.id)
    assert again.before == {"lsn": 5}


def test_a_commit_that_lacks_an_applied_change_is_a_conflict(store: ControlStore) -> None:
    made = store.change(edit({"lsn": 5}), expected=0)
    store.mirror("shop", SHOP, commit(2, made.id))
    with pytest.raises(Conflict, match=f"before change {made.id}"):
        store.mirror("shop", SHOP, commit(3))
    assert only(store).batch == 2


def test_a_query_with_a_checkpoint_of_its_own_begins_without_changes(store: ControlStore) -> None:
    made = store.change(edit({"lsn": 5}), expected=0)
    store.mirror("shop", SHOP, commit(2, made.id))
    store.mirror("shop", SHOP, commit(0, query="other"))
    assert (only(store).query, only(store).offset, only(store).pending) == ("other", {"lsn": 100}, False)


def test_after_a_delete_there_is_nothing_until_something_is_committed(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(1))
    made = store.change(edit(None), expected=0)
    assert (made.action, made.before, made.after) == ("delete", {"lsn": 101}, None)
    store.mirror("shop", SHOP, commit(2))
    assert only(store) == Kept(SHOP, None, made.id, True, "q", 2, 7)
    store.mirror("shop", SHOP, commit(0, made.id, query="anew"))
    assert only(store).offset == {"lsn": 100, "tidelog_change": made.id}


def test_a_change_that_another_has_replaced_was_never_applied(store: ControlStore) -> None:
    first = store.change(edit({"lsn": 1}), expected=0)
    second = store.change(edit({"lsn": 2}, action="undo", undoes=first.id), expected=first.id)
    assert store.pending("shop") == [second]
    store.mirror("shop", SHOP, commit(1, second.id))
    assert store.history("shop") == [replace(second, applied_us=1001), first]


def test_a_commit_may_contain_a_change_while_the_next_waits(store: ControlStore) -> None:
    first = store.change(edit({"lsn": 1}), expected=0)
    second = store.change(edit({"lsn": 2}), expected=first.id)
    store.mirror("shop", SHOP, commit(1, first.id))
    assert store.history("shop") == [second, replace(first, applied_us=1001)]
    assert only(store).pending
    with pytest.raises(Conflict):
        store.mirror("shop", SHOP, commit(2))


def test_a_change_based_on_a_stale_one_is_a_conflict(store: ControlStore) -> None:
    made = store.change(edit({"lsn": 5}), expected=0)
    for stale in (0, made.id + 1):
        with pytest.raises(Conflict, match=f"the last change is {made.id}, not {stale}"):
            store.change(edit({"lsn": 6}), expected=stale)
    store.mirror("shop", SHOP, commit(1, made.id))
    with pytest.raises(Conflict):
        store.change(edit({"lsn": 6}), expected=0)
    assert [c.id for c in store.history("shop")] == [made.id]


def test_numbers_go_on_above_those_of_a_store_that_was_lost(store: ControlStore) -> None:
    store.mirror("shop", SHOP, commit(1, 70))
    assert only(store).change == 70
    made = store.change(edit({"lsn": 5}), expected=70)
    assert made.id > 70
    store.mirror("shop", SHOP, commit(2, 70))
    assert store.pending("shop") == [made]


def test_history_comes_in_pages_newest_first(store: ControlStore) -> None:
    made: list[Change] = []
    for n in range(7):
        made.append(store.change(edit({"lsn": n}), expected=made[-1].id if made else 0))
        store.change(edit({}, name="other"), expected=only(store, "other").change if n else 0)
    made.reverse()
    assert store.history("shop") == made
    assert store.history("shop", limit=3) == made[:3]
    assert store.history("shop", limit=3, before=made[2].id) == made[3:6]
    assert store.history("shop", before=made[-1].id) == store.history("shop", limit=0) == []


def test_a_moment_is_filled_in_where_none_is_named(store: ControlStore) -> None:
    assert store.change(edit({}, at_us=0), expected=0).at_us > 10**15


# -- signals and notifications ---------------------------------------------------------------------------------------


def test_what_is_told_twice_is_kept_once(store: ControlStore) -> None:
    first = store.tell("signal", Told("shop", "1", "log", {"message": "hi", "n": 1}, 5))
    assert store.tell("signal", Told("shop", "1", "log", {"n": 1, "message": "hi"}, 5)).number == first.number
    for other in (
        replace(first, id="2"),
        replace(first, type="stop"),
        replace(first, at_us=6),
        replace(first, data={"message": "ho"}),
    ):
        assert store.tell("signal", other).number > first.number
    assert len(store.told("signal", "shop")) == 5
    assert store.tell("notification", first).number != first.number
    assert store.tell("signal", replace(first, connector="other")).number != first.number
    assert store.told("signal", "other")[0].data == first.data


def test_what_was_told_is_read_on_from_the_last_seen(store: ControlStore) -> None:
    told = [store.tell("notification", Told("shop", str(n), "STARTED", {"n": n}, n)) for n in range(10)]
    assert store.told("notification", "shop") == told
    assert store.told("notification", "shop", limit=3) == told[-3:]
    assert store.told("notification", "shop", after=told[6].number) == told[7:]
    assert store.told("notification", "shop", after=told[4].number, limit=2) == told[-2:]
    assert store.told("notification", "shop", after=told[-1].number) == store.told("signal", "shop") == []


def test_a_kind_that_does_not_exist_is_an_error(store: ControlStore) -> None:
    with pytest.raises(ValueError, match="none of signal, notification"):
        store.tell("rumour", Told("shop", "1", "log", {}, 5))


# -- odd values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(store: ControlStore, name: str) -> None:
    made = store.create(Connector(name, {name: name}))
    assert store.connectors() == [made]
    store.mirror(name, {name: name}, Committed(name, 1, {"lsn": 101, name: [name]}, 5))
    change = store.change(edit({name: {}}, name, {name: name}, who=name, why=name), expected=0)
    assert store.pending(name) == [replace(change, before={"lsn": 101, name: [name]})]
    assert only(store, name).partition == {name: name}
    assert store.told("signal", name) == []
    assert store.tell("signal", Told(name, name, name, {name: name}, 1)) in store.told("signal", name)


def test_documents_come_back_as_they_went(store: ControlStore) -> None:
    document = {
        "z": None, "a": [1, 2.5, True, {"x": []}], "big": 2**70, "nul": "a\0b", "half": "\ud83d", "": "☃", "neg": -0.1
    }  # fmt: skip
    store.mirror("shop", {"p": document}, Committed("q", 1, document, 5))
    assert list(only(store).offset or {}) == list(document)
    assert only(store).offset == document
    assert only(store).partition == {"p": document}


def test_large_documents(store: ControlStore) -> None:
    offset = {f"key{n}": os.urandom(500).hex() for n in range(5000)}
    partition = {"server": os.urandom(20_000).hex()}
    store.mirror("shop", partition, Committed("q", 1, offset, 5))
    made = store.change(edit(offset, partition=partition, why="w" * 100_000), expected=0)
    told = store.tell("signal", Told("shop", "i" * 50_000, "log", {"data": offset}, 5))
    assert only(store).offset == offset == made.before
    assert store.history("shop") == [made]
    assert store.told("signal", "shop") == [told]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "n" * 1001])
def test_names_that_not_every_database_takes_are_refused_alike(store: ControlStore, name: str) -> None:
    for write in (
        lambda: store.create(Connector(name, {})),
        lambda: store.mirror(name, SHOP, commit(1)),
        lambda: store.change(edit({}, name), expected=0),
    ):
        with pytest.raises(ConfigError, match=r"cannot be kept|too long"):
            write()
    assert store.connectors() == []


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_what_json_does_not_know_is_refused(store: ControlStore, value: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be kept as JSON"):
        store.change(edit({"x": value}), expected=0)
    assert store.history("shop") == []


def test_numbers_of_any_size_may_be_asked_for(store: ControlStore) -> None:
    with pytest.raises(ConfigError, match="too large"):
        store.history("shop", before=10**30)
    assert store.told("signal", "shop", limit=-5) == []


# -- history stays ---------------------------------------------------------------------------------------------------

FORGERIES = [
    "UPDATE change SET who = 'eve'",
    "DELETE FROM change",
    "UPDATE applied SET at_us = 1",
    "DELETE FROM applied",
]
FORGERIES_SQLITE = [
    "INSERT OR REPLACE INTO applied VALUES (1, 99)",
    "REPLACE INTO change SELECT id, connector, part, partition, action, NULL, NULL, 'eve', why, 1, NULL FROM change",
]
FORGERIES_POSTGRES = [
    "TRUNCATE change",
    "TRUNCATE applied",
    "INSERT INTO applied VALUES (1, 99) ON CONFLICT (change) DO UPDATE SET at_us = 99",
    "SET session_replication_role = replica; DELETE FROM change",
]


def test_history_cannot_be_changed_even_with_sql(place: Place, store: ControlStore) -> None:
    made = store.change(edit({"lsn": 5}), expected=0)
    store.mirror("shop", SHOP, commit(1, made.id))
    special = FORGERIES_SQLITE if isinstance(place, File) else FORGERIES_POSTGRES
    for forgery in (*FORGERIES, *special):
        with pytest.raises((sqlite3.Error, psycopg.Error), match="only ever added to"):
            place.execute(forgery)
    assert store.history("shop") == [replace(made, applied_us=1001)]


# -- many at once ----------------------------------------------------------------------------------------------------


def work(where: str, worker: int, rounds: int, gate: Any) -> None:
    """Each process edits a partition that all share, retrying when it was too late, and tells of it."""
    store = open_store(where)
    gate.wait()
    for n in range(rounds):
        _insist(store, worker, n)
        store.tell("notification", Told("shop", f"{worker}.{n}", "DID", {}, n))
        store.mirror("shop", {"worker": worker}, commit(n, query=f"q{worker}"))
    store.close()


def _insist(store: ControlStore, worker: int, n: int) -> None:
    while True:
        expected = next((k.change for k in store.offsets("shop") if k.partition == SHOP), 0)
        try:
            store.change(edit({"by": [worker, n]}), expected=expected)
            return
        except Conflict:
            continue


def together(target: Callable[..., None], where: str, count: int, *arguments: Any) -> list[int | None]:
    gate = FRESH.Barrier(count)
    workers = [FRESH.Process(target=target, args=(where, n, *arguments, gate)) for n in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


def test_many_processes_write_at_once(place: Place) -> None:
    count, rounds = 4, 15
    assert together(work, place.where, count, rounds) == [0] * count
    with closing(open_store(place.where)) as store:
        changes = store.history("shop", limit=1000)[::-1]
        assert sorted((c.after or {})["by"] for c in changes) == [[w, n] for w in range(count) for n in range(rounds)]
        assert [c.before for c in changes] == [None, *(c.after for c in changes[:-1])]
        assert len({c.id for c in changes}) == count * rounds
        assert {k.batch for k in store.offsets("shop") if k.partition != SHOP} == {rounds - 1}
        numbers = [t.number for t in store.told("notification", "shop", limit=1000)]
        assert len(numbers) == count * rounds


def race(where: str, worker: int, gate: Any) -> None:
    """Exits with 0 for who was first, 3 for who was told so."""
    store = open_store(where)
    gate.wait()
    try:
        store.create(Connector("shop", {"by": str(worker)}))
    except Conflict:
        os._exit(3)
    os._exit(0)


def test_two_first_users_at_once(place: Place) -> None:
    codes = together(race, place.where, 6)
    assert sorted(map(str, codes)) == ["0", "3", "3", "3", "3", "3"]
    with closing(open_store(place.where)) as store:
        assert store.connector("shop").config == {"by": str(codes.index(0))}


@pytest.mark.parametrize("step", range(5))  # then its own transaction begins, and nobody comes between
def test_a_first_user_comes_between_two_steps_of_another(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the slower of two first users has looked at already, it finds the store of the other one."""
    where = tmp_path / "tidelog.sqlite"
    taken: list[str] = []

    class Slow(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            if len(taken) == step:
                monkeypatch.undo()
                SqliteStore(where).create(Connector("first", {}))
            taken.append(args[0])
            return super().execute(*args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Slow, **options))
    SqliteStore(where).create(Connector("second", {}))
    assert [connector.name for connector in SqliteStore(where).connectors()] == ["first", "second"]


def test_threads_share_a_store(store: ControlStore) -> None:
    failed: list[BaseException] = []

    def run(worker: int) -> None:
        try:
            for n in range(10):
                _insist(store, worker, n)
        except BaseException as exc:
            failed.append(exc)
            raise

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(store.history("shop", limit=1000)) == 60


def test_who_reads_on_from_the_last_number_misses_nothing(place: Place, store: ControlStore) -> None:
    gate = FRESH.Barrier(4)
    writers = [FRESH.Process(target=chatter, args=(place.where, n, gate)) for n in range(3)]
    for writer in writers:
        writer.start()
    gate.wait()
    seen: list[Told] = []
    while len(seen) < 90:
        ended = all(writer.exitcode is not None for writer in writers)
        new = store.told("signal", "shop", after=seen[-1].number if seen else 0, limit=1000)
        seen += new
        assert new or not ended, f"only {len(seen)} were seen"
    for writer in writers:
        writer.join()
    assert {t.id for t in seen} == {f"{w}.{n}" for w in range(3) for n in range(30)}


def chatter(where: str, worker: int, gate: Any) -> None:
    with closing(open_store(where)) as store:
        gate.wait()
        for n in range(30):
            store.tell("signal", Told("shop", f"{worker}.{n}", "log", {}, n))


def inherit(store: ControlStore, gate: Any, name: str) -> None:
    gate.wait()
    for n in range(20):
        store.tell("signal", Told(name, str(n), "log", {}, n))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_parent_and_child_use_a_store_at_once_after_a_fork(store: ControlStore) -> None:
    store.change(edit({"lsn": 1}), expected=0)
    gate = FORK.Barrier(2)
    child = FORK.Process(target=inherit, args=(store, gate, "child"))
    child.start()
    inherit(store, gate, "parent")
    child.join()
    assert child.exitcode == 0
    for name in ("parent", "child"):
        assert [t.id for t in store.told("signal", name)] == [str(n) for n in range(20)]


WRITER = """
import sys
import time
from tidelog.model.control import Change, Committed
from tidelog.stores import open_store
store, last = open_store(sys.argv[1]), int(sys.argv[2])
while True:
    edit = Change(0, "shop", {"server": "shop"}, "set", None, {"x": "y" * 5000}, "a", "", 1)
    last = store.change(edit, expected=last).id
    store.mirror("shop", {"server": "shop"}, Committed("q", last, {"tidelog_change": last}, last))
    print(last, flush=True)
"""


def test_a_kill_in_the_middle_of_writes_loses_nothing_that_was_confirmed(place: Place) -> None:
    confirmed = last = 0
    pending: set[int] = set()
    for confirmations in (1, 4, 9, 2, 6):
        command = [sys.executable, "-c", WRITER, place.where, str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(confirmations):
                confirmed = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            confirmed = max([confirmed, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        place.await_alone()
        with closing(open_store(place.where)) as store:
            kept, changes = only(store), store.history("shop", limit=10_000)
            last = kept.change
            assert last >= confirmed
            assert [c.id for c in changes] == list(range(last, 0, -1))
            others = {c.id: c.applied_us for c in changes[1:] if c.applied_us != c.id}
            assert others == dict.fromkeys(pending)  # the next writer replaced them before they were applied
            assert kept.pending == (changes[0].applied_us is None)
            if kept.pending:
                pending.add(last)
    if isinstance(place, File):
        assert place.execute("PRAGMA integrity_check") == [("ok",)]


# -- random walks ----------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A store of one connector with two partitions, as simple as can be."""

    mirrors: dict[int, Committed] = field(default_factory=dict)
    batches: dict[tuple[int, str], int] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def contained(self, part: int) -> int:
        return int(self.mirrors[part].offset.get("tidelog_change", 0)) if part in self.mirrors else 0

    def newest(self, part: int, upto: int = 2**62) -> Change | None:
        return next((c for c in reversed(self.changes) if c.partition == {"n": part} and c.id <= upto), None)

    def stands(self, part: int) -> tuple[Any, int, bool] | None:
        newest = self.newest(part)
        if newest and newest.applied_us is None:
            return newest.after, newest.id, True
        if part in self.mirrors:
            return self.mirrors[part].offset, max(self.contained(part), newest.id if newest else 0), False
        return None

    def mirror(self, part: int, committed: Committed) -> bool:
        contained = int(committed.offset.get("tidelog_change", 0))
        same = part in self.mirrors and self.mirrors[part].query == committed.query
        if committed.batch < self.batches.get((part, committed.query), 0):
            return False
        if same and contained < self.contained(part):
            return False
        self.mirrors[part], self.batches[part, committed.query] = committed, committed.batch
        last = self.newest(part, contained)
        if last and last.applied_us is None:
            self.changes[self.changes.index(last)] = replace(last, applied_us=committed.at_us)
        return True


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 1), st.integers(-1, 2), st.booleans()),
        st.tuples(st.just("mirror"), st.integers(0, 1), st.integers(0, 6), st.sampled_from("ab"), st.integers(0, 3)),
    ),
    max_size=20,
)


def walk(store: ControlStore, name: str, steps: Sequence[tuple[Any, ...]]) -> None:
    model = Model()
    for step in steps:
        match step:
            case "change", part, slip, removes:
                _walk_change(store, model, name, part, slip if slip > 0 else 0, removes)
            case "mirror", part, batch, query, behind:
                known = model.newest(part)
                committed = commit(batch, max(0, (known.id if known else 0) - behind), query)
                _walk_mirror(store, model, name, part, committed)
        _compare(store, model, name)


def _walk_change(store: ControlStore, model: Model, name: str, part: int, slip: int, removes: bool) -> None:
    after = None if removes else {"lsn": len(model.changes)}
    offset, newest, _ = model.stands(part) or (None, 0, False)
    try:
        made = store.change(edit(after, name, {"n": part}), expected=newest + slip)
    except Conflict:
        assert slip
        return
    assert not slip
    assert made.id > max((c.id for c in model.changes), default=0)
    model.changes.append(edit(after, name, {"n": part}, id=made.id, before=offset))


def _walk_mirror(store: ControlStore, model: Model, name: str, part: int, committed: Committed) -> None:
    if model.mirror(part, committed):
        return store.mirror(name, {"n": part}, committed)
    with pytest.raises(Conflict):
        store.mirror(name, {"n": part}, committed)
    return None


def _compare(store: ControlStore, model: Model, name: str) -> None:
    shown = {k.partition["n"]: (k.offset, k.change, k.pending) for k in store.offsets(name)}
    assert shown == {part: stands for part in (0, 1) if (stands := model.stands(part))}
    assert store.history(name) == model.changes[::-1]
    assert store.pending(name) == [
        c for c in model.changes if c.applied_us is None and c == model.newest(int(c.partition["n"]))
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_walks_agree_with_the_model(store: ControlStore, steps: list[tuple[Any, ...]]) -> None:
    name = f"walk{len(store.connectors())}"
    store.create(Connector(name, {}))
    walk(store, name, steps)


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_newer_format_is_told(place: Place, store: ControlStore) -> None:
    store.create(Connector("shop", {}))
    place.execute("PRAGMA user_version = 9" if isinstance(place, File) else "UPDATE format SET version = 9")
    with closing(open_store(place.where)) as later, pytest.raises(CorruptState, match=r"format 9;.* or a newer one"):
        later.connectors()


def test_something_else_at_the_place_is_left_alone(place: Place) -> None:
    if isinstance(place, File):
        Path(place.where).parent.mkdir()
    else:
        place.execute("CREATE SCHEMA tidelog")
    place.execute("CREATE TABLE change (mine TEXT)")
    with closing(open_store(place.where)) as store, pytest.raises(ConfigError):
        store.create(Connector("shop", {}))
    assert place.execute("SELECT * FROM change") == []


def test_tables_that_were_removed_are_told(place: Place, store: ControlStore) -> None:
    store.create(Connector("shop", {}))
    place.execute("DROP TABLE connector")
    with pytest.raises(CorruptState):
        store.connectors()
    assert store.history("shop") == []


def test_an_error_undoes_the_whole_call(place: Place, store: ControlStore) -> None:
    made = store.change(edit({"lsn": 1}), expected=0)
    place.execute("ALTER TABLE applied RENAME TO away")
    with pytest.raises(CorruptState):
        store.mirror("shop", SHOP, commit(1, made.id))
    place.execute("ALTER TABLE away RENAME TO applied")
    assert only(store).batch == -1
    assert store.pending("shop") == [made]


# -- SQLite ----------------------------------------------------------------------------------------------------------


def test_looking_makes_no_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "none.sqlite"))
    assert store.connectors() == []
    assert store.offsets("shop") == []
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.sqlite"))
    store.create(Connector("shop", {"database.password": "secret"}))
    assert stat.S_IMODE((tmp_path / "a.sqlite").stat().st_mode) == 0o600


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.sqlite"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(CorruptState, match="Bring back a copy"):
        open_store(str(path)).connectors()


@pytest.mark.parametrize("place", ["file/under.sqlite", "folder"])
def test_a_place_that_cannot_be_a_file_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"cannot be opened .*offset\.storage"):
        open_store(str(tmp_path / place)).create(Connector("shop", {}))


def test_a_lock_that_stays_is_a_transient_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.stores.sqlite.BUSY_SECONDS_MAX", 0.05)
    store = open_store(str(tmp_path / "a.sqlite"))
    store.create(Connector("shop", {}))
    with closing(sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError, match="Another process holds it"):
            store.forget("shop")
        assert store.connector("shop").name == "shop"
    store.forget("shop")


def test_the_default_is_a_file_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_OFFSET_STORAGE", raising=False)
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    open_store(None).create(Connector("shop", {}))
    assert (tmp_path / "home" / "tidelog.sqlite").exists()
    monkeypatch.delenv("TIDELOG_HOME")
    monkeypatch.chdir(tmp_path)
    assert repr(open_store()) == f"SqliteStore('{tmp_path}/.tidelog/tidelog.sqlite')"
    monkeypatch.setenv("TIDELOG_OFFSET_STORAGE", "elsewhere.sqlite")
    assert repr(open_store()) == f"SqliteStore('{tmp_path}/elsewhere.sqlite')"
    assert isinstance(open_store("named.sqlite"), SqliteStore)


def test_other_urls_are_refused_without_their_password() -> None:
    where = f"mysql://u:{SECRET}@h/d"
    assert "begins with mysql://" in failure(where, ConfigError)


# -- PostgreSQL ------------------------------------------------------------------------------------------------------

SECRET = "s3cr3t-passw0rd"


def told(exc: BaseException) -> str:
    """All that a log could show of an error."""
    return "".join(traceback.format_exception(exc)) + repr(exc)


def look(where: str) -> None:
    with closing(open_store(where)) as store:
        assert SECRET not in repr(store)
        store.connectors()


def failure(where: str, kind: type[TidelogError]) -> str:
    with pytest.raises(kind) as caught:
        look(where)
    assert SECRET not in told(caught.value)
    assert SECRET not in repr(caught.getrepr(showlocals=False))
    return str(caught.value)


def test_a_server_that_is_not_there_is_a_transient_error(database: Database) -> None:
    nowhere = url(database, password=SECRET, port=free_port())
    assert "can be reached" in failure(nowhere, TransientError)
    assert "can be reached" in failure(url(database, password=SECRET, host="role-password.invalid"), TransientError)


def test_a_wrong_url_is_a_config_error(database: Database) -> None:
    assert "Check user and password" in failure(url(database, password=SECRET), ConfigError)
    assert "Check user" in failure(url(database, user="nobody", password=SECRET), ConfigError)
    database.execute(f"CREATE ROLE wrong LOGIN PASSWORD '{SECRET}'")
    assert "Create the database" in failure(url(database, user="wrong", password=SECRET, dbname="none"), ConfigError)
    database.execute("DROP ROLE wrong")


@pytest.mark.parametrize(
    "where",
    [
        f"postgresql://u:{SECRET}/x@h/d",
        f"postgresql://u:x@{SECRET}@h/d",
        f"postgresql://u:5432/{SECRET}@h/d",
        f"postgresql://u:x@h:{SECRET}/d",
        f"postgresql://u:{SECRET}@[h/d",
        f"postgresql://u:{SECRET}@h/d?no_such_option=1",
        f"postgresql://u:{SECRET}%zz@h/d",
    ],
)
def test_a_malformed_url_is_not_quoted(where: str) -> None:
    assert "%40 for @" in failure(where, ConfigError)


def test_a_role_needs_only_its_own_schema(database: Database) -> None:
    database.execute(f"CREATE ROLE keeper LOGIN PASSWORD '{SECRET}'")
    where = url(database, user="keeper", password=SECRET)
    assert "CREATE SCHEMA tidelog AUTHORIZATION" in failure(where, ConfigError)
    database.execute("CREATE SCHEMA tidelog AUTHORIZATION keeper")
    with closing(open_store(where)) as store:
        store.create(Connector("shop", {}))
    database.execute("DROP OWNED BY keeper CASCADE; DROP ROLE keeper")


def test_defaults_of_the_database_do_not_matter(database: Database) -> None:
    """Also to several first users, of whom one makes the tables while the others wait for it."""
    defaults = {
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "serializable",
        "search_path": "nowhere",
        "idle_session_timeout": "200ms",
    }
    with database.connect() as connection:
        for name, value in defaults.items():
            connection.execute(f"ALTER DATABASE {database.dbname} SET {name} = '{value}'")
    where = url(database)
    assert sorted(map(str, together(race, where, 6))) == ["0", "3", "3", "3", "3", "3"]
    with closing(open_store(where)) as store:
        made = store.change(edit({"lsn": 1}), expected=0)
        time.sleep(1)
        assert store.pending("shop") == [made]


def test_a_cut_connection_is_opened_anew(database: Database, proxy: Proxy) -> None:
    with closing(open_store(url(database, host=proxy.host, port=proxy.port))) as store:
        store.create(Connector("shop", {}))
        proxy.cut()
        assert store.connector("shop").target == RUNNING
        store.forget("shop")


def test_a_restart_of_the_server_is_survived(private_postgres: Postgres) -> None:
    database = private_postgres.create_database("control")
    with closing(open_store(url(database))) as store:
        made = store.change(edit({"lsn": 1}), expected=0)
        private_postgres.halt(immediate=True)
        with pytest.raises(TransientError):
            store.offsets("shop")
        private_postgres.resume()
        assert store.pending("shop") == [made]
        assert store.change(edit({"lsn": 2}), expected=made.id).id > made.id


def test_connections_are_let_go(database: Database) -> None:
    store = open_store(url(database))
    threads = [threading.Thread(target=store.connectors) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.create(Connector("shop", {}))
    with pytest.raises(Conflict):
        store.create(Connector("shop", {}))
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'tidelog store'"
    [[rested]] = database.execute(count, [database.dbname])
    assert 1 <= rested <= 8
    states = "SELECT DISTINCT state FROM pg_stat_activity WHERE datname = %s AND application_name = 'tidelog store'"
    assert database.execute(states, [database.dbname]) == [("idle",)]
    store.close()
    left = database.execute(count, [database.dbname])
    while left != [(0,)]:  # the server notices a farewell a moment later
        left = database.execute(count, [database.dbname])
