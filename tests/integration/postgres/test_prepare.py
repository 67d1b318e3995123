"""What `prepare` leaves behind on the server when it fails: nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.postgres.test_check import config
from tests.servers import Database, Postgres
from tidelog.connectors.postgres.connector import PostgresConnector
from tidelog.errors import ConfigError, PositionLost, TransientError

PUBLICATIONS = "SELECT count(*) FROM pg_publication"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [({"wal_level": "replica"}, "wal_level is replica"), ({"max_replication_slots": 0}, "All 0 replication slots")],
)
def test_nothing_is_created_where_no_slot_can_be(setting: dict[str, object], sentence: str) -> None:
    with Postgres.start(18, settings=setting) as server:
        database = server.create_database("without_slots")
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with pytest.raises(ConfigError, match=sentence) as refused:
            PostgresConnector(config(database)).prepare()
        assert refused.value.hint.startswith(f"ALTER SYSTEM SET {next(iter(setting))}")
        assert database.execute(PUBLICATIONS) == [(0,)]


@pytest.fixture
def hasty(database: Database) -> Iterator[Database]:
    """A role that waits for nobody, while a transaction is open that a new slot has to wait for."""
    database.execute("CREATE ROLE hasty LOGIN SUPERUSER PASSWORD 'limited'")
    database.execute("ALTER ROLE hasty SET lock_timeout = '100ms'")
    with database.connect(autocommit=False) as writer:
        writer.execute("CREATE TABLE unfinished (id int)")
        yield database
        writer.rollback()
    database.execute("DROP OWNED BY hasty")
    database.execute("DROP ROLE hasty")


@pytest.mark.parametrize("mode", ["filtered", "all_tables"])
def test_the_publication_goes_when_its_slot_is_not_created(hasty: Database, mode: str) -> None:
    hasty.execute("CREATE TABLE t (id int PRIMARY KEY)")
    options = {"database__user": "hasty", "database__password": "limited", "publication__autocreate__mode": mode}
    with pytest.raises(TransientError, match="lock timeout"):
        PostgresConnector(config(hasty, **options)).prepare()
    assert hasty.execute(PUBLICATIONS) == [(0,)]


def test_a_publication_that_was_there_stays(hasty: Database) -> None:
    hasty.execute("CREATE TABLE t (id int PRIMARY KEY)")
    wanted = config(hasty, database__user="hasty", database__password="limited")
    hasty.execute(f"CREATE PUBLICATION {wanted.publication} FOR TABLE t")
    with pytest.raises(TransientError, match="lock timeout"):
        PostgresConnector(wanted).prepare()
    assert hasty.execute(PUBLICATIONS) == [(1,)]


@pytest.mark.parametrize(
    ("resuming", "sentence"), [(False, "no change would ever arrive"), (True, "since the publication was dropped")]
)
def test_a_publication_that_others_make_has_to_be_there(database: Database, resuming: bool, sentence: str) -> None:
    """PostgreSQL 18 would stream nothing without it, and say nothing."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    connector = PostgresConnector(config(database, publication__autocreate__mode="disabled"))
    if resuming:
        database.execute(f"CREATE PUBLICATION {connector._config.publication} FOR TABLE t")
        connector.prepare()
        database.execute(f"DROP PUBLICATION {connector._config.publication}")
    with pytest.raises(ConfigError, match=sentence):
        connector.prepare(resuming=resuming)
    slots = database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()")
    assert slots == [(int(resuming),)]


def test_a_lost_slot_publishes_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(PositionLost):
        PostgresConnector(config(database)).prepare(resuming=True)
    assert database.execute(PUBLICATIONS) == [(0,)]
