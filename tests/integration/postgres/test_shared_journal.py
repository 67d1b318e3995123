"""One journal, several pipelines: two databases of one server have the same positions, and must not meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import fresh
from tests.integration.postgres.world import World, catch_up
from tests.servers import Database, Postgres
from tidelog.engine.apart import run_apart
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.errors import ConfigError


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "shared")}


@pytest.fixture
def mine(world: World, shared: dict[str, str]) -> World:
    """With a row in its table, which is in the journal."""
    world.journal = shared
    world.database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = world.reading()
    start = reading.initial()
    world.database.execute("INSERT INTO t VALUES (1)")
    _, events = catch_up(reading, start)
    assert [e.row["id"] for e in events] == [1]
    reading.close()
    return world


@pytest.fixture
def other(postgres: Postgres, tmp_path: Path, shared: dict[str, str]) -> Iterator[World]:
    """A pipeline on another database of the same server."""
    for database in fresh(postgres):
        made = World(database, tmp_path / "other", journal=shared)
        yield made
        made.close()


def slots(database: Database) -> list[str]:
    sql = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
    return [name for (name,) in database.server.execute(sql, [database.dbname])]


def test_the_journal_of_another_pipeline_is_refused(mine: World, other: World) -> None:
    with pytest.raises(ConfigError, match=r"belongs to the pipeline 'pipeline' .* journal\.path of its own"):
        other.reading().initial()
    assert slots(other.database) == [], "nothing is left that would hold back the server's log"
    assert slots(mine.database) != []


def test_a_capture_apart_is_refused_too(mine: World, other: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(mine.folder.parent / "homes"))
    with pytest.raises(ConfigError, match="belongs to the pipeline 'pipeline'"):
        run_apart(other.definition, threading.Event())
    assert slots(other.database) == []


def test_a_query_of_another_database_does_not_follow_it(mine: World, other: World) -> None:
    other.stream = {"capture": "apart"}
    start = mine.reading().initial()
    with pytest.raises(ConfigError, match=r"belongs to the pipeline 'pipeline'.*this query is of postgres"):
        other.reading().latest(start, None, None)


def test_the_same_name_on_another_database_is_refused(mine: World, other: World) -> None:
    other.folder = mine.folder.parent / "moved" / mine.folder.name
    other.folder.parent.mkdir()
    with pytest.raises(ConfigError, match=f"not to the pipeline 'pipeline' .*{other.database.dbname}"):
        other.reading().initial()


def test_a_pipeline_may_move_and_its_host_be_renamed(mine: World, tmp_path: Path) -> None:
    mine.source["database.hostname"] = "localhost" if mine.database.host != "localhost" else "127.0.0.1"
    home = Home(tmp_path / "elsewhere" / mine.folder.name)
    home.path.mkdir(parents=True)
    moved = Reading(mine.definition, home)
    mine.runs.append(moved)
    mine.database.execute("INSERT INTO t VALUES (2)")
    _, events = catch_up(moved, moved.initial())
    assert [e.row["id"] for e in events][-1] == 2


def test_what_nobody_claimed_belongs_to_who_comes_first(mine: World, other: World) -> None:
    """Journals of older versions, and those whose file a loss of power has torn."""
    file = Path(mine.journal["path"]) / "owner.json"
    for claim in (file.unlink, lambda: file.write_bytes(b"")):
        claim()
        reading = mine.reading()
        reading.latest(reading.initial(), None, None)
        reading.close()
        with pytest.raises(ConfigError, match="belongs to the pipeline 'pipeline'"):
            other.reading().initial()
