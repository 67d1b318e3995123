"""What the adapters make of cases that no peer's test has: the meaning is clear, so there is an answer."""

from __future__ import annotations

import re
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
    assert (found["chunk_end"], found["maximum"]) == ([number], [number])


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


WALKED = {"columns": [{"name": "k", "nullable": False}, {"name": "v", "nullable": True}], "primary_key": ["k"]}
CHUNKS = [
    ({"quote": "`"}, "SELECT * FROM `s`.`t` WHERE (`k` > ?) AND NOT (`k` > ?) ORDER BY `k` LIMIT 1"),
    ({"quote": "["}, "SELECT TOP 9 * FROM [s].[t] WHERE ([k] > ?) AND NOT ([k] > ?) ORDER BY [k]"),
    (
        {"additional_condition": "\"v\" = 'it''s' OR v LIKE 'a%'"},
        'SELECT * FROM "s"."t" WHERE "k" > ? AND "k" <= ? AND "v" = \'it\'\'s\' OR v LIKE \'a%\' '
        'ORDER BY "k" FETCH FIRST 9 ROWS ONLY',
    ),
    (
        {"position": ["key-50"], "maximum_key": ["key-99"]},
        'SELECT * FROM "s"."t" WHERE "k" > ? AND "k" <= ? ORDER BY "k" LIMIT 1',
    ),
    ({"position": None}, 'SELECT * FROM "s"."t" ORDER BY "k" LIMIT 1'),
]


@pytest.mark.parametrize(("more", "sql"), CHUNKS)
def test_chunks_of_any_dialect(more: dict[str, Any], sql: str) -> None:
    given = {"table": "s.t", "position": [3], "maximum_key": [30], **WALKED, **more}
    assert answer("chunk_queries", "chunk_query", {"sql": sql}, **given) == {"sql": sql}
    wrong = re.sub(r'(["`\]]) > \?', r"\1 >= ?", sql, count=1) if ">" in sql else f"{sql} OFFSET 1"
    assert answer("chunk_queries", "chunk_query", {"sql": wrong}, **given) != {"sql": wrong}


def test_generated_columns_are_not_read() -> None:
    sql = 'SELECT "k" FROM "s"."t" ORDER BY "k" LIMIT 9'
    assert answer("chunk_queries", "chunk_query", {"sql": sql}, table="s.t", generated_columns=["v"], **WALKED) == {
        "sql": sql
    }


def test_a_maximum_that_a_condition_leaves_nothing_for() -> None:
    sql = 'SELECT * FROM "s"."t" WHERE v > 9 AND v < 9 ORDER BY "k" DESC LIMIT 1'
    given = {"table": "s.t", "additional_condition": "v > 9 AND v < 9", "chunk_size": 1, **WALKED}
    assert answer("chunk_queries", "max_key_query", {"sql": sql}, **given) == {"sql": sql}


@pytest.mark.parametrize("told", ["B", ["B"]])
def test_a_place_that_was_found_ends_a_chunk(told: Any) -> None:
    found = answer("chunk_queries", "rowid_chunk_end", {}, prefetched=told, maximum_key=["C"])
    assert found == {"chunk_end": ["B"]}


ASKED = [{"id": "1", "collections": ["a.b", "a.c"], "additional_condition": "x or y"}, {"collections": ["a.d"]}]


def test_what_was_asked_for_comes_back() -> None:
    found = answer("incremental_snapshot_context", "roundtrip", signals=ASKED, last_sent=[1, None])
    assert (found["ids"], found["correlations"]) == (["a.b", "a.c", "a.d"], ["1", "1", None])
    assert (found["conditions"], found["chunk_end"]) == (["(x or y)", "(x or y)", None], [1, None])
    assert answer("incremental_snapshot_context", "store", signals=ASKED)["correlation"] == "1"
    damaged = {"incremental_snapshot_collections": "{"}
    assert answer("incremental_snapshot_context", "load", offset=damaged) == {"error": True}


@pytest.mark.parametrize("more", [{}, {"correlationId": None}])
def test_a_window_that_nobody_asked_for(more: dict[str, Any]) -> None:
    row = {"id": "<chunk1>-open", "type": "snapshot-window-open", "dataCollectionId": "a.d", **more}
    given = {"signals": ASKED[1:], "steps": ["open"]}
    assert answer("incremental_snapshot_context", "watermark_rows", {"rows": [row]}, **given) == {"rows": [row]}


def test_lines_are_signals_whatever_they_ask_for() -> None:
    lines = [
        '{"id": "1", "type": "custom", "data": {}}',
        "x",
        '{"type": "log"}',
        '{"id": 2, "type": "log", "data": {}}',
    ]
    assert answer("signals_and_tx", "file", lines=lines) == {"count": 2}


@pytest.mark.parametrize(
    ("op", "data", "valid"), [("pause", {}, True), ("log", {"message": "m"}, True), ("log", {}, False)]
)
def test_signals_that_name_no_table(op: str, data: dict[str, Any], valid: bool) -> None:
    assert answer("signals_and_tx", op, data=data)["valid"] is valid


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
