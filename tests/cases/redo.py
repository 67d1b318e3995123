"""Cases of redo SQL: statements, fragments, and large objects out of their pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.connectors.oracle.redo import dml, fragments, literals, lobs, rowid, shapes
from tidelog.connectors.oracle.redo.fragments import Begun, Piece
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Value
from tidelog.errors import TidelogError
from tidelog.model.schema import Column, Table

Case = Mapping[str, Any]
Given = Mapping[str, Any]

DECIDED_AGAINST = {
    "oracle_redo_fragments/select_lob_locator.shouldParseColumnWithEscapedSingleQuoteColumnValues": (
        "doubled apostrophes are one everywhere, or a key with one in it would not find its row"
    ),
}
OPS = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}


def run(file: str, case: Case) -> Any:
    try:
        return ADAPTERS[file](case)
    except TidelogError:
        return {"error": True}


def _table(given: Given) -> Table:
    """Generated columns are in no catalog of ours: the log does not tell them."""
    schema, _, name = given.get("table", "S.T").partition(".")
    columns = [c if isinstance(c, Mapping) else {"name": c} for c in given["columns"]]
    return Table(
        1,
        schema,
        name,
        tuple(
            Column(c["name"], c.get("type", "VARCHAR2"), c.get("length", -1)) for c in columns if not c.get("generated")
        ),
    )


def _shown(value: Value) -> Any:
    return {"$unavailable": True} if value is UNAVAILABLE else value


def _image(image: Mapping[str, Value] | None, name: str, expected: Mapping[str, Any]) -> Any:
    """All columns, but where a case does not say how many there are, those that it names."""
    if image is None:
        return None
    named = expected.get(name) if f"{name}_columns" not in expected else None
    return {column: _shown(value) for column, value in image.items() if not named or column in named}


def _statement(case: Case) -> Any:
    given, expected = case["input"], case["expected"]
    table, relaxed = _table(given), bool(given.get("relaxed_quotes"))
    change = dml.parse(given["sql"], table, relaxed=relaxed)
    assert _vectorised(given["sql"], table, relaxed) == change
    images = {"before": change.before, "after": change.after}
    counts = {f"{name}_columns": len(image) for name, image in images.items() if image is not None}
    return {"op": OPS[change.op], **{name: _image(image, name, expected) for name, image in images.items()}, **counts}


def _vectorised(sql: str, table: Table, relaxed: bool) -> Change:
    found = shapes.read(pa.array([sql], pa.binary()), table, np.array([relaxed]))
    return found.change(0)


def _locator(given: Given) -> Any:
    return _begun(fragments.locator(given["redo_sql"], _table(given)))


def _begun(found: Begun) -> Any:
    place = {"column": found.column, "owner": found.schema, "table": found.table}
    return {**place, "binary": found.binary, "key_values": dict(found.row)}


def _xml_write(given: Given) -> Any:
    """A row without SQL writes nothing."""
    sql = given["redo_sql"]
    piece = Piece(None, 0) if sql is None else fragments.xml_write(sql, given["charset"])
    return {"xml": piece.data, "length": piece.length}


def _lob_write(given: Given) -> Any:
    if given["redo_sql"] is None:
        return None
    piece = fragments.lob_write(given["redo_sql"])
    return {"offset": piece.offset, "length": piece.length, "data": piece.data}


def _joined(given: Given) -> Any:
    """`a*4000` stands for 4,000 letters."""
    rows = [(row["csf"], _repeated(row["sql"])) for row in given["rows"]]
    found = fragments.join(rows)
    return {"length": len(found)} if found is not None and len(found) > 1000 else found


def _repeated(text: str | None) -> str | None:
    letter, star, times = (text or "").partition("*")
    return letter * int(times) if star else text


def _string_write(given: Given) -> Any:
    piece = fragments.string_write(given["redo_sql"])
    return {"data": piece.data, "length": piece.length}


FRAGMENTS: dict[str, Callable[[Given], Any]] = {
    "select_lob_locator": _locator,
    "lob_write": _lob_write,
    "xml_begin": lambda g: _begun(fragments.xml_begin(g["redo_sql"], _table(g))),
    "xml_write": _xml_write,
    "extended_string_begin": lambda g: _begun(fragments.string_begin(g["redo_sql"], _table(g))),
    "extended_string_write": _string_write,
    "unistr": lambda g: None if g["value"] is None else literals.text_of(g["value"]),
    "csf": _joined,
    "xid": lambda g: g["bytes_utf8"].encode().hex(),
    "rowid_roundtrip": lambda g: str(rowid.parse(g["rowid"])),
}


def _lob(given: Given) -> Any:
    pieces = [Piece(_value(write["data"]), 0, write["offset"]) for write in given["writes"]]
    found = lobs.written(_value(given["initial"]), pieces)
    digits = literals.hex_digits(found) if isinstance(found, Sql) else None
    return found if digits is None else {"hex": digits.lower()}


def _value(text: str | None) -> Value:
    """The cases write expressions and literals alike."""
    if text is not None and (literals.is_empty(text) or literals.hex_digits(text) is not None):
        return Sql(text)
    return text


ADAPTERS: dict[str, Callable[[Case], Any]] = {
    "oracle_dml_parser": _statement,
    "oracle_redo_fragments": lambda case: FRAGMENTS[case["input"]["op"]](case["input"]),
    "oracle_lob_merge": lambda case: _lob(case["input"]),
}
