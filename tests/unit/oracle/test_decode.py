"""Blocks of redo SQL to typed rows, to the envelope, and to texts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from tidelog.connectors.oracle import decode, payload, types
from tidelog.connectors.oracle.decode import OracleDecoder
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql
from tidelog.contracts import ENVELOPE, RECORDS
from tidelog.core import metadata
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Table
from tidelog.model.selection import ColumnRule, Selection

TABLE = Table(
    7,
    "S",
    "T",
    (
        types.column("ID", "NUMBER", precision=9, scale=0),
        types.column("NAME", "VARCHAR2", length=50),
        types.column("LABEL", "NVARCHAR2", length=50),
        types.column("AT", "DATE"),
        types.column("DOC", "CLOB"),
        types.column("BIN", "BLOB"),
    ),
    ("ID",),
)
SELECTION = Selection(topic_prefix="srv", database="FREE")
XID, SCN = 0x0A00140012345678, 450
DATE = "TO_DATE('2024-01-02 03:04:05', 'YYYY-MM-DD HH24:MI:SS')"
INSERT = (
    """insert into "S"."T"("ID","NAME","LABEL","AT","DOC","BIN") """
    f"""values ('1','O''Neil',UNISTR('\\0412\\044B'),{DATE},'text',HEXTORAW('0aff'));"""
)
UPDATE = """update "S"."T" set "NAME" = 'b' where "ID" = '1' and "NAME" = 'a' and "LABEL" = 'x' and "AT" IS NULL;"""
MOVE = """update "S"."T" set "ID" = '2' where "ID" = '1' and "NAME" = 'a' and "LABEL" IS NULL and "AT" IS NULL;"""
DELETE = """delete from "S"."T" where "ID" = '1' and "NAME" = 'a' and "LABEL" IS NULL and "AT" IS NULL;"""
LETTERS = {"i": "c", "u": "u", "d": "d", "{": "c"}


def records(*statements: str, ops: str = "", code: int = 1, flags: int = 0) -> pa.RecordBatch:
    count = len(statements)
    letters = ops or "".join(LETTERS.get(sql[:1], "c") for sql in statements)
    packed = payload.pack(
        code=code,
        sql=list(statements),
        flags=flags,
        sequence=3,
        ssn=9,
        time_us=1_700_000_000_000_000,
        start_scn=400,
        rowid=["AAAR/aAANAAAAPtAAA"] * count,
        rs_id=["0x1.2.3"] * count,
        user=["SCOTT"] * count,
    )
    columns = {
        "position": [SCN * 4096] * count,
        "ordinal": list(range(count)),
        "table_ordinal": list(range(count)),
        "xid": [XID] * count,
        "committed": [1_700_000_001_000_000] * count,
        "lsn": [SCN - 1] * count,
        "op": [ord(letter) for letter in letters],
        "origin": [None] * count,
        "payload": packed,
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORDS)


def decoder() -> OracleDecoder:
    return OracleDecoder(lambda: 5_000_000)


def typed(*statements: str, selection: Selection = SELECTION, **options: Any) -> list[dict[str, Any]]:
    found = decoder().typed(records(*statements, **options), TABLE, selection)
    assert found.failures is None
    assert found.rows.schema == decoder().schema(TABLE, selection)
    rows: list[dict[str, Any]] = found.rows.to_pylist()
    return rows


def events(*statements: str, selection: Selection = SELECTION, **options: Any) -> list[dict[str, Any]]:
    found = decoder().envelope(records(*statements, **options), TABLE, selection)
    assert found.failures is None
    assert found.rows.schema == ENVELOPE
    return [
        {**row, **{name: json.loads(row[name] or "null") for name in ("key", "before", "after", "source")}}
        for row in found.rows.to_pylist()
    ]


def test_an_insert_typed() -> None:
    (row,) = typed(INSERT)
    assert (row["ID"], row["NAME"], row["LABEL"], row["DOC"], row["BIN"]) == (1, "O'Neil", "Вы", "text", b"\n\xff")
    assert row["AT"] == datetime(2024, 1, 2, 3, 4, 5)
    assert (row[metadata.OP], row[metadata.POSITION], row[metadata.XID], row[metadata.ORDINAL]) == (
        "c",
        SCN * 4096,
        XID,
        0,
    )
    assert (row[metadata.BEFORE], row[metadata.UNCHANGED]) == (None, [])


def test_an_update_typed() -> None:
    (row,) = typed(UPDATE)
    assert (row["ID"], row["NAME"], row["LABEL"], row["AT"]) == (1, "b", "x", None)
    assert row[metadata.BEFORE] == {"ID": 1, "NAME": "a", "LABEL": "x", "AT": None, "DOC": None, "BIN": None}
    assert row[metadata.UNCHANGED] == ["DOC", "BIN"]


def test_a_delete_shows_the_old_row() -> None:
    (row,) = typed(DELETE)
    assert (row[metadata.OP], row["ID"], row["NAME"]) == ("d", 1, "a")
    assert row[metadata.BEFORE]["NAME"] == "a"


def test_rows_come_in_the_blocks_order() -> None:
    rows = typed(INSERT, DELETE, UPDATE, INSERT, MOVE)
    assert [row[metadata.OP] for row in rows] == ["c", "d", "u", "c", "u"]
    assert [row["ID"] for row in rows] == [1, 1, 1, 1, 2]
    assert [row[metadata.ORDINAL] for row in rows] == [0, 1, 2, 3, 4]


def test_the_envelope_of_an_insert() -> None:
    (event,) = events(INSERT)
    assert (event["topic"], event["op"], event["key"], event["before"]) == ("srv.S.T", "c", {"ID": 1}, None)
    assert event["after"]["AT"] == 1_704_164_645_000
    assert event["after"]["BIN"] == "Cv8="
    assert event["ts_ms"] == 5_000
    assert event["transaction"] is None


def test_the_source_of_an_event() -> None:
    (event,) = events(INSERT)
    source = event["source"]
    assert source.pop("version")
    assert source == {
        "connector": "oracle",
        "name": "srv",
        "ts_ms": 1_700_000_000_000,
        "ts_us": 1_700_000_000_000_000,
        "ts_ns": 1_700_000_000_000_000_000,
        "snapshot": "false",
        "db": "FREE",
        "sequence": None,
        "schema": "S",
        "table": "T",
        "txId": "0a00140012345678",
        "txSeq": 3,
        "scn": str(SCN - 1),
        "commit_scn": str(SCN),
        "commit_ts_ms": 1_700_000_001_000,
        "lcr_position": None,
        "rs_id": "0x1.2.3",
        "ssn": 9,
        "redo_thread": 1,
        "user_name": "SCOTT",
        "row_id": "AAAR/aAANAAAAPtAAA",
        "redo_sql": None,
        "start_scn": "400",
        "start_ts_ms": None,
    }


def test_the_redo_sql_is_shown_on_demand() -> None:
    (event,) = events(INSERT, flags=payload.SHOWN)
    assert event["source"]["redo_sql"] == INSERT


def test_a_large_object_that_is_not_told_has_its_placeholder() -> None:
    (event,) = events(UPDATE)
    assert event["after"]["DOC"] == "__debezium_unavailable_value"
    assert event["before"]["DOC"] == "__debezium_unavailable_value"


def test_an_empty_large_object_is_about_to_be_written() -> None:
    """Without the rows that write it, what it will hold is not known; a merged record tells."""
    sql = """insert into "S"."T"("ID","DOC","BIN") values ('1',EMPTY_CLOB(),EMPTY_BLOB());"""
    (row,) = typed(sql)
    assert (row["DOC"], row[metadata.UNCHANGED]) == (None, ["DOC", "BIN"])
    change = Change(Op.CREATE, None, {"ID": "1", "DOC": Sql("EMPTY_CLOB()"), "BIN": Sql("EMPTY_BLOB()")})
    (row,) = typed(payload.merged(change), code=payload.MERGED)
    assert (row["DOC"], row["BIN"], row[metadata.UNCHANGED]) == ("", b"", [])


def test_merged_records() -> None:
    before = {"ID": "1", "NAME": "a", "DOC": UNAVAILABLE}
    change = Change(
        Op.UPDATE, before, {**before, "AT": Sql(DATE), "BIN": Sql("HEXTORAW('0aff')"), "LABEL": "UNISTR('x')"}
    )
    (row,) = typed(payload.merged(change), code=payload.MERGED, ops="u")
    assert (row["ID"], row["NAME"], row["LABEL"], row["BIN"]) == (1, "a", "UNISTR('x')", b"\n\xff")
    assert row["AT"] == datetime(2024, 1, 2, 3, 4, 5)
    assert row[metadata.UNCHANGED] == ["DOC"]


def test_a_changed_key_is_a_delete_and_a_create() -> None:
    gone, new = events(MOVE)
    assert (gone["op"], gone["key"], gone["before"]["ID"], gone["after"]) == ("d", {"ID": 1}, 1, None)
    assert (new["op"], new["key"], new["before"], new["after"]["ID"]) == ("c", {"ID": 2}, None, 2)


def test_the_transaction_of_an_event() -> None:
    (event,) = events(INSERT, selection=Selection(transactions=True))
    assert event["transaction"] == {"id": "0a00140012345678", "total_order": 1, "data_collection_order": 1}


def test_a_column_that_an_update_does_not_name_stays() -> None:
    """The old row shows null, as everywhere; the new one must not."""
    (row,) = typed("""update "S"."T" set "NAME" = 'b' where "ID" = '1' and "AT" IS NULL;""")
    assert row[metadata.UNCHANGED] == ["LABEL", "DOC", "BIN"]
    (event,) = events("""update "S"."T" set "NAME" = 'b' where "ID" = '1' and "AT" IS NULL;""")
    assert (event["before"]["LABEL"], event["after"]["LABEL"]) == (None, "__debezium_unavailable_value")


@pytest.mark.parametrize(
    "sql",
    [
        """update "S"."T" set "NAME" = 'b';""",
        """delete from "S"."T" where "NAME" = 'b';""",
        """insert into "S"."T"("NAME") values ('b');""",
    ],
)
def test_a_change_of_nobody_knows_which_row_is_set_aside(sql: str) -> None:
    sure = replace(TABLE, columns=(replace(TABLE.columns[0], nullable=False), *TABLE.columns[1:]))
    with pytest.raises(UnsupportedChange, match=r"does not tell the key ID.*SUPPLEMENTAL LOG DATA"):
        decoder().typed(records(sql), sure, SELECTION)


def test_rules_apply_to_plain_texts() -> None:
    rules = (ColumnRule("truncate", "S.T.AT", 4), ColumnRule("mask", "S.T.NAME", 3))
    (row,) = typed(INSERT, selection=Selection(rules=rules))
    assert (row["AT"], row["NAME"]) == ("2024", "***")


def test_texts_are_canonical_and_unmasked() -> None:
    rules = (ColumnRule("mask", "S.T.NAME", 3),)
    (row,) = decoder().texts(records(INSERT), TABLE, Selection(rules=rules, skipped=("c",))).rows.to_pylist()
    assert (row["ID"], row["NAME"], row["AT"], row["BIN"]) == ("1", "O'Neil", "2024-01-02 03:04:05", "\\x0aff")


def test_numbered_columns_hold_the_bytes_of_the_block() -> None:
    sql = (
        """insert into "S"."T"("COL 1","COL 2","COL 3","COL 4") values """
        """(HEXTORAW('c102'),HEXTORAW('4f'),HEXTORAW('0416'),HEXTORAW('7878020304050b'));"""
    )
    (row,) = typed(sql)
    assert (row["ID"], row["NAME"], row["LABEL"], row["AT"]) == (1, "O", "Ж", datetime(2020, 2, 3, 3, 4, 10))


def test_formats_of_their_own_are_read_too() -> None:
    sql = """insert into "S"."T"("ID","AT") values ('1',TO_DATE('15-MAY-21', 'DD-MON-RR'));"""
    rows = typed(sql, INSERT)
    assert [row["AT"] for row in rows] == [datetime(2021, 5, 15), datetime(2024, 1, 2, 3, 4, 5)]


def test_apostrophes_that_are_not_doubled() -> None:
    sql = """insert into "S"."T"("ID","NAME") values ('1','it's');"""
    (row,) = typed(sql, flags=payload.RELAXED)
    assert row["NAME"] == "it's"


def test_a_truncate_has_no_rows() -> None:
    (event,) = events("truncate table T", ops="t")
    assert (event["op"], event["key"], event["before"], event["after"]) == ("t", None, None, None)
    (row,) = typed("truncate table T", ops="t")
    assert (row[metadata.OP], row["ID"]) == ("t", None)


BAD = [
    ("insert into nothing", "", "cannot be read"),
    (INSERT, "d", "another operation"),
    ("""insert into "S"."T"("ID") values ('x');""", "", "column ID"),
    ("""insert into "S"."T"("ID","AT") values ('1',TO_DATE('soon'));""", "", "column AT"),
    ("""insert into "S"."T"("ID","LABEL") values ('1',UNISTR('\\00'));""", "", "column LABEL"),
    ("""insert into "S"."T"("ID","WHAT") values ('1','2');""", "", "WHAT"),
]


@pytest.mark.parametrize(("sql", "op", "why"), BAD)
def test_what_cannot_be_decoded_stops_or_is_set_aside(sql: str, op: str, why: str) -> None:
    block = records(INSERT, sql, INSERT, ops=f"c{op or 'c'}c")
    with pytest.raises(UnsupportedChange, match=why):
        decoder().typed(block, TABLE, SELECTION)
    for shape in (decoder().typed, decoder().envelope):
        found = shape(block, TABLE, Selection(failures="dead-letter"))
        assert found.rows.num_rows == 2
        assert found.failures is not None
        (letter,) = found.failures.to_pylist()
        assert letter["ordinal"] == 1
        assert why in letter["reason"]


def test_damaged_payloads_are_set_aside() -> None:
    block = records(INSERT)
    broken = block.set_column(RECORDS.get_field_index("payload"), "payload", pa.array([b"abc"], pa.binary()))
    found = decoder().typed(broken, TABLE, Selection(failures="dead-letter"))
    assert found.rows.num_rows == 0
    assert found.failures is not None


def test_rows_of_a_chunk_read_as_the_stream_tells_them() -> None:
    texts = {"ID": "1", "NAME": "O'Neil", "LABEL": "Вы", "AT": "2024-01-02 03:04:05", "DOC": "text", "BIN": "0AFF"}
    chunk = pa.RecordBatch.from_pylist([texts])
    found = decoder().read_envelope(
        chunk, TABLE, SELECTION, snapshot="incremental", position=SCN * 4096, ts_us=7_000_000
    )
    (event,) = found.rows.to_pylist()
    (streamed,) = decoder().envelope(records(INSERT), TABLE, SELECTION).rows.to_pylist()
    assert (event["op"], event["key"], event["after"]) == ("r", streamed["key"], streamed["after"])
    source = json.loads(event["source"])
    assert (source["snapshot"], source["scn"], source["txId"], source["ts_ms"]) == (
        "incremental",
        str(SCN),
        None,
        7_000,
    )
    assert source.keys() == json.loads(streamed["source"]).keys()
    for name, text in texts.items():
        values, failed = decode.values(pa.array([text]), TABLE, TABLE.column(name), SELECTION)
        assert values.to_pylist() == [typed(INSERT)[0][name]]
        assert not failed.any()


def test_heartbeats_belong_to_no_table() -> None:
    found = decoder().envelope(records("", "", ops="hs"), None, SELECTION).rows.to_pylist()
    assert [(event["topic"], event["op"]) for event in found] == [("__debezium-heartbeat.srv", None)]
    assert json.loads(found[0]["after"]) == {"ts_ms": 5_000}


def test_an_empty_block() -> None:
    assert typed() == []
    assert events() == []
