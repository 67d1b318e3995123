"""Sessions over a connection of the driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.oracle.driver import Server, cut
from tests.oracle.literals import Column
from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import client, queries
from tidelog.connectors.oracle.client import Session, as_reader
from tidelog.connectors.oracle.faults import ConnectionLost
from tidelog.connectors.oracle.queries import Statement
from tidelog.errors import ConfigError, UnsupportedChange

Serve = Callable[..., Server]


def test_a_session_renders_values_alike(serve: Serve) -> None:
    server = serve()
    with Session(settings()):
        (connection,) = server.connections
        assert connection.settings == list(queries.SESSION)
    assert not server.connections


def test_a_session_that_cannot_be_set_up_is_closed(serve: Serve) -> None:
    server = serve()

    def lost(statement: str) -> None:
        if "TIME_ZONE" in statement:
            raise cut()

    server.before = lost
    with pytest.raises(ConnectionLost):
        Session(settings())
    assert not server.connections


def test_answers(serve: Serve) -> None:
    serve()
    with Session(settings()) as session:
        assert session.query(Statement("SELECT :a FROM DUAL", {"a": 5})) == [(5,)]
        assert session.one("SELECT DUMMY FROM DUAL") == "X"
        assert session.one("SELECT DUMMY FROM DUAL WHERE 1 = 0") is None


def test_rows_come_in_batches_and_may_be_left(serve: Serve) -> None:
    serve()
    with Session(settings()) as session:
        sql = "SELECT NAME FROM V$PARAMETER"
        assert [len(batch) for batch in session.batches(sql, 2)] == [2, 1]
        left = session.batches(sql, 1)
        assert len(next(left)) == 1
        left.close()  # type: ignore[attr-defined]
        assert session.one("SELECT DUMMY FROM DUAL") == "X"


def test_a_session_knows_that_it_was_cut(serve: Serve) -> None:
    server = serve()
    session = Session(settings())
    server.cut()
    assert not session.closed
    with pytest.raises(ConnectionLost):
        session.query("SELECT DUMMY FROM DUAL")
    assert session.closed
    session.close()


def test_a_refused_statement_does_not_end_the_session(serve: Serve) -> None:
    serve()
    with Session(settings()) as session:
        with pytest.raises(ConfigError, match="ORA-00942"):
            session.query("SELECT 1 FROM NOWHERE")
        assert not session.closed
        assert session.one("SELECT DUMMY FROM DUAL") == "X"


def test_the_reader_of_tables_may_be_another_user() -> None:
    assert as_reader(settings()) == settings()
    other = as_reader(settings(snapshot_database_user="reader", snapshot_database_password="pw"))
    assert (other.user, other.password) == ("reader", "pw")
    assert as_reader(settings(snapshot_database_user="reader")).password == "a-secret-word"


def test_the_driver_is_asked_for_a_plain_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    class Connection:
        call_timeout = 0
        outputtypehandler: object = None

    def connect(**options: object) -> Connection:
        asked.update(options)
        return Connection()

    monkeypatch.setattr(client.oracledb, "connect", connect)
    made = client.connect(settings(database_query_timeout_ms="7000", database_port="1600"))
    assert asked["dsn"] == "localhost:1600/FREE"
    assert asked["user"] == "c##tide"
    assert made.call_timeout == 7000


def test_redo_sql_comes_as_bytes(serve: Serve) -> None:
    """Some of it is no UTF-8, and a statement may go on in the middle of a character."""
    server = serve()
    table = server.database.create("INV", "T", [Column("ID", "NUMBER", 22, 10, 0, False)], ["ID"])
    work = server.database.begin(1)
    for sql in (b"caf\xe9", "é" * 3000):
        server.database.write(work, 1, table, sql=sql)
    work.commit()
    with Session(settings()) as session:
        session.execute(queries.add_logfile("/u02/redo/thread1_group2.log"))
        session.execute(queries.start_logmnr(settings(), None, None, committed=False))
        asked = "SELECT SQL_REDO FROM V$LOGMNR_CONTENTS WHERE OPERATION_CODE = 1"
        found = [sql for (sql,) in session.query(asked)]
        assert found[0] == b"caf\xe9"
        assert b"".join(found[1:]).decode() == "é" * 3000


def test_a_text_that_is_no_utf_8_is_told(serve: Serve) -> None:
    server = serve()

    def damaged(_: str) -> None:
        b"caf\xe9".decode()

    with Session(settings()) as session:
        server.before = damaged
        with pytest.raises(UnsupportedChange, match="no valid UTF-8"):
            session.query("SELECT DUMMY FROM DUAL")
        server.before = lambda _: None
