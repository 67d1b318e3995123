"""What the adapters make of cases that no peer's test has: the meaning is clear, so there is an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import adapters

BEGIN = {"status": "BEGIN", "id": "t"}
END = {"status": "END", "id": "t", "event_count": 1, "data_collections": {"a": 1}}
ONCE = [["start", "t"], ["event", "a"], ["commit"]]


def answer(file: str, op: str, expected: Any = None, **given: Any) -> Any:
    return adapters.run(file, {"input": {"op": op, **given}, "expected": expected})


def transaction(*steps: list[str]) -> Any:
    return answer("signals_and_tx", "tx", restored=None, steps=list(steps))


def test_a_transaction_is_over_when_it_commits() -> None:
    assert transaction(*ONCE) == {"emitted": [BEGIN, END], "total": 0}
    assert transaction(*ONCE, *ONCE) == {"emitted": [BEGIN, END, BEGIN, END], "total": 0}
    assert transaction(["event", "a"], ["commit"]) == {"emitted": [], "total": 0}


@pytest.mark.parametrize(("extra", "id"), [({"transaction_id": "7:1"}, "7:1"), ({}, None)])
def test_a_loaded_offset_goes_on_in_its_transaction(extra: dict[str, Any], id: str | None) -> None:
    assert answer("mongodb_resume_tokens", "load", offset={"sec": 1, "ord": 1, **extra})["transaction_id"] == id


def test_the_first_of_several_last_keys() -> None:
    keys = [{"table_name": n, "lastpk": {"fields": [{"name": f}], "rows": []}} for n, f in (("a", "x"), ("b", "y"))]
    assert answer("vitess_vgtid", "parse_last_pk", table_p_ks=keys) == {"table": "a", "fields": ["x"]}


def test_rows_without_sql() -> None:
    assert answer("oracle_redo_fragments", "unistr", value=None) is None
    assert answer("oracle_redo_fragments", "lob_write", redo_sql=None) is None
    written = answer("oracle_redo_fragments", "xml_write", redo_sql=None, charset="AL32UTF8")
    assert written == {"xml": None, "length": 0}


def test_bytes_have_no_upper_case() -> None:
    assert answer("oracle_lob_merge", "", initial="HEXTORAW('AbCd')", writes=[]) == {"hex": "abcd"}


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 80, (1 << 63) - 1])
def test_keys_of_any_size_come_back(number: int) -> None:
    found = answer("incremental_snapshot_context", "roundtrip", last_sent=[number], maximum=[number])
    assert found == {"chunk_end": [number], "maximum": [number]}


def test_a_place_needs_no_key() -> None:
    found = answer("chunk_queries", "rowid_columns", {}, surrogate_key="ROWID", primary_key=["pk1"])
    assert found == {"range_columns": ["ROWID"]}


@pytest.mark.parametrize("table", ["s1.t", "db.s1.t"])
def test_keywords_and_names_of_any_form(table: str) -> None:
    source = ".".join(f'"{part}"' for part in table.split("."))
    sql = f'select * from {source} where (("k" >= ?) and not ("k" >= ?)) and "v" = 5 order by "k"'
    given = {
        "base_select": f'select * from {source} where "v" = 5',
        "key_columns": ["k"],
        "lower": [1],
        "upper": [10],
        "chunk_index": 1,
        "total_chunks": 3,
    }
    assert answer("chunk_queries", "initial_snapshot_chunk_query", {"sql": sql}, **given) == {"sql": sql}


@pytest.mark.parametrize("value", [None, "5", "5:6", ""])
def test_what_is_no_snapshot_is_refused(value: str | None) -> None:
    assert answer("pg_snapshot", "parse", value=value) == {"error": True}


def test_an_internal_row_is_no_change() -> None:
    events = [
        {"scn": 1, "type": "START", "tx": "t"},
        {"scn": 2, "type": "INSERT", "tx": "t", "row_id": "A" * 18, "data": "EMPTY_CLOB()"},
        {"scn": 3, "type": "INTERNAL", "tx": "t", "row_id": "B" * 18},
        {"scn": 4, "type": "COMMIT", "tx": "t"},
    ]
    undone = [*events[:3], {"scn": 4, "type": "DELETE", "tx": "t", "row_id": "B" * 18, "rollback": 1}]
    undone += [{**events[3], "scn": 5}]
    found = [answer("oracle_buffered_processing", "", events=e, lob_enabled=True)["emitted"] for e in (events, undone)]
    assert found == [1, 0]
