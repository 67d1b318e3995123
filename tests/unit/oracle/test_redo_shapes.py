"""By shape or by itself, a statement reads the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.connectors.oracle.redo import dml, shapes
from tidelog.connectors.oracle.redo.dml import Unknown
from tidelog.connectors.oracle.redo.shapes import Changes
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Change, Sql, Value, quoted
from tidelog.errors import UnsupportedChange
from tidelog.model.record import Op
from tidelog.model.schema import Column, Table

NAMES = ("ID", "NAME", "É t", "DOC", "WHEN", "RAW")
COLUMNS = tuple(Column(name, "CLOB" if name == "DOC" else "VARCHAR2", 100) for name in NAMES)
TABLE = Table(1, "S", "T", COLUMNS, ("ID",))
ODD = Table(2, "S", "T", (Column("ID", "NUMBER"), Column("O'CLOCK", "VARCHAR2", 9)), ("ID",))

LITERALS = st.text(st.sampled_from("ab'é ,;()\"\\|=😀\n"), max_size=8).map(quoted) | st.just("' where \"ID\" = '")
EXPRESSIONS = st.sampled_from(
    [
        "TO_DATE('2024-01-02 03:04:05', 'YYYY-MM-DD HH24:MI:SS')",
        "HEXTORAW('0aff')",
        "UNISTR('\\0412 ''x''') || UNISTR('b')",
        "'a' || 'b'",
        "EMPTY_CLOB()",
        "/* JSON */ EMPTY_BLOB()",
        "17",
        "f((1), ('a'), g('b', c))",
        "Unsupported Type",
        "NULL",
    ]
)
VALUES = LITERALS | EXPRESSIONS | LITERALS
ROWS = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1)
ENDS = st.sampled_from([";", "", " ;", ";\n"])


def _insert(row: dict[str, str], end: str, gap: str) -> str:
    names = ",".join(f'"{name}"' for name in row)
    return f'insert into "S"."T"{gap}({names}) values ({",".join(row.values())}){end}'


def _where(row: dict[str, str], alias: str) -> str:
    told = [f'{alias}"{n}" IS NULL' if v == "NULL" else f'{alias}"{n}" = {v}' for n, v in row.items()]
    return f" where {' and '.join(told)}" if told else ""


def _update(new: dict[str, str], old: dict[str, str], alias: bool, end: str) -> str:
    dot, name = ("a.", " a") if alias else ("", "")
    assigned = ", ".join(f'{dot}"{n}" = {v}' for n, v in new.items())
    return f'update "S"."T"{name} set {assigned}{_where(old, dot)}{end}'


def _delete(old: dict[str, str], alias: bool, end: str) -> str:
    return f'delete from "S"."T"{" a" if alias else ""}{_where(old, "a." if alias else "")}{end}'


MAYBE_EMPTY = st.dictionaries(st.sampled_from(NAMES), VALUES)
STATEMENTS = (
    st.builds(_insert, ROWS, ENDS, st.sampled_from(["", " "]))
    | st.builds(_update, ROWS, MAYBE_EMPTY, st.booleans(), ENDS)
    | st.builds(_delete, MAYBE_EMPTY, st.booleans(), ENDS)
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A statement with a character lost, doubled or put in."""
    sql = draw(STATEMENTS)
    place = draw(st.integers(0, len(sql)))
    return sql[:place] + draw(st.sampled_from(["", "'", "''", '"', ")", "x"])) + sql[place + draw(st.integers(0, 2)) :]


def _scalar(sql: str, table: Table, relaxed: bool, untold: Unknown) -> Change | str:
    try:
        return dml.parse(sql, table, relaxed=relaxed, untold=untold)
    except UnsupportedChange as refused:
        return refused.message


def _exact(image: object) -> object:
    """Values with their kinds, for an expression equals a literal of the same text."""
    return {n: (type(v).__name__, v) for n, v in image.items()} if isinstance(image, dict) else image


