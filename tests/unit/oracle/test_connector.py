"""The connector over a simulated database: where a capture starts, what its offsets say, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.oracle.database import Database
from tests.oracle.driver import Server
from tests.oracle.literals import Column
from tidelog.connectors.oracle import client, offset, position
from tidelog.connectors.oracle.buffered import BufferedTail
from tidelog.connectors.oracle.connector import OracleConnector, create
from tidelog.connectors.oracle.unbuffered import UnbufferedTail
from tidelog.contracts import Kept
from tidelog.errors import ConfigError, PositionLost

COLUMNS = [Column("ID", "NUMBER", 22, 10, 0, nullable=False), Column("NAME", "VARCHAR2", 100)]
Make = Callable[..., OracleConnector]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database(Random(1), first=1000)
    database.create("SHOP", "ORDERS", COLUMNS, ["ID"])
    database.redo.advance(50)
    monkeypatch.setattr(client, "CONNECT", Server(database).connect)
    return database


@pytest.fixture
def make(database: Database) -> Make:  # noqa: ARG001  it has to be there
    def made(**options: str) -> OracleConnector:
        given = {name.replace("_", "."): value for name, value in options.items()}
        return create({"database.user": "c##tide", "database.dbname": "FREE", "schema.include.list": "SHOP", **given})

    return made


def test_a_first_start_knows_what_is_open(database: Database, make: Make) -> None:
    older, newer = database.begin(1), database.begin(1)
    connector = make()
    start = connector.prepare()
    document = connector.document(start, 0, 0)
    scn = position.scn_of(start)
    begun = f"{older.work.hex}:{older.work.start_scn},{newer.work.hex}:{newer.work.start_scn}"
    assert document == {
        "scn": str(older.work.start_scn - 1),
        "commit_scn": None,
        "snapshot_scn": str(scn),
        "snapshot_pending_tx": begun,
    }
    assert offset.DOCUMENT.problems(document) == ()
    assert connector.through(position.of_scn(scn)) == start
    connector.close()


def test_offsets_of_other_connectors_are_understood(make: Make) -> None:
    connector = make()
    document = {"scn": "1020", "commit_scn": "1040:1:0a00140012345678,1030:2:"}
    assert connector.position_of(document) == position.of_scn(1030)
    assert connector.document(0, 0, 0, '{"scn":"1020","commit_scn":"1030:2:","tidelog_version":1}') == {
        "scn": "1020",
        "commit_scn": "1030:2:",
    }


def test_the_adapter_decides_how_the_log_is_read(make: Make) -> None:
    for adapter, kind in (("logminer", BufferedTail), ("logminer_unbuffered", UnbufferedTail)):
        connector = make(database_connection_adapter=adapter)
        tail = connector.tail(connector.prepare(), [], 1 << 20, kept=Kept(1010, {}) if kind is BufferedTail else None)
        assert type(tail) is kind
        tail.close()
        connector.close()


def test_a_log_that_is_gone_is_a_lost_position(database: Database, make: Make) -> None:
    for _ in range(4):  # until the online file is used again
        database.redo.switch(1)
        for archive in database.redo.pending_archives():
            archive.ready = True
    database.redo.delete_archives(database.scn)
    connector = make()
    with pytest.raises(PositionLost, match="SCN 1005"):
        connector.tail(position.of_scn(1010), [], 1 << 20, note='{"scn":"1005","commit_scn":null}')
    assert connector.reach() > position.of_scn(1005)
    assert connector.prepare(resuming=True) == connector.reach()
    connector.close()


def test_transactions_are_told_by_their_beginning(database: Database, make: Make) -> None:
    connector = make()
    begun = database.begin(1)
    database.redo.advance()
    asked = connector.next_xid()
    assert not connector.settled(asked)
    begun.rollback()
    assert connector.settled(asked)
    connector.close()


def test_lag_is_the_size_of_the_logs_that_are_needed(make: Make) -> None:
    connector = make()
    assert connector.lag().bytes == 0
    connector.document(connector.prepare(), 0, 0)
    assert connector.lag().kept_bytes > 0
    assert connector.log_end() >= connector.reach()
    assert connector.names()["server"]
    connector.close()


def test_no_tables(make: Make) -> None:
    with pytest.raises(ConfigError, match="No table of FREE matches") as caught:
        make(table_include_list="SHOP.ORDRES").prepare()
    assert "SHOP.ORDERS" in caught.value.hint


def test_a_masked_key_tells_rows_no_more_apart(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"SHOP.ORDERS can't be captured.*\(ID\)"):
        make(**{"column.mask.with.4.chars": r"SHOP\.ORDERS\.ID"}).prepare()


def test_given_up_transactions_have_an_age(make: Make) -> None:
    assert make(log_mining_transaction_retention_ms="60000").limits().age_s == 60
    assert make(log_mining_buffer_transaction_events_threshold="9").limits().events == 9
