"""What `check` finds, and what it says cures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oracledb
import pytest

from tests.oracle import views
from tests.oracle.driver import Server, refuse
from tests.oracle.literals import Column
from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import check, client
from tidelog.contracts import Finding

Serve = Callable[..., Server]
PRIVILEGES = ("LOGMINING", "SELECT ANY TRANSACTION", "SET CONTAINER", "CREATE SESSION")
View = Callable[[str, Callable[..., list[tuple[Any, ...]]]], None]


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    """Let a view answer differently."""

    def change(name: str, rows: Callable[..., list[tuple[Any, ...]]]) -> None:
        names, known = views.VIEWS.get(name, (("PRIVILEGE",), lambda *_: []))
        monkeypatch.setitem(views.VIEWS, name, (names, lambda *given: rows(*known(*given))))

    return change


@pytest.fixture
def server(serve: Serve, view: View) -> Server:
    view("SESSION_PRIVS", lambda *_: [(name,) for name in PRIVILEGES])
    view("V$LOG", lambda *rows: [(*row[:3], 1 << 30, *row[4:]) for row in rows])
    found = serve()
    found.database.create("INV", "ORDERS", [Column("ID", "NUMBER", precision=9, scale=0, nullable=False)], ["ID"])
    return found


def told(level: str, **more: str) -> dict[str, Finding]:
    return {f.subject: f for f in check.findings(settings(**more)) if f.level == level}


def test_a_database_that_is_ready(server: Server) -> None:
    assert server
    found = check.findings(settings())
    assert {f.level for f in found} == {"ok"}
    assert all(f.meaning and not f.cure for f in found)


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> object:
        raise oracledb.OperationalError("DPY-6005: cannot connect to database")

    monkeypatch.setattr(client, "CONNECT", refused)
    (only,) = check.findings(settings())
    assert (only.level, only.subject) == ("error", "connection")
    assert only.cure
    assert "a-secret-word" not in str(only)


def test_missing_grants_are_written_out(server: Server, view: View) -> None:
    view("SESSION_PRIVS", lambda *_: [])

    def refusing(statement: str) -> None:
        if "END_LOGMNR" in statement:
            raise refuse(6550, "line 1: PLS-00201: identifier 'DBMS_LOGMNR' must be declared")
        if "may */ COUNT(*) FROM V$THREAD" in statement:
            raise refuse(942, "table or view does not exist")

    server.before = refusing
    cure = told("error")["user c##tide"].cure
    for grant in ("GRANT LOGMINING", "GRANT SET CONTAINER", "EXECUTE ON DBMS_LOGMNR TO", "SELECT ON V_$THREAD TO"):
        assert grant in cure
    assert "GRANT SELECT ANY TRANSACTION" in cure
    assert "V_$LOG " not in cure
    assert cure.count("CONTAINER=ALL") == 5


@pytest.mark.parametrize(
    ("threads", "view_name", "grant"),
    [
        (1, "V$LOGMNR_CONTENTS", "GRANT SELECT ON V_$LOGMNR_CONTENTS TO c##tide"),
        (2, "GV$TRANSACTION", "GRANT SELECT ON GV_$TRANSACTION TO c##tide"),
    ],
)
def test_views_that_only_mining_or_a_cluster_asks(
    serve: Serve, view: View, threads: int, view_name: str, grant: str
) -> None:
    view("SESSION_PRIVS", lambda *_: [(name,) for name in PRIVILEGES])
    server = serve(threads=threads)
    assert "user c##tide" not in told("error")

    def refusing(statement: str) -> None:
        if f"FROM {view_name}" in statement:
            raise refuse(942, "table or view does not exist")

    server.before = refusing
    assert grant in told("error")["user c##tide"].cure


def database(**changed: str) -> Callable[..., list[tuple[Any, ...]]]:
    names = ["NAME", "DBID", "CDB", "LOG_MODE", "ROLE", "OPEN", "MIN", "PK", "ALL"]

    def answer(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [tuple(changed.get(names[n], v) if n < len(names) else v for n, v in enumerate(row))]

    return answer


@pytest.mark.parametrize(
    ("changed", "more", "subject", "cure"),
    [
        ({"LOG_MODE": "NOARCHIVELOG"}, {}, "log mode", "ALTER DATABASE ARCHIVELOG"),
        ({"MIN": "NO"}, {}, "supplemental logging", "ADD SUPPLEMENTAL LOG DATA"),
        ({}, {"database_pdb_name": ""}, "database.pdb.name", "Set database.pdb.name"),
        ({"CDB": "NO"}, {}, "database.pdb.name", "Leave database.pdb.name out"),
        (
            {"ROLE": "PHYSICAL STANDBY"},
            {"log_mining_strategy": "redo_log_catalog"},
            "log.mining.strategy",
            "online_catalog",
        ),
        ({}, {"archive_destination_name": "LOG_ARCHIVE_DST_1"}, "archive.destination.name", "LOG_ARCHIVE_DEST_1"),
        ({}, {"table_include_list": r"inv\.orders"}, "tables", "Did you mean INV.ORDERS"),
        ({}, {"signal_data_collection": "INV.SIGNALS"}, "signal.data.collection", "CREATE TABLE INV.SIGNALS"),
    ],
)
def test_errors(
    server: Server, view: View, changed: dict[str, str], more: dict[str, str], subject: str, cure: str
) -> None:
    assert server
    view("V$DATABASE", database(**changed))
    assert cure in told("error", **more)[subject].cure


def test_a_table_must_be_logged_as_a_whole(server: Server, view: View) -> None:
    assert server
    view("ALL_LOG_GROUPS", lambda *_: [])
    view("V$DATABASE", database(ALL="NO"))
    assert "ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS" in told("error")["table INV.ORDERS"].cure


def test_names_that_are_too_long_for_logminer(server: Server) -> None:
    server.database.create("INV", "T", [Column("A_NAME_OF_MORE_THAN_THIRTY_CHARS", "NUMBER", nullable=False)])
    assert "longer than 30" in told("error")["table INV.T"].meaning


def test_tables_that_can_be_captured_but_not_well(server: Server, view: View) -> None:
    server.database.create("INV", "NOTES", [Column("TEXT", "CLOB")])
    view("V$LOG", lambda *rows: [(*row[:3], 50 << 20, *row[4:]) for row in rows])
    view("V$PARAMETER", lambda *rows: [(n, "60" if n == "undo_retention" else v) for n, v in rows])
    found = [f for f in check.findings(settings()) if f.level == "warning"]
    cures = " ".join(f.cure for f in found)
    assert {f.subject for f in found} == {"table INV.NOTES", "online logs", "undo_retention"}
    assert "lob.enabled" in cures
    assert "ADD PRIMARY KEY" in cures
    assert "lob.enabled" not in " ".join(f.cure for f in check.findings(settings(lob_enabled="true")))


def test_bytes_of_blocks_are_not_read_in_every_database(server: Server, view: View) -> None:
    assert server
    assert "log.mining.strategy" not in told("warning", log_mining_strategy="hybrid")
    view("DATABASE_PROPERTIES", lambda *_: [("DBTIMEZONE", "Europe/Vienna")])
    assert "Europe/Vienna" in told("warning", log_mining_strategy="hybrid")["log.mining.strategy"].meaning
    view("NLS_DATABASE_PARAMETERS", lambda *_: [("NLS_CHARACTERSET", "WE8ISO8859P1")])
    assert "WE8ISO8859P1" in told("warning", log_mining_strategy="hybrid")["log.mining.strategy"].meaning
    assert "log.mining.strategy" not in told("warning")


def test_a_private_redo_thread_is_told(server: Server) -> None:
    server.database.redo.threads[1].enabled = "PRIVATE"
    assert "ENABLE PUBLIC THREAD 1" in told("warning")["redo thread 1"].cure


def test_a_table_that_may_not_be_read_as_of_an_scn(server: Server) -> None:
    def refusing(statement: str) -> None:
        if "tidelog readable" in statement:
            raise refuse(1031, "insufficient privileges")

    server.before = refusing
    assert told("error")["table INV.ORDERS"].cure == 'GRANT SELECT, FLASHBACK ON "INV"."ORDERS" TO c##tide;'
    assert not told("error", snapshot_mode="no_data")


def test_what_was_found_before_a_failure_is_kept(server: Server) -> None:
    def lost(statement: str) -> None:
        if "V$ARCHIVE_DEST_STATUS WHERE" in statement:
            raise refuse(3113, "end-of-file on communication channel")

    server.before = lost
    found = check.findings(settings())
    assert found[0].level == "ok"
    assert (found[-1].level, found[-1].subject) == ("error", "check")
