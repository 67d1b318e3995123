"""The simulated Db2 does what the reference says, also where that is awkward."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from mapepire_python import DatabaseError

from tests.iseries.select import condition, selected
from tidelog.connectors.iseries import queries

ROW = {
    "ENTRY_DATA": b"\1\2\3",
    "OBJECT": "ORDERS    SHOP      ",
    "COMMIT_CYCLE": None,
    "SEQUENCE_NUMBER": Decimal(7),
    "ENTRY_TIMESTAMP": datetime(2026, 3, 1, 8, 9, 10),
}


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SUBSTR(ENTRY_DATA, 2)", b"\2\3"),
        ("SUBSTR(ENTRY_DATA, 2, 4)", b"\2\3\0\0"),
        ("SUBSTR(ENTRY_DATA, 9, 2)", b"\0\0"),
        ("SUBSTR(ENTRY_DATA, 9)", b""),
        ("SUBSTR(OBJECT, 11, 5)", "SHOP "),
        ("SUBSTR(OBJECT, 19, 4)", "    "),
        ("HEX(CAST(SUBSTR(ENTRY_DATA, 1, 2) AS VARCHAR(9) FOR BIT DATA))", "0102"),
        ("MIN(4, MAX(0, LENGTH(ENTRY_DATA) - 5))", 0),
        ("COALESCE(COMMIT_CYCLE, 0)", 0),
        ("LENGTH(COMMIT_CYCLE)", None),
        ("CASE WHEN LENGTH(ENTRY_DATA) > 3 THEN 'more' WHEN COMMIT_CYCLE > 0 THEN 'some' ELSE 'less' END", "less"),
        ("CAST(SEQUENCE_NUMBER AS BIGINT) AS N", 7),
        ("CAST(ENTRY_TIMESTAMP AS VARCHAR(32))", "2026-03-01-08.09.10.000000"),
    ],
)
def test_expressions(sql: str, value: Any) -> None:
    (found,) = selected(sql)
    assert found(ROW) == value


@pytest.mark.parametrize(
    ("sql", "holds"),
    [
        ("SUBSTR(OBJECT, 11, 10) IN ('OTHER     ', 'SHOP')", True),
        ("COMMIT_CYCLE IN (0, 7)", False),
        ("COMMIT_CYCLE IN (0) OR (SEQUENCE_NUMBER >= 7 AND SEQUENCE_NUMBER <> 8)", True),
    ],
)
def test_conditions(sql: str, holds: bool) -> None:
    assert bool(condition(sql)(ROW)) is holds


@pytest.mark.parametrize(
    ("sql", "says"), [("SEQUENCE_NO", "SEQUENCE_NO not found"), ("SUBSTR(OBJECT, 1, 0 - 1)", "Argument 3")]
)
def test_what_db2_refuses(sql: str, says: str) -> None:
    with pytest.raises(DatabaseError, match=says):
        selected(sql)[0](ROW)


@pytest.mark.parametrize("length", [0, 1, 3, 15_999, 16_000, 16_001, 32_000, 32_001])
def test_pieces_are_the_image_whichever_of_them_there_are(length: int) -> None:
    data = bytes(i % 251 for i in range(length))
    pieces = [selected(queries._piece(i))[0]({"ENTRY_DATA": data}) for i in range(4)]
    assert bytes.fromhex("".join(pieces)) == data
