"""What an administrator does to the publication while the pipeline runs or is down: nothing is lost silently."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.postgres.snapshot_rig import Crash, Rig
from tests.integration.postgres.snapshot_writers import times
from tests.servers import DATABASES, Database
from tidelog.engine.jumps import Jump
from tidelog.errors import ConfigError
from tidelog.spark.source import JUMP

Steps = Callable[[Database, str], None]


def tables(database: Database, folder: Path, **source: str) -> Rig:
    for name in "ab":
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {name} SELECT i, '{name}' || i FROM generate_series(1, 20) i")
    settings = {name.replace("_", "."): text for name, text in source.items()}
    return Rig(database, folder / "pipeline", settings)


def change(database: Database, table: str = "a") -> None:
    """One change of each kind."""
    database.execute(f"INSERT INTO {table} VALUES (100, 'inserted')")
    database.execute(f"UPDATE {table} SET v = 'updated' WHERE id = 5")
    database.execute(f"DELETE FROM {table} WHERE id = 7")


def drop_and_add(database: Database, publication: str) -> None:
    database.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
    change(database)
    database.execute(f"ALTER PUBLICATION {publication} ADD TABLE a")


def drop_and_create(database: Database, publication: str) -> None:
    database.execute(f"DROP PUBLICATION {publication}")
    change(database)
    change(database, "b")
    database.execute(f"CREATE PUBLICATION {publication} FOR TABLE a, b WITH (publish_via_partition_root)")


def publish_inserts(database: Database, publication: str) -> None:
    database.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert')")
    change(database)
    database.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")


def filter_rows(database: Database, publication: str) -> None:
    database.execute(f"ALTER PUBLICATION {publication} SET TABLE a WHERE (id > 50), b")
    change(database)
    database.execute(f"ALTER PUBLICATION {publication} SET TABLE a, b")


def drop_only(database: Database, publication: str) -> None:
    """The next start publishes the table itself."""
    database.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
    change(database)


STEPS = [drop_and_add, drop_and_create, publish_inserts, filter_rows]


@pytest.mark.parametrize("steps", [*STEPS, drop_only])
def test_a_table_that_was_not_published_while_the_pipeline_was_down(
    database: Database, tmp_path: Path, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        steps(database, rig.options["publication.name"])
        with caplog.at_level("WARNING", "tidelog"):
            rig.run()
        rig.check("a")
        rig.check("b")
        assert (7,) not in rig.target["public.a"]
    assert "public.a" in caplog.text


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is asked before every batch, and not every few seconds."""
    monkeypatch.setattr("tidelog.engine.coverage._LOOK_AGAIN_S", 0.0)


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("steps", STEPS)
def test_a_table_that_was_not_published_while_the_pipeline_ran(
    database: Database, tmp_path: Path, steps: Steps
) -> None:
    """Nobody looked in between: what is there afterwards tells of it."""
    with tables(database, tmp_path) as rig:
        rig.run()
        steps(database, rig.options["publication.name"])
        rig.run()
        rig.check("a")
        rig.check("b")