def _same(found: Changes, row: int, expected: Change | str) -> None:
    if isinstance(expected, str):
        assert found.failed[row] == expected
        assert found.ops[row] == 0
        return
    told = found.change(row)
    assert told.op == expected.op
    assert _exact(told.before) == _exact(expected.before)
    assert _exact(told.after) == _exact(expected.after)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(STATEMENTS | damaged(), st.booleans() | st.just(False)), max_size=12),
    st.sampled_from([None, UNAVAILABLE]),
)
def test_by_shape_is_as_by_itself(rows: list[tuple[str, bool]], untold: Unknown) -> None:
    relaxed = np.array([flag for _, flag in rows], np.bool_)
    found = shapes.read(pa.array([sql for sql, _ in rows], pa.binary()), TABLE, relaxed, untold=untold)
    for row, (sql, flag) in enumerate(rows):
        _same(found, row, _scalar(sql, TABLE, flag, untold))


def _read(*statements: str, table: Table = TABLE) -> Changes:
    return shapes.read(pa.array(statements, pa.binary()), table)


def test_a_block_may_begin_in_the_middle_of_its_buffer() -> None:
    sql = [f"""insert into "S"."T"("ID","NAME") values ('{i}','it''s {i}');""" for i in range(5)]
    found = shapes.read(pa.array(sql, pa.binary())[2:4], TABLE)
    assert found.after.texts(0).to_pylist() == ["2", "3"]
    assert found.after.texts(1).to_pylist() == ["it's 2", "it's 3"]


def test_nothing_is_nothing() -> None:
    found = shapes.read(pa.array([], pa.binary()), TABLE)
    assert len(found.ops) == 0
    assert found.after.texts(0).to_pylist() == []
    assert found.after.kinds.shape == (6, 0)


def test_some_rows_of_a_block() -> None:
    found = _read(
        """insert into "S"."T"("ID","NAME") values ('1','a''b');""",
        """delete from "S"."T" where "ID" = '2';""",
        """update "S"."T" set "NAME" = 'broken where "ID" = '3';""",
        """update "S"."T" set "NAME" = UNISTR('c') where "ID" = '4';""",
    )
    some = found.after.at(np.array([True, False, True, True]))
    assert some.texts(0).to_pylist() == ["1", None, "4"]
    assert some.texts(1).to_pylist() == ["a'b", None, "UNISTR('c')"]
    assert bytes(some.kind(1)) == b"tns"
    assert list(found.failed) == [2]
    assert bytes(found.ops) == b"cd\0u"


def test_names_with_apostrophes_are_read_one_by_one() -> None:
    found = _read("""insert into "S"."T"("ID","O'CLOCK") values ('1','it''s');""", table=ODD)
    assert found.change(0).after == {"ID": "1", "O'CLOCK": "it's"}


def test_rows_that_are_known_already() -> None:
    known = Change(Op.UPDATE, {"ID": "1", "DOC": UNAVAILABLE}, {"ID": "1", "DOC": Sql("EMPTY_CLOB()")})
    statements = pa.array([b'{"it\'s": "json"}', b"no json either"], pa.binary())
    found = shapes.read(statements, TABLE, None, {0: known, 1: "damaged"})
    row: dict[str, Value] = dict.fromkeys(NAMES)
    assert found.change(0).after == {**row, "ID": "1", "DOC": "EMPTY_CLOB()"}
    assert found.change(0).before == {**row, "ID": "1", "DOC": UNAVAILABLE}
    assert found.failed == {1: "damaged"}


def test_bytes_that_are_no_text_spoil_only_themselves() -> None:
    rows = [b"""insert into "S"."T"("ID") values ('\xff');""", b"""insert into "S"."T"("ID") values ('1');"""]
    found = shapes.read(pa.array([*rows, b"\xff'"], pa.binary()), TABLE)
    assert found.after.texts(0).view(pa.binary()).to_pylist() == [b"\xff", b"1", None]
    assert found.failed == {2: "the redo SQL is not valid UTF-8"}
