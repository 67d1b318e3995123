"""Dispatch: what rows of the log are, under which version of their table, and what LogMiner could not tell."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from tests.unit.oracle.test_row import NAMES
from tidelog.connectors.oracle import config, payload, queries, row
from tidelog.connectors.oracle.dispatch import Dispatch
from tidelog.connectors.oracle.draft import Draft
from tidelog.connectors.oracle.row import Rows
from tidelog.connectors.oracle.versions import Versions
from tidelog.contracts import Mixed
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Mark
from tidelog.model.schema import Column, Table

ORDERS = Table(11, "SHOP", "ORDERS", (Column("ID", "NUMBER"),), ("ID",))
NOTES = Table(12, "SHOP", "NOTES", (Column("ID", "NUMBER"), Column("C", "CLOB")), ("ID",))
INFO = "Dictionary Mismatch"
SQL = """insert into "SHOP"."ORDERS"("ID") values ('1');"""


class Described:
    """A catalog whose tables may change."""

    def __init__(self) -> None:
        self.tables = [ORDERS, NOTES]
        self.asked = 0

    def captured(self) -> list[Table]:
        self.asked += 1
        return self.tables

    def present(self, ids: list[int]) -> list[Table]:
        return [t for t in self.tables if t.id in ids]

    def named(self, schema: str, name: str) -> Table | None:
        self.asked += 1
        return next((t for t in self.tables if (t.schema, t.name) == (schema, name)), None)

    def by_object(self, number: int) -> Table | None:
        return next((t for t in self.tables if t.id == number), None)


def told(code: int = queries.INSERT, table: str | None = "ORDERS", **columns: Any) -> tuple[Any, ...]:
    known = {"ORDERS": 11, "NOTES": 12}
    row_ = {
        "SCN": 5,
        "SQL_REDO": SQL,
        "OPERATION_CODE": code,
        "XID": bytes(7) + b"\1",
        "CSF": 0,
        "TABLE_NAME": table,
        "SEG_OWNER": "SHOP" if table else None,
        "ROW_ID": "AAASJqAANAAAAnkAAI",
        "STATUS": 0,
        "THREAD#": 1,
        "DATA_OBJ#": known.get(table or "", 0),
    }
    told = {**row_, **columns}
    told["SQL_REDO"] = told["SQL_REDO"].encode() if isinstance(told["SQL_REDO"], str) else told["SQL_REDO"]
    return tuple(told.get(name) for name in NAMES)


def rows(*fetched: tuple[Any, ...]) -> Rows:
    return row.read(fetched, NAMES)


def made(catalog: Described | None = None, **options: str) -> Dispatch:
    given = {name.replace("_", "."): value for name, value in options.items()}
    settings = config.read({"database.user": "u", "database.dbname": "d", "schema.include.list": "SHOP", **given})
    return Dispatch(Versions(catalog or Described(), settings, []), settings)  # type: ignore[arg-type]


def dispatched(dispatch: Dispatch, found: Rows) -> Mixed:
    draft = Draft()
    for base, part in dispatch.pieces(found):
        ignored = np.zeros(len(part), np.bool_)
        kinds = dispatch.sort(part, ignored)
        dispatch.emit(draft, part, kinds, ~ignored, part.xid, base)
    return draft.mixed(0)


def records(mixed: Mixed) -> list[tuple[str, str]]:
    return [
        (b.table.name if b.table else "", chr(op)) for b in mixed.blocks for op in b.records.column("op").to_pylist()
    ]


def test_changes_by_table() -> None:
    found = dispatched(made(), rows(told(1), told(2), told(3, "NOTES"), told(1, "STRANGER", SEG_OWNER="HR")))
    assert sorted(records(found)) == [("NOTES", "u"), ("ORDERS", "c"), ("ORDERS", "d")]


def test_a_table_is_described_once() -> None:
    catalog = Described()
    dispatch = made(catalog)
    for _ in range(3):
        dispatched(dispatch, rows(told(), told(1, "NOTES"), told(1, "OTHER", SEG_OWNER="HR")))
    assert catalog.asked == 1


@pytest.mark.parametrize("name", [None, "UNKNOWN", "OBJ# 11", "BIN$aGVsbG8gd29ybGQhISEhIQ==$0"])
def test_a_table_may_be_known_by_its_number_alone(name: str | None) -> None:
    found = dispatched(made(), rows(told(1, name, SEG_OWNER="UNKNOWN", **{"DATA_OBJ#": 11})))
    assert records(found) == [("ORDERS", "c")]
    assert records(dispatched(made(), rows(told(1, name, **{"DATA_OBJ#": 99, "DATA_OBJD#": 12})))) == [("NOTES", "c")]


@pytest.mark.parametrize("sql", [None, "", "/* No SQL_REDO for temporary tables */"])
def test_a_change_that_is_not_told_is_none(sql: str | None) -> None:
    assert records(dispatched(made(), rows(told(SQL_REDO=sql)))) == []


def test_pieces_of_large_objects_count_only_where_they_are_captured() -> None:
    fetched = rows(told(1, "NOTES"), told(queries.LOB_WRITE, "NOTES"), told(queries.XML_END, "NOTES"))
    assert len(records(dispatched(made(), fetched))) == 1
    found = dispatched(made(lob_enabled="true"), fetched)
    assert len(records(found)) == 2
    assert found.merged == {NOTES.fingerprint}


def test_an_undo_is_a_mark_or_a_record() -> None:
    plain = dispatched(made(lob_enabled="true"), rows(told(), told(2, ROLLBACK=1, SQL_REDO=None)))
    assert records(plain) == [("ORDERS", "c")]
    assert [chr(kind) for kind in plain.marks.column("kind").to_pylist()] == [Mark.UNDO]
    assert plain.marks.column("key").to_pylist() == plain.blocks[0].records.column("position").to_pylist()
    large = dispatched(made(lob_enabled="true"), rows(told(1, "NOTES"), told(2, "NOTES", ROLLBACK=1)))
    assert records(large) == [("NOTES", "c"), ("NOTES", "d")]
    assert large.marks.num_rows == 0


def test_without_a_row_id_nothing_can_be_taken_back_by_it() -> None:
    found = dispatched(made(), rows(told(2, ROLLBACK=1, ROW_ID="A" * 18)))
    assert found.marks.num_rows == 0


# -- DDL -----------------------------------------------------------------------------------------------------------


def test_ddl_makes_a_new_version_for_what_follows() -> None:
    catalog = Described()
    dispatch = made(catalog)
    dispatched(dispatch, rows(told()))
    wider = Table(11, "SHOP", "ORDERS", (*ORDERS.columns, Column("NAME", "VARCHAR2", 10)), ("ID",))
    catalog.tables = [wider, NOTES]
    found = dispatched(dispatch, rows(told(), told(queries.DDL, SQL_REDO="alter table orders add name"), told()))
    assert [(b.table, len(b.records)) for b in found.blocks] == [(ORDERS, 1), (wider, 1), (wider, 1)]
    assert records(found)[1] == ("ORDERS", "c")
    assert {("ORDERS", "s")} < set(records(found))


def test_ddl_that_changes_nothing_is_no_news() -> None:
    fetched = rows(told(), told(queries.DDL, SQL_REDO="grant select on orders to hr"))
    assert records(dispatched(made(), fetched)) == [("ORDERS", "c")]


def test_a_renamed_table_is_the_same_table() -> None:
    catalog = Described()
    dispatch = made(catalog)
    dispatched(dispatch, rows(told()))
    renamed = Table(11, "SHOP", "SALES", ORDERS.columns, ("ID",))
    catalog.tables = [renamed, NOTES]
    found = dispatched(dispatch, rows(told(queries.DDL, SQL_REDO="rename"), told(1, "SALES", **{"DATA_OBJ#": 11})))
    assert sorted(records(found)) == [("SALES", "c"), ("SALES", "s")]


def test_a_new_table_and_one_that_is_gone() -> None:
    catalog = Described()
    dispatch = made(catalog)
    dispatched(dispatch, rows(told()))
    added = Table(13, "SHOP", "ADDED", ORDERS.columns, ("ID",))
    catalog.tables = [NOTES, added]
    found = dispatched(
        dispatch,
        rows(told(queries.DDL, "ADDED", SQL_REDO="create table"), told(queries.DDL, SQL_REDO="drop table orders")),
    )
    assert records(found) == [("ADDED", "s")]


def test_truncate() -> None:
    sql = "/* by hand */ TRUNCATE  TABLE shop.orders"
    assert records(dispatched(made(), rows(told(queries.DDL, SQL_REDO=sql)))) == [("ORDERS", "t")]


# -- what LogMiner has to say --------------------------------------------------------------------------------------


def test_status_2_without_a_reason_is_no_error() -> None:
    assert len(records(dispatched(made(), rows(told(STATUS=2), told(STATUS=2, INFO="  "))))) == 2


def test_status_2_stops_the_pipeline() -> None:
    with pytest.raises(UnsupportedChange, match=r"SHOP.ORDERS at SCN 5: Dictionary Mismatch") as caught:
        dispatched(made(), rows(told(STATUS=2, INFO=INFO)))
    assert "hybrid" in caught.value.hint


def test_status_2_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = dispatched(made(event_processing_failure_handling_mode="warn"), rows(told(STATUS=2, INFO=INFO), told()))
    assert len(records(found)) == 1
    assert INFO in caplog.text


@pytest.mark.parametrize(
    "options", [{"log_mining_strategy": "hybrid"}, {"event_processing_failure_handling_mode": "dead-letter"}]
)
def test_status_2_is_left_to_decoding(options: dict[str, str]) -> None:
    assert len(records(dispatched(made(**options), rows(told(STATUS=2, INFO=INFO))))) == 1


def test_what_is_missing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    gap = told(queries.MISSING_SCN, None, INFO="Missing SCN 3 - 4")
    odd = told(queries.UNSUPPORTED, INFO="Unsupported operation")
    odder = told(1003, INFO="Unheard of")
    elsewhere = told(queries.UNSUPPORTED, "SALARIES", SEG_OWNER="HR")
    with caplog.at_level(logging.WARNING):
        assert records(dispatched(made(), rows(gap, odd, odder, elsewhere))) == []
    assert [r.getMessage()[:12] for r in caplog.records] == ["The log has ", "LogMiner doe", "LogMiner doe"]


def test_the_redo_sql_is_shown_if_asked_for() -> None:
    for options, shown in (({}, False), ({"log_mining_include_redo_sql": "true"}, True)):
        (block,) = dispatched(made(**options), rows(told())).blocks
        found = payload.unpack(block.records.column("payload"))
        assert found.flagged(payload.SHOWN).tolist() == [shown]
        assert found.sql.to_pylist() == [SQL.encode()]