@pytest.mark.usefixtures("looks_always")
def test_a_table_that_leaves_the_publication_is_told_of_at_once(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tables(database, tmp_path) as rig, caplog.at_level("WARNING", "tidelog"):
        rig.run()
        publication = rig.options["publication.name"]
        database.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
        rig.run()
        rig.run()
        told = [r.getMessage() for r in caplog.records if "public.a" in r.getMessage()]
        assert len(told) == 1
        assert "are not captured any more" in told[0]
        change(database)
        database.execute(f"ALTER PUBLICATION {publication} ADD TABLE a")
        rig.run()
        rig.check("a")
        assert "is read again" in caplog.text


def test_the_reading_waits_for_transactions_that_the_log_may_leave_out(database: Database, tmp_path: Path) -> None:
    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        publication = rig.options["publication.name"]
        database.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
        with database.connect(autocommit=False) as long:
            long.execute("UPDATE a SET v = 'long' WHERE id % 3 = 0")
            database.execute(f"ALTER PUBLICATION {publication} ADD TABLE a")
            for _ in range(6):
                rig.batch()
            assert [entry["table"] for entry in rig.snapshot["entries"]] == ["public.a"]
            long.commit()
        rig.run()
        rig.check("a")


@pytest.mark.parametrize("hook", ["planned", "executed", "applied"])
def test_a_crash_on_the_way(database: Database, tmp_path: Path, hook: str) -> None:
    def crash() -> None:
        raise Crash

    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        drop_and_add(database, rig.options["publication.name"])
        setattr(rig.hooks, hook, times(crash, 1))
        assert rig.survive() == 1
        rig.check("a")
        assert sum(name == "public.b" for name, _ in rig.reads) == 20


def test_a_table_that_a_start_finds_unpublished(database: Database, tmp_path: Path) -> None:
    """It is left out; a later start that finds it published again reads it, and rows that went meanwhile go."""
    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        rig.source["publication.autocreate.mode"] = "disabled"
        publication = rig.options["publication.name"]
        database.execute(f"ALTER PUBLICATION {publication} DROP TABLE a")
        change(database)
        change(database, "b")
        rig.run()
        rig.check("b")
        rig.crash()
        database.execute(f"ALTER PUBLICATION {publication} ADD TABLE a")
        rig.run()
        rig.check("a")


def test_a_table_that_the_settings_left_out_for_a_while(database: Database, tmp_path: Path) -> None:
    with tables(database, tmp_path) as rig:
        rig.run()
        for lists in ({"table.include.list": "public.b"}, {}):
            rig.crash()
            rig.source = lists
            if lists:
                change(database)
            rig.run()
        rig.check("a")


def test_without_snapshots_the_command_is_told(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tables(database, tmp_path, snapshot_mode="no_data") as rig:
        rig.run()
        rig.crash()
        drop_and_add(database, rig.options["publication.name"])
        with caplog.at_level("WARNING", "tidelog"):
            rig.run()
        assert not rig.reads
    assert "`tidelog snapshot pipeline public.a` reads its rows" in caplog.text


def test_a_table_that_leaves_a_published_schema(database: Database, tmp_path: Path) -> None:
    with tables(database, tmp_path, publication_autocreate_mode="disabled") as rig:
        publication = rig.options["publication.name"]
        database.execute("CREATE SCHEMA other")
        database.execute(f"CREATE PUBLICATION {publication} FOR TABLES IN SCHEMA public")
        rig.run()
        rig.crash()
        database.execute("ALTER TABLE a SET SCHEMA other")
        change(database, "other.a")
        database.execute("ALTER TABLE other.a SET SCHEMA public")
        rig.run()
        rig.check("a")
        rig.check("b")


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("running", [False, True])
def test_a_table_that_was_unlogged_for_a_while(database: Database, tmp_path: Path, running: bool) -> None:
    """The server allows it where a publication does not name the table."""
    with tables(database, tmp_path, publication_autocreate_mode="all_tables") as rig:
        rig.run()
        if not running:
            rig.crash()
        database.execute("ALTER TABLE a SET UNLOGGED")
        rig.run()
        change(database)
        database.execute("ALTER TABLE a SET LOGGED")
        rig.run()
        rig.check("a")


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("away", ["RENAME TO elsewhere", "SET SCHEMA other"])
def test_a_table_that_had_another_name_for_a_while(
    database: Database, tmp_path: Path, away: str, running: bool
) -> None:
    """The log tells of its changes under a name that is not captured."""
    back = {"RENAME TO elsewhere": "elsewhere RENAME TO a", "SET SCHEMA other": "other.a SET SCHEMA public"}[away]
    with tables(database, tmp_path, table_include_list=r"public\.[ab]") as rig:
        database.execute("CREATE SCHEMA other")
        rig.run()
        if not running:
            rig.crash()
        database.execute(f"ALTER TABLE a {away}")
        change(database, back.split(" ")[0])
        database.execute(f"ALTER TABLE {back}")
        rig.run()
        rig.check("a")


@pytest.mark.parametrize("fixture", DATABASES)
def test_on_each_version(request: pytest.FixtureRequest, tmp_path: Path, fixture: str) -> None:
    """And what the server does to its own catalog is taken for no change."""
    database: Database = request.getfixturevalue(fixture)
    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        drop_and_add(database, rig.options["publication.name"])
        rig.run()
        rig.check("a")
        database.execute("VACUUM FULL pg_publication, pg_publication_rel")
        database.execute("VACUUM FREEZE pg_publication, pg_publication_rel")
        seen = len(rig.reads)
        rig.crash()
        rig.run()
        assert len(rig.reads) == seen


@pytest.mark.parametrize("version", ["database", "database16"])
@pytest.mark.parametrize("created_again", [False, True])
def test_the_cure_for_a_dropped_publication_helps(
    request: pytest.FixtureRequest, tmp_path: Path, version: str, created_again: bool
) -> None:
    """Before PostgreSQL 18 the server can't decode what was written meanwhile, even if the publication is there again;
    since 18 the tables are read again."""
    database: Database = request.getfixturevalue(version)
    with tables(database, tmp_path) as rig:
        rig.run()
        rig.crash()
        publication = rig.options["publication.name"]
        if created_again:
            drop_and_create(database, publication)
        else:
            database.execute(f"DROP PUBLICATION {publication}")
            change(database)
        if not (created_again and database.server.version == 18):
            with pytest.raises(ConfigError, match="publication") as refused:
                rig.run()
            assert "then `tidelog offsets delete`" in refused.value.hint
            rig.crash()
            (cure,) = re.findall(r"SELECT pg_drop_replication_slot\('\w+'\);", refused.value.hint)
            database.execute(cure)
            rig.source[JUMP] = Jump(1, None).to_json()
        rig.run()
        rig.check("a")
        rig.check("b")
