"""Signals from every channel, and what they do to running snapshots."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.postgres.snapshot_rig import Crash, Rig, nothing
from tests.integration.postgres.snapshot_writers import SIGNALS, finished
from tests.servers import Database
from tidelog.core.snapshot.state import Snapshot
from tidelog.engine.signals import send
from tidelog.errors import ConfigError, TransientError

EXECUTE, STOP, PAUSE, RESUME = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"


def tables(database: Database) -> None:
    """The tables a, b and c, and that of signals."""
    for name in "abc":
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, place int UNIQUE NOT NULL)")
        database.execute(f"INSERT INTO {name} SELECT i, '{name}' || i, 1000 - i FROM generate_series(1, 60) i")
    database.execute(SIGNALS)


def rig_for(database: Database, folder: Path, more: dict[str, str]) -> Rig:
    source = {
        "snapshot.mode": "no_data",
        "incremental.snapshot.chunk.size": "10",
        "signal.data.collection": "public.signals",
        "signal.file": str(folder / "signals.jsonl"),
        **more,
    }
    return Rig(database, folder / "pipeline", source)


@pytest.fixture
def rig(database: Database, tmp_path: Path) -> Iterator[Rig]:
    """Of the tables nothing was delivered yet."""
    tables(database)
    with rig_for(database, tmp_path, {}) as made:
        made.run()
        yield made


def ask(rig: Rig, signal: str, id: str, channel: str = "in-process", **data: Any) -> None:
    data = {name.replace("_", "-"): value for name, value in data.items()}
    match channel:
        case "in-process":
            send(rig.folder / "signals", signal, data, id)
        case "file":
            with Path(rig.source["signal.file"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"id": id, "type": signal, "data": data}) + "\n")
        case "table":
            rig.database.execute("INSERT INTO signals VALUES (%s, %s, %s)", [id, signal, json.dumps(data)])


def settle(rig: Rig, id: str) -> None:
    """Until the signal is followed."""
    rig.run(until=lambda r: id in r.snapshot.get("handled", ()))


def read_ids(rig: Rig, table: str) -> list[int]:
    return [row["id"] for name, row in rig.reads if name == f"public.{table}"]


@pytest.mark.parametrize("channel", ["table", "file", "in-process"])
def test_a_snapshot_is_asked_for(rig: Rig, channel: str) -> None:
    """By a pattern; the notifications carry the signal's id; the channel is empty afterwards, and says nothing
    about what is delivered: the table of signals is ours."""
    ask(rig, EXECUTE, "one", channel, data_collections=["public[.][ab]"])
    settle(rig, "one")
    rig.run()
    rig.check("a")
    rig.check("b")
    assert not rig.target["public.c"]
    assert "public.signals" not in rig.target
    assert rig.statuses() == [("one", "public.a", "SUCCEEDED"), ("one", "public.b", "SUCCEEDED")]
    assert {n["id"] for n in rig.told()} == {"one"}
    assert [n["aggregate_type"] for n in rig.told("STARTED")] == ["Incremental Snapshot"]
    assert not list((rig.folder / "signals").glob("*.json"))
    file = Path(rig.source["signal.file"])
    assert not file.exists() or not file.read_text().strip()


def test_conditions(rig: Rig) -> None:
    conditions = [{"data-collection": "public.a", "filter": "id % 2 = 0 OR id = 7"}]
    ask(rig, EXECUTE, "one", data_collections=["public.a", "public.b"], additional_conditions=conditions)
    settle(rig, "one")
    rig.run()
    assert read_ids(rig, "a") == sorted([*range(2, 61, 2), 7])
    assert read_ids(rig, "b") == list(range(1, 61))


def test_a_surrogate_key(rig: Rig) -> None:
    """It orders the walk; what is stale is known by the primary key."""
    change = "UPDATE a SET place = place + 5000, v = 'moved' WHERE id = (SELECT max(id) FROM a WHERE place < 1000)"

    def move() -> None:
        rig.database.execute(change)

    rig.hooks.read = move
    ask(rig, EXECUTE, "one", data_collections=["public.a"], surrogate_key="place")
    settle(rig, "one")
    rig.run(until=finished)
    rig.run()
    rig.check("a")
    ids = read_ids(rig, "a")
    assert min(ids[:15]) > max(ids[-15:])


WRONG = {
    "an unknown column": "no_such_column = 1",
    "fails in the first chunk": "100 / (id - 5) < 1000",
    "fails in a later one": "100 / (id - 55) < 1000",
    "moves a sequence": "nextval('numbers') > 0",
    "writes": "traced(id)",
    "a second statement": "true) ORDER BY id LIMIT 1) k; DELETE FROM c; SELECT id FROM (SELECT '1' AS id WHERE (true",
}


@pytest.mark.parametrize("condition", WRONG.values(), ids=WRONG)
def test_a_condition_that_is_wrong(rig: Rig, condition: str) -> None:
    """Told; nothing fails, nothing is written, and the next table has its turn."""
    rig.database.execute("CREATE SEQUENCE numbers; CREATE TABLE traces (id int)")
    rig.database.execute(
        "CREATE FUNCTION traced(int) RETURNS bool LANGUAGE sql AS 'INSERT INTO traces VALUES ($1); SELECT true'"
    )
    conditions = [{"data-collection": "public.a", "filter": condition}]
    ask(rig, EXECUTE, "one", data_collections=["public.a", "public.b"], additional_conditions=conditions)
    settle(rig, "one")
    rig.run()
    assert sorted(rig.statuses()) == [("one", "public.a", "SQL_EXCEPTION"), ("one", "public.b", "SUCCEEDED")]
    rig.check("b")
    written = "SELECT (SELECT count(*) FROM traces), (SELECT count(*) FROM c), (SELECT is_called FROM numbers)"
    assert rig.database.execute(written) == [(0, 60, False)]


def test_a_table_of_signals_that_changes_its_shape(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """What is written there then is no signal, and that is told."""
    rig.database.execute("ALTER TABLE signals ADD extra text")
    with caplog.at_level(logging.WARNING, "tidelog"):
        ask(rig, EXECUTE, "one", "table", data_collections=["public.a"])
        rig.run(until=lambda _: "4 columns" in caplog.text)
    assert not rig.target["public.a"]


def test_two_requests_at_once(rig: Rig) -> None:
    """Each has its own id, also for the same table."""
    ask(rig, EXECUTE, "one", data_collections=["public.a"])
    ask(rig, EXECUTE, "two", "file", data_collections=["public.a", "public.b"])
    settle(rig, "two")
    rig.run()
    assert read_ids(rig, "a") == [*range(1, 61), *range(1, 61)]
    assert sorted(rig.statuses()) == [
        ("one", "public.a", "SUCCEEDED"),
        ("two", "public.a", "SUCCEEDED"),
        ("two", "public.b", "SUCCEEDED"),
    ]
    assert [n["id"] for n in rig.told("COMPLETED")] == ["one", "two"]


def test_a_repeated_id_does_nothing(rig: Rig) -> None:
    for _ in range(2):
        ask(rig, EXECUTE, "one", data_collections=["public.a"])
        settle(rig, "one")
        rig.run()
    rig.crash()
    ask(rig, EXECUTE, "one", "file", data_collections=["public.a"])
    rig.run()
    assert read_ids(rig, "a") == list(range(1, 61))
    assert len(rig.told("STARTED")) == 1


@pytest.mark.parametrize("channel", ["table", "file", "in-process"])
def test_more_signals_than_are_remembered(rig: Rig, channel: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is followed once, in its order, also over a crash, and then it is gone."""

    def die() -> None:
        rig.hooks.committed = nothing
        raise Crash

    with caplog.at_level(logging.WARNING, "tidelog"):
        for number in range(250):
            ask(rig, "log", f"n{number}", channel, message=f"number {number}.")
        rig.hooks.committed = die
        with pytest.raises(Crash):
            settle(rig, "n249")
        rig.crash()
        settle(rig, "n249")
        rig.run()
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("number")]
    assert told == [f"number {number}." for number in range(250)]
    assert not list((rig.folder / "signals").glob("*.json"))
    assert not list(Path(rig.source["signal.file"]).parent.glob("*.taken"))


