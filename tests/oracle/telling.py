"""How a change is told in the redo: by one statement, or, where it has large values, by several operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle import literals, redo
from tests.oracle.literals import Column

if TYPE_CHECKING:
    from tests.oracle.database import Relation, Row, Transaction

_LOB_PIECE = 700


def tell(
    by: Transaction, relation: Relation, op: str, place: str, before: Row | None, after: Row | None
) -> tuple[int, ...]:
    """Write a change; the orders of its entries."""
    owner, name, columns = relation.owner, relation.name, relation.columns
    if op == "d":
        assert before is not None
        sql = literals.delete(owner, name, columns, before)
        return (by.database.write(by, redo.DELETE, relation, sql=sql, row_id=place),)
    assert after is not None
    apart = [c for c in columns if c.large and _apart(c, before, after)]
    if op == "c":
        return _insert(by, relation, place, after, apart)
    assert before is not None
    return _update(by, relation, place, before, after, apart)


def _apart(column: Column, before: Row | None, after: Row) -> bool:
    """Whether a large value is written by operations of its own, and not by the statement itself."""
    value = after[column.name]
    if value is None or (before is not None and before[column.name] == value):
        return False
    return column.type == "XMLTYPE" or len(value) > 100


def _insert(by: Transaction, relation: Relation, place: str, after: Row, apart: list[Column]) -> tuple[int, ...]:
    names = {c.name for c in apart}
    lacking = [c for c in relation.columns if c.type in literals.EMPTY and after[c.name] is None]
    split = not apart and bool(lacking) and by.database.rng.random() < 0.5
    if split:
        names = {c.name for c in lacking}
    sql = literals.insert(relation.owner, relation.name, relation.columns, after, names)
    first = by.database.write(by, redo.INSERT, relation, sql=sql, row_id=redo.NO_ROW if split else place)
    if split:
        return first, _nothing(by, relation, place, after, names)
    written = [order for column in apart for order in _value(by, relation, place, after, column)]
    return (first, *written)


def _nothing(by: Transaction, relation: Relation, place: str, row: Row, names: set[str]) -> int:
    """A row without its large values may come in two: it gets empty ones, before its place is known, then none."""
    sql = literals.update(relation.owner, relation.name, relation.columns, row, dict.fromkeys(names))
    return by.database.write(by, redo.UPDATE, relation, sql=sql, row_id=place)


def _update(
    by: Transaction, relation: Relation, place: str, before: Row, after: Row, apart: list[Column]
) -> tuple[int, ...]:
    names = {c.name for c in apart}
    changed = {k: v for k, v in after.items() if before[k] != v and k not in names}
    found: list[int] = []
    if changed or not apart:
        sql = literals.update(relation.owner, relation.name, relation.columns, before, changed or dict(after))
        found.append(by.database.write(by, redo.UPDATE, relation, sql=sql, row_id=place))
    found += [order for column in apart for order in _value(by, relation, place, after, column, again=True)]
    return tuple(found)


def _value(
    by: Transaction, relation: Relation, place: str, row: Row, column: Column, *, again: bool = False
) -> list[int]:
    """A large value, in pieces. A LOB that had one before is emptied first, or cut where the new one ends: storage
    decides."""
    value = row[column.name]
    parts = [value[n : n + _LOB_PIECE] for n in range(0, len(value), _LOB_PIECE)]
    names = (relation.owner, relation.name, relation.columns, row, column)

    def put(code: int, sql: str, info: str | None = None) -> int:
        return by.database.write(by, code, relation, sql=sql, row_id=place, info=info)

    if column.type == "XMLTYPE":
        info = "XML sql_redo not re-executable"
        found = [put(redo.XML_BEGIN, literals.xml_begin(*names), info)]
        more = "XML DOC write not re-executable"
        found += [put(redo.XML_WRITE, literals.xml_write(part), more) for part in parts]
        return [*found, put(redo.XML_END, "XML DOC END", info)]
    if column.extended:
        found = [put(redo.STRING_BEGIN, literals.string_begin(*names))]
        found += [put(redo.STRING_WRITE, literals.string_write(part)) for part in parts]
        return [*found, put(redo.STRING_END, " execute immediate Stmt using TempLob;\nEND;")]
    found = [put(redo.LOB_LOCATOR, literals.locator(*names))]
    emptied = again and by.database.rng.random() < 0.5
    found += [put(redo.LOB_TRIM, literals.lob_trim(column, 0))] if emptied else []
    offset = 0
    for part in parts:
        found.append(put(redo.LOB_WRITE, literals.lob_write(column, offset, part)))
        offset += len(part)
    return [*found, put(redo.LOB_TRIM, literals.lob_trim(column, offset))] if again and not emptied else found
