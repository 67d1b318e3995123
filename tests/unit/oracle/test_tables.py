"""Tables as they are now: the catalog, and reads of present rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.oracle import views
from tests.oracle.driver import Server, cut, refuse
from tests.oracle.literals import Column as Described
from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import types
from tidelog.connectors.oracle.catalog import Catalog
from tidelog.connectors.oracle.chunks import OracleChunks
from tidelog.connectors.oracle.client import Session
from tidelog.connectors.oracle.faults import ConnectionLost
from tidelog.connectors.oracle.tables import Tables
from tidelog.contracts import Scan, Span
from tidelog.errors import ConfigError, TransientError
from tidelog.model.selection import Selection

Serve = Callable[..., Server]
ORDERS = (
    Described("ID", "NUMBER", precision=9, scale=0, nullable=False),
    Described("NAME", "VARCHAR2", 20),
    Described("PRICE", "NUMBER", precision=9, scale=2),
)


def fill(server: Server, rows: int = 5) -> None:
    relation = server.database.create("INV", "ORDERS", ORDERS, ["ID"])
    server.database.create("INV", "EVENTS", [Described("ID", "NUMBER", precision=9, scale=0, nullable=False)])
    server.database.create("HR", "STAFF", [Described("ID", "NUMBER", precision=9, scale=0)], ["ID"])
    work = server.database.begin(1)
    for n in range(rows):
        work.insert(relation, {"ID": n, "NAME": f"n{n}", "PRICE": n + 0.5})
    work.commit()


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


# -- the catalog


def test_tables_have_columns_and_keys(serve: Serve) -> None:
    fill(serve())
    tables = Tables(settings(schema_include_list="INV"))
    events, orders = tables.captured()
    assert (orders.qualified, orders.key, orders.old_image) == ("INV.ORDERS", ("ID",), "full")
    assert [(c.name, c.type, c.nullable) for c in orders.columns] == [
        ("ID", "NUMBER", False),
        ("NAME", "VARCHAR2", True),
        ("PRICE", "NUMBER", True),
    ]
    assert types.digits(orders.columns[2].modifier) == (9, 2)
    assert events.key == ()
    assert tables.present([orders.id]) == [orders]
    assert tables.present([1, 2]) == []
    assert tables.present([]) == []
    assert tables.named("INV", "ORDERS") == orders
    assert tables.named("INV", "X") is None
    assert tables.by_object(orders.id) == orders
    assert tables.by_object(5) is None


def test_invisible_columns_are_columns_but_those_of_the_system_are_not(serve: Serve) -> None:
    own = Described("SYS_NC00002$", "RAW", 16, system=True)
    shadow = Described("SHADOW", "NUMBER", precision=9, scale=0, hidden=True)
    serve().database.create("INV", "ORDERS", [ORDERS[0], shadow, own, ORDERS[1]], ["ID"])
    (table,) = Tables(settings(schema_include_list="INV")).captured()
    assert [c.name for c in table.columns] == ["ID", "NAME", "SHADOW"]


def test_the_table_of_signals_is_not_delivered(serve: Serve) -> None:
    fill(serve())
    tables = Tables(settings(signal_data_collection="INV.EVENTS"))
    assert [t.qualified for t in tables.captured()] == ["HR.STAFF", "INV.ORDERS"]


def test_a_unique_index_identifies_rows_only_without_nulls(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(serve())
    names = ("NAME", "ID")  # NAME may be null

    def unique(*_: Any) -> list[tuple[Any, ...]]:
        return [("INV", f"U{n}", "INV", "EVENTS", name, 1, "ASC") for n, name in enumerate(names)]

    def indexes(*_: Any) -> list[tuple[Any, ...]]:
        return [("INV", f"U{n}", "NORMAL", "INV", "EVENTS", "UNIQUE", "VALID") for n in range(len(names))]

    monkeypatch.setitem(views.VIEWS, "ALL_IND_COLUMNS", (views.VIEWS["ALL_IND_COLUMNS"][0], unique))
    monkeypatch.setitem(views.VIEWS, "ALL_INDEXES", (views.VIEWS["ALL_INDEXES"][0], indexes))
    (events,) = [t for t in Tables(settings()).captured() if t.name == "EVENTS"]
    assert events.key == ("ID",)


def test_a_default_makes_the_source_the_judge_of_old_rows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(serve())
    known, columns = views.VIEWS["ALL_TAB_COLS"]

    def with_defaults(*given: Any) -> list[tuple[Any, ...]]:
        return [(*row[:-1], 4 if row[2] == "PRICE" else None) for row in columns(*given)]

    monkeypatch.setitem(views.VIEWS, "ALL_TAB_COLS", (known, with_defaults))
    orders = Tables(settings()).named("INV", "ORDERS")
    assert orders is not None
    assert [c.rewritten for c in orders.columns] == [False, False, True]


def test_what_the_log_tells_of_a_table(serve: Serve) -> None:
    fill(serve())
    with Session(settings(), inside=True) as session:
        catalog = Catalog(session, Selection())
        assert set(catalog.logged(catalog.captured())[("INV", "ORDERS")]) == {"ALL COLUMN LOGGING"}
        assert catalog.logged([]) == {}


def test_questions_are_asked_where_the_tables_are(serve: Serve) -> None:
    server = serve()
    fill(server)
    Tables(settings()).captured()
    (connection,) = server.connections
    assert connection.settings[-1] == 'ALTER SESSION SET CONTAINER = "FREEPDB1"'
    assert any("NLS_NUMERIC_CHARACTERS = '.,'" in text for text in connection.settings)
    assert any("TIME_ZONE" in text for text in connection.settings)


def test_a_session_that_was_cut_is_replaced_once(serve: Serve) -> None:
    server = serve()
    fill(server)
    tables = Tables(settings())
    assert tables.captured()
    server.cut()
    assert tables.captured()

    def lost(_: str) -> None:
        raise cut()

    server.before = lost
    with pytest.raises(ConnectionLost):
        tables.captured()


# -- rows


def test_rows_are_typed_as_the_stream_types_them(serve: Serve) -> None:
    fill(serve(), rows=2)
    tables = Tables(settings())
    orders = tables.named("INV", "ORDERS")
    assert orders is not None
    found = rows(tables.read(orders, ["PRICE", "ID"]))
    assert found == [{"PRICE": Decimal("0.50"), "ID": 0}, {"PRICE": Decimal("1.50"), "ID": 1}]


def test_a_column_that_is_gone_reads_as_null(serve: Serve) -> None:
    server = serve()
    fill(server, rows=1)
    tables = Tables(settings())
    orders = tables.named("INV", "ORDERS")
    assert orders is not None
    server.database.alter(server.database.relations["INV.ORDERS"], ORDERS[:2], "alter table x drop (price)", 1)
    assert rows(tables.read(orders, ["ID", "PRICE"])) == [{"ID": 0, "PRICE": None}]


def test_rows_under_keys_and_in_ranges(serve: Serve) -> None:
    fill(serve(), rows=9)
    tables = Tables(settings())
    orders = tables.named("INV", "ORDERS")
    assert orders is not None
    wanted = pa.table({"ID": pa.array([7, 2, 99], pa.int32())})
    assert sorted(row["ID"] for row in rows(tables.read_keys(orders, ["ID", "NAME"], wanted))) == [2, 7]
    assert [row["ID"] for row in rows(tables.read_range(orders, ["ID"], "3", "6"))] == [4, 5, 6]
    assert tables.bounds(orders, 4) == ["3", "7"]


def test_masked_keys_mean_nothing_to_the_database(serve: Serve) -> None:
    fill(serve(), rows=3)
    tables = Tables(settings(**{"column_mask_hash_SHA-256_with_salt_x": r"INV\.ORDERS\.ID"}))
    orders = tables.named("INV", "ORDERS")
    assert orders is not None
    assert len(rows(tables.read_keys(orders, ["NAME"], pa.table({"ID": ["abc"]})))) == 3


# -- chunks


def test_a_chunk_is_typed_and_masked_as_the_stream_is(serve: Serve) -> None:
    fill(serve(), rows=3)
    config = settings(column_mask_with_3_chars=r"INV\.ORDERS\.NAME", column_exclude_list=r"INV\.ORDERS\.PRICE")
    orders = Tables(config).named("INV", "ORDERS")
    assert orders is not None
    chunk = OracleChunks(config).open(Scan(orders, ("ID",)), Span(None, ("1",)), attempt="a")
    assert rows(chunk.rows()) == [{"ID": 0, "NAME": "***"}, {"ID": 1, "NAME": "***"}]
    assert chunk.letters().num_rows == 0
    chunk.close()


def test_an_export_is_a_moment_that_all_chunks_share(serve: Serve) -> None:
    server = serve()
    fill(server, rows=3)
    tables = Tables(settings())
    orders = tables.named("INV", "ORDERS")
    assert orders is not None
    export = tables.export(Scan(orders, ()))
    assert tables.exported(export, orders)
    assert not tables.exported("")
    work = server.database.begin(1)
    server.database.redo.advance(10)
    work.insert(server.database.relations["INV.ORDERS"], {"ID": 77, "NAME": "", "PRICE": 1})
    work.commit()
    chunk = OracleChunks(settings()).open(Scan(orders, (), export=export), Span(None, None), attempt="a")
    assert len(rows(chunk.rows())) == 3
    assert chunk.end() == (int(export) + 1) * 4096
    chunk.close()


def test_undo_that_is_gone_is_told_by_who_can_cure_it(serve: Serve) -> None:
    server = serve()
    fill(server, rows=3)
    orders = Tables(settings()).named("INV", "ORDERS")
    assert orders is not None
    keyed = OracleChunks(settings()).open(Scan(orders, ("ID",)), Span(None, None), attempt="a")
    shared = OracleChunks(settings()).open(Scan(orders, (), export="1000010"), Span(None, None), attempt="b")

    def gone(statement: str) -> None:
        if "tidelog chunk" in statement:
            raise refuse(1555, "snapshot too old: rollback segment too small")

    server.before = gone
    with pytest.raises(TransientError, match="snapshot too old"):
        list(keyed.rows())
    with pytest.raises(ConfigError, match="has no key"):
        list(shared.rows())


def test_windows_are_told_in_the_table_of_signals(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    fill(server, rows=1)
    config = settings(read_only="false", signal_data_collection="INV.SIGNALS")
    orders = Tables(settings()).named("INV", "ORDERS")
    assert orders is not None
    told: list[tuple[str, dict[str, Any]]] = []
    execute = Session.execute

    def keep(self: Session, statement: Any) -> None:
        if "SIGNALS" in str(statement):
            told.append((statement.sql, dict(statement.binds)))
        else:
            execute(self, statement)

    monkeypatch.setattr(Session, "execute", keep)
    chunk = OracleChunks(config).open(Scan(orders, ("ID",)), Span(None, None), attempt="w1", asked_by="s")
    assert [binds["id"] for _, binds in told] == ["w1-open"]
    chunk.end()
    chunk.close()
    assert [binds["id"] for _, binds in told] == ["w1-open", "w1-close"]
    assert {sql for sql, _ in told} == {'INSERT INTO "INV"."SIGNALS" VALUES (:id, :type, :data)'}
