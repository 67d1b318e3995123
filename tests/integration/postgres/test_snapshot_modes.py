"""Which rows a start asks for: by mode, and where the lists of tables were changed meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.integration.postgres.snapshot_rig import Rig
from tests.servers import Database
from tidelog.engine.signals import send
from tidelog.model.schema import Table


def _tables(database: Database, folder: Path, **source: str) -> Rig:
    for name in "ab":
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {name} SELECT i, '{name}' || i FROM generate_series(1, 30) i")
    settings = {"incremental.snapshot.chunk.size": "10", **{k.replace("_", "."): v for k, v in source.items()}}
    return Rig(database, folder / "pipeline", settings)


def _read(rig: Rig, table: str) -> int:
    return sum(name == f"public.{table}" for name, _ in rig.reads)


@pytest.mark.parametrize("mode", ["initial", "initial_only", "when_needed"])
def test_at_the_first_start(database: Database, tmp_path: Path, mode: str) -> None:
    with _tables(database, tmp_path, snapshot_mode=mode) as rig:
        rig.run()
        rig.crash()
        rig.run()
        assert (_read(rig, "a"), _read(rig, "b")) == (30, 30)
        rig.check("a")
        assert rig.statuses() == [("initial", "public.a", "SUCCEEDED"), ("initial", "public.b", "SUCCEEDED")]


def test_no_data(database: Database, tmp_path: Path) -> None:
    with _tables(database, tmp_path, snapshot_mode="no_data") as rig:
        rig.run()
        database.execute("UPDATE a SET v = 'new' WHERE id = 3")
        rig.crash()
        rig.run()
        assert not rig.reads
        assert list(rig.target["public.a"]) == [(3,)]


def test_always(database: Database, tmp_path: Path) -> None:
    """At every start, but not twice when a crash interrupts one."""
    with _tables(database, tmp_path, snapshot_mode="always") as rig:
        rig.run(until=lambda r: _read(r, "a") > 0)
        rig.crash()
        rig.run()
        assert (_read(rig, "a"), _read(rig, "b")) == (30, 30)
        rig.crash()
        rig.run(until=lambda r: _read(r, "a") > 30)
        rig.run()
        assert (_read(rig, "a"), _read(rig, "b")) == (60, 60)
        rig.check("a")
        assert _last(rig) == ["public.b", "public.b"]


@pytest.mark.parametrize("file", ["stays", "is lost", "is torn"])
def test_rows_that_are_gone_leave_whatever_becomes_of_the_file_of_keys(
    database: Database, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And rows that came since it was written stay."""
    with _tables(database, tmp_path, snapshot_mode="always") as rig:
        rig.run()
        rig.crash()
        rig.target["public.a"][(99,)] = {"id": 99, "v": "nobody knows it"}
        written, due, kept = [1000], [], set()

        def write() -> None:
            written.append(written[-1] + 1)
            database.execute(f"INSERT INTO a VALUES ({written[-1]}, 'new')")
            rig.catch_up()

        def spoil() -> None:
            emitting = rig.log[-1][1].get("tidelog_snapshot", {}).get("emitting", ())
            if due or not any(e["chunk"].get("keys") and e["entry"]["table"] == "public.a" for e in emitting):
                return
            due.extend(written[1:])
            for path in (rig.folder / "journal" / "chunks").glob("*/*.arrow"):
                content = path.read_bytes()
                if file != "stays":
                    path.unlink()
                if file == "is torn":
                    path.write_bytes(content[: len(content) // 2])

        def sweep(rows: list[Any]) -> None:
            if Table.from_json(rows[0]["table"]).name == "a":
                kept.update(key["id"] for row in rows if row["path"] for key in rig._load(row).to_pylist())
            Rig._sweep(rig, rows)

        rig.hooks.staged, rig.hooks.planned = write, spoil
        monkeypatch.setattr(rig, "_sweep", sweep)
        rig.run()
        assert due
        assert kept >= {*range(1, 31), *due}
        rig.check("a")


def _last(rig: Rig) -> list[str]:
    """The tables of the chunks whose last row is the last of a whole snapshot."""
    emissions = [e for _, end in rig.log for e in end.get("tidelog_snapshot", {}).get("emitting", ())]
    return [e["entry"]["table"] for e in emissions if e.get("last") and not e["chunk"].get("keys")]


def test_stopping_the_first_snapshot_is_told(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not come again by itself; who wants its rows asks for them."""
    with _tables(database, tmp_path) as rig:
        rig.run(until=lambda r: _read(r, "a") >= 10)
        with caplog.at_level(logging.WARNING, "tidelog"):
            send(rig.folder / "signals", "stop-snapshot", {}, "stop")
            rig.run()
        ended = {n["additional_data"]["scanned_collection"]: n for n in rig.told("TABLE_SCAN_COMPLETED")}
        assert ended["public.b"]["additional_data"]["reason"] == "rows of the initial snapshot were not read"
        assert "`tidelog snapshot pipeline public." in caplog.text
        send(rig.folder / "signals", "execute-snapshot", {"data-collections": ["public.[ab]"]}, "again")
        rig.run(until=lambda r: "again" in r.snapshot.get("handled", ()))
        rig.run()
        rig.check("a")
        rig.check("b")


def test_a_table_that_is_newly_covered(database: Database, tmp_path: Path) -> None:
    """What was written before the table was published, and is committed later, stands nowhere in the log:
    its snapshot waits for that."""
    with _tables(database, tmp_path, table_include_list="public.a") as rig:
        rig.run()
        rig.crash()
        rig.source["table.include.list"] = "public.a,public.b"
        with database.connect(autocommit=False) as long:
            long.execute("UPDATE b SET v = 'long' WHERE id % 3 = 0")
            long.execute("INSERT INTO b VALUES (100, 'long')")
            for _ in range(6):
                rig.batch()
            assert [e["table"] for e in rig.snapshot["entries"]] == ["public.b"]
            assert not _read(rig, "b")
            database.execute("UPDATE a SET v = 'meanwhile' WHERE id = 1")
            rig.run(until=lambda r: r.target["public.a"][(1,)]["v"] == "meanwhile")
            long.commit()
        rig.run()
        rig.check("a")
        rig.check("b")
        assert (_read(rig, "a"), _read(rig, "b")) == (30, 31)
        assert rig.statuses()[-1][1:] == ("public.b", "SUCCEEDED")


def test_a_table_that_is_no_longer_covered(database: Database, tmp_path: Path) -> None:
    """It leaves the queue, and what is left goes on where it was."""
    with _tables(database, tmp_path) as rig:
        rig.run(until=lambda r: _read(r, "a") >= 10)
        rig.crash()
        rig.source["table.include.list"] = "public.b"
        rig.run()
        assert _read(rig, "a") < 30
        rig.check("b")
        assert ("initial", "public.a", "STOPPED") in rig.statuses()
        assert ("initial", "public.b", "SUCCEEDED") in rig.statuses()