def test_a_database_that_is_away_loses_no_signal(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes on meanwhile: what it has asked is remembered, also by whoever starts after a crash."""
    connector = rig._reader().reading.connector

    def away() -> Any:
        raise TransientError("away")

    ask(rig, EXECUTE, "one", "table", data_collections=["public.a"])
    rig.catch_up()
    monkeypatch.setattr(connector, "tables", away)
    rig.run(until=lambda r: bool(r.snapshot.get("heard")))
    rig.crash()
    settle(rig, "one")
    rig.run()
    rig.check("a")
    assert not rig.snapshot.get("heard")


def test_stop(rig: Rig) -> None:
    """Some, then all."""
    ask(rig, EXECUTE, "one", data_collections=["public.[abc]"])
    rig.run(until=lambda r: len(r.reads) >= 20)
    ask(rig, STOP, "no b", "table", data_collections=["public.b"])
    settle(rig, "no b")
    assert [e["table"] for e in rig.snapshot["entries"]][-1] == "public.c"
    rig.run(until=lambda r: bool(read_ids(r, "c")))
    ask(rig, STOP, "nothing")
    settle(rig, "nothing")
    assert finished(rig)
    rig.run()
    assert not read_ids(rig, "b")
    assert rig.statuses() == [
        ("one", "public.b", "STOPPED"),
        ("one", "public.a", "SUCCEEDED"),
        ("one", "public.c", "STOPPED"),
    ]
    assert [n["id"] for n in rig.told("ABORTED")] == ["one"]
    rig.check("a")


def test_pause_and_resume(rig: Rig) -> None:
    """Nothing is in flight meanwhile, the stream goes on, and so does the walk, from its cursor."""
    ask(rig, EXECUTE, "one", data_collections=["public.a"])
    rig.run(until=lambda r: len(r.reads) >= 20)
    ask(rig, PAUSE, "wait")
    settle(rig, "wait")
    read = len(rig.reads)
    rig.database.execute("UPDATE a SET v = 'meanwhile' WHERE id IN (1, 60)")
    rig.run(until=lambda r: (60,) in r.target["public.a"])
    assert Snapshot.from_json(rig.snapshot).since is None
    assert len(rig.reads) == read
    rig.crash()
    ask(rig, RESUME, "on", "table")
    settle(rig, "on")
    rig.run()
    rig.check("a")
    assert read_ids(rig, "a") == list(range(1, 61))
    assert [(n["type"], n["id"]) for n in rig.told() if n["type"] in ("PAUSED", "RESUMED")] == [
        ("PAUSED", "one"),
        ("RESUMED", "one"),
    ]


def test_log_and_malformed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be understood is reported and skipped."""
    with caplog.at_level(logging.WARNING, "tidelog"):
        ask(rig, "log", "l", "table", message="hello at {}")
        ask(rig, "execute-snapshots", "m1", "table", data_collections=["public.a"])
        ask(rig, EXECUTE, "m2", data_collections="public.a")
        ask(rig, EXECUTE, "m3", data_collections=["("])
        Path(rig.source["signal.file"]).write_text("no JSON at all\n")
        rig.database.execute("INSERT INTO signals VALUES ('m4', 'execute-snapshot', '{')")
        settle(rig, "m4")
        rig.run()
    told = caplog.text
    assert "hello at " in told
    assert "hello at {}" not in told
    for id in ("m1", "m2", "m3", "m4", "this line is not JSON"):
        assert told.count(id) == 1, id
    assert not rig.reads
    assert {n["type"] for n in rig.told()} == {"MALFORMED"}
    assert {"m1", "m2", "m3", "m4"} < {n["id"] for n in rig.told()}
    assert all(n["additional_data"]["reason"] for n in rig.told())


def test_a_table_that_is_not_captured(rig: Rig) -> None:
    ask(rig, EXECUTE, "one", data_collections=["public.nothing"])
    settle(rig, "one")
    rig.run()
    (told,) = rig.told("SKIPPED")
    assert told["id"] == "one"
    assert told["additional_data"]["data_collections"] == "public.nothing"
    assert told["additional_data"]["reason"] == "no captured table matches"


def test_a_table_that_is_not_captured_beside_one_that_is(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and the other one is read; a condition for it may be there."""
    conditions = [{"data-collection": name, "filter": "id <= 5"} for name in ("public.a", "public.nothing")]
    with caplog.at_level(logging.WARNING, "tidelog"):
        ask(
            rig,
            EXECUTE,
            "one",
            data_collections=["public.nothing", "public.a"],
            additional_conditions=conditions,
        )
        settle(rig, "one")
        rig.run()
    assert rig.statuses() == [("one", "public.nothing", "SKIPPED"), ("one", "public.a", "SUCCEEDED")]
    assert read_ids(rig, "a") == [1, 2, 3, 4, 5]
    assert caplog.text.count("no captured table matches: public.nothing") == 1


def test_a_condition_for_another_table(rig: Rig) -> None:
    """Nothing is read: all rows are not what was asked for."""
    conditions = [{"data-collection": "publik.a", "filter": "id <= 5"}]
    ask(rig, EXECUTE, "one", data_collections=["public.a"], additional_conditions=conditions)
    settle(rig, "one")
    rig.run()
    assert not rig.reads
    (told,) = rig.told("SKIPPED")
    assert told["additional_data"]["reason"].startswith("the condition for publik.a concerns none of the tables")


def test_a_condition_is_part_of_the_estimate(rig: Rig) -> None:
    rig.database.execute("ANALYZE a")
    conditions = [{"data-collection": "public.a", "filter": "id <= 30 -- the first half"}]
    ask(rig, EXECUTE, "one", data_collections=["public.a"], additional_conditions=conditions)
    ask(rig, EXECUTE, "two", data_collections=["public.a"])
    settle(rig, "two")
    rig.run()
    for id, least, most in (("one", 25, 35), ("two", 60, 60)):  # the planner counts by a histogram
        told = {n["additional_data"]["estimated_rows"] for n in rig.told("IN_PROGRESS") if n["id"] == id}
        assert len(told) == 1
        assert least <= int(told.pop()) <= most
    ends = [n["additional_data"] for n in rig.told("TABLE_SCAN_COMPLETED")]
    assert [(end["percent"], end["seconds_left"]) for end in ends] == [("100.0", "0")] * 2


def test_a_restart_tells_nothing_again(rig: Rig) -> None:
    ask(rig, EXECUTE, "one", data_collections=["public.a"])
    settle(rig, "one")
    rig.run()
    told = rig.told()
    rig.crash()
    rig.run()
    assert rig.told() == told


def test_blocking(rig: Rig) -> None:
    """No event of the log is delivered until the table is, then all are."""
    ask(rig, EXECUTE, "one", data_collections=["public.a"], type="blocking")
    settle(rig, "one")

    def shout() -> None:
        rig.database.execute("UPDATE c SET v = v || '!' WHERE id = 1")

    rig.hooks.read = shout
    rig.database.execute("UPDATE a SET v = 'early' WHERE id = 60")
    while not finished(rig):
        rig.batch()
        assert finished(rig) or not rig.target["public.c"]
    assert read_ids(rig, "a") == list(range(1, 61))
    rig.run()
    rig.check("a")
    assert rig.target["public.c"][(1,)]["v"].count("!") == 4
    assert [n["aggregate_type"] for n in rig.told("COMPLETED")] == ["Initial Snapshot"]


@pytest.mark.parametrize(
    ("setting", "value", "windows"),
    [
        ("column.include.list", "public\\.a\\.(id|v)", "insert_insert"),
        ("column.exclude.list", ".*\\.data", "insert_delete"),
        ("column.mask.with.8.chars", ".*\\.(type|data)", "insert_insert"),
        ("skipped.operations", "c,d", "insert_delete"),
    ],
)
def test_signals_are_never_filtered(database: Database, tmp_path: Path, setting: str, value: str, windows: str) -> None:
    """Whatever is left out, masked or skipped elsewhere: a signal is read as it was written, and windows close."""
    tables(database)
    more = {setting: value, "read.only": "false", "incremental.snapshot.watermarking.strategy": windows}
    with rig_for(database, tmp_path, more) as rig:
        rig.run()
        ask(rig, EXECUTE, "one", "table", data_collections=["public.a"])
        settle(rig, "one")
        rig.run()
        assert read_ids(rig, "a") == list(range(1, 61))


def test_a_table_that_is_not_published_yet(database: Database, tmp_path: Path) -> None:
    """Its rows would come, and never its changes: it is refused until the next start, which publishes it."""
    tables(database)
    with rig_for(database, tmp_path, {}) as rig:
        rig.run()
        database.execute("CREATE TABLE late (id int PRIMARY KEY, v text)")
        database.execute("INSERT INTO late SELECT i, 'l' || i FROM generate_series(1, 30) i")
        ask(rig, EXECUTE, "both", data_collections=["public.a", "public.late"])
        settle(rig, "both")
        ask(rig, EXECUTE, "late", data_collections=["public.late"])
        settle(rig, "late")
        rig.run()
        assert not read_ids(rig, "late")
        assert sorted(rig.statuses()) == [("both", "public.a", "SUCCEEDED"), ("both", "public.late", "SKIPPED")]
        assert [n["id"] for n in rig.told("SKIPPED")] == ["late"]
        rig.crash()
        ask(rig, EXECUTE, "again", data_collections=["public.late"])
        settle(rig, "again")
        database.execute("UPDATE late SET v = 'changed' WHERE id = 7")
        database.execute("DELETE FROM late WHERE id = 8")
        rig.run()
        rig.check("late")


def published_by_hand(database: Database) -> dict[str, str]:
    database.execute("CREATE PUBLICATION mine FOR TABLE a, b, c, signals")
    return {"publication.autocreate.mode": "disabled", "publication.name": "mine"}


def test_a_new_table_waits_for_transactions_older_than_its_publication(database: Database, tmp_path: Path) -> None:
    """What they wrote before it was published is in no log: the chunk must see it."""
    tables(database)
    with rig_for(database, tmp_path, published_by_hand(database)) as rig:
        rig.run()
        database.execute("CREATE TABLE late (id int PRIMARY KEY, v text)")
        with database.connect() as open_one:
            open_one.execute("BEGIN")
            open_one.execute("INSERT INTO late VALUES (1, 'old')")
            database.execute("ALTER PUBLICATION mine ADD TABLE late")
            ask(rig, EXECUTE, "one", data_collections=["public.late"])
            settle(rig, "one")
            for _ in range(5):
                rig.batch()
            assert not rig.told("COMPLETED")
            open_one.execute("COMMIT")
        rig.run()
        rig.check("late")


def test_a_table_that_others_have_not_published_waits_for_a_later_start(database: Database, tmp_path: Path) -> None:
    """What was read of it would never change again."""
    tables(database)
    database.execute("CREATE TABLE late (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO late SELECT i, 'l' || i FROM generate_series(1, 30) i")
    more = {**published_by_hand(database), "snapshot.mode": "initial"}
    with rig_for(database, tmp_path, more) as rig:
        rig.run()
        assert not read_ids(rig, "late")
        assert ("initial", "public.late", "SKIPPED") in rig.statuses()
        assert ("initial", "public.a", "SUCCEEDED") in rig.statuses()
        rig.crash()
        rig.run()  # it still is not
        assert not read_ids(rig, "late")
        rig.crash()
        database.execute("ALTER PUBLICATION mine ADD TABLE late")
        rig.run()
        database.execute("UPDATE late SET v = 'changed' WHERE id = 7")
        rig.run()
        rig.check("late")


def test_a_publication_without_any_captured_table_is_an_error(database: Database, tmp_path: Path) -> None:
    tables(database)
    more = {**published_by_hand(database), "table.include.list": "public.late", "snapshot.mode": "initial"}
    database.execute("CREATE TABLE late (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO late VALUES (1, 'one')")
    with rig_for(database, tmp_path, more) as rig:
        with pytest.raises(ConfigError, match=r"It lacks public\.late: their changes do not arrive"):
            rig.run()
        database.execute("ALTER PUBLICATION mine ADD TABLE late")
        rig.run()
        rig.check("late")


def test_a_table_of_signals_that_is_not_published_is_told(database: Database, tmp_path: Path) -> None:
    tables(database)
    database.execute("CREATE PUBLICATION mine FOR TABLE a, b, c")
    more = {"publication.autocreate.mode": "disabled", "publication.name": "mine"}
    with (
        rig_for(database, tmp_path, more) as rig,
        pytest.raises(
            ConfigError, match=r'no signal would ever arrive.*ALTER PUBLICATION "mine" ADD TABLE .*"signals"'
        ),
    ):
        rig.run()
    database.execute("ALTER PUBLICATION mine ADD TABLE signals")
    with rig_for(database, tmp_path, more) as rig:
        rig.run()


def test_a_table_left_out_is_not_read_on(database: Database, tmp_path: Path) -> None:
    """Also where no table is read by itself."""
    tables(database)
    with rig_for(database, tmp_path, {}) as rig:
        ask(rig, EXECUTE, "one", data_collections=["public.a"])
        rig.run(until=lambda r: len(r.reads) >= 10)
        rig.crash()
        read = len(rig.reads)
        rig.source["table.exclude.list"] = "public\\.a"
        rig.run()
        assert len(rig.reads) == read
        assert rig.statuses() == [("one", "public.a", "STOPPED")]


def test_a_table_that_ddl_holds_stops_nothing_else(database: Database, tmp_path: Path) -> None:
    tables(database)
    with rig_for(database, tmp_path, {}) as rig:
        rig.run()
        with database.connect() as ddl:
            ddl.execute("BEGIN")
            ddl.execute("LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
            ask(rig, EXECUTE, "one", data_collections=["public.a"])
            settle(rig, "one")
            database.execute("INSERT INTO b VALUES (1000, 'meanwhile', 0)")
            rig.run(until=lambda r: (1000,) in r.target["public.b"])
            assert not read_ids(rig, "a")
        rig.run()
        rig.check("a")


def test_a_signal_that_waits_while_everything_is_read_anew(database: Database, tmp_path: Path) -> None:
    """At a start that reads all tables anyway, what the log has asked meanwhile is followed too."""
    tables(database)
    with rig_for(database, tmp_path, {"snapshot.mode": "always"}) as rig:
        rig.run()
        rig.crash()
        ask(rig, EXECUTE, "one", "table", data_collections=["public.a"])
        rig.run(until=lambda r: "one" in r.snapshot.get("handled", ()))
        rig.run()
        assert ("one", "public.a", "SUCCEEDED") in rig.statuses()


def test_a_blocking_snapshot_that_waits_itself_does_not_stop_the_stream(database: Database, tmp_path: Path) -> None:
    """And a table that is new to the log waits for the same transactions, however often it is asked for."""
    tables(database)
    with rig_for(database, tmp_path, published_by_hand(database)) as rig:
        rig.run()
        database.execute("CREATE TABLE late (id int PRIMARY KEY, v text)")
        database.execute("INSERT INTO late VALUES (1, 'one')")
        with database.connect() as old:
            old.execute("BEGIN")
            old.execute("INSERT INTO b VALUES (2000, 'open', -1)")
            database.execute("ALTER PUBLICATION mine ADD TABLE late")
            ask(rig, EXECUTE, "one", data_collections=["public.late"], type="blocking")
            settle(rig, "one")
            database.execute("INSERT INTO b VALUES (1000, 'meanwhile', 0)")
            rig.run(until=lambda r: (1000,) in r.target["public.b"])
            assert not read_ids(rig, "late")
            old.execute("COMMIT")
        rig.run()
        rig.check("late")
        with database.connect() as younger:
            younger.execute("BEGIN")
            younger.execute("INSERT INTO b VALUES (3000, 'younger', -2)")
            ask(rig, EXECUTE, "two", data_collections=["public.late"])
            rig.run(until=lambda r: ("two", "public.late", "SUCCEEDED") in r.statuses())
