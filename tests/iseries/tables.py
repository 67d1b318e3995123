"""The rows of tables, kept by SQLite: it answers the SQL of reads and walks, put into its own words."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from tests.iseries.records import CODECS
from tests.iseries.system import File

_WORDS = (
    (r" WITH CS WAIT FOR OUTCOME", ""),
    (r'CAST\(CAST\(("\w+") AS VARCHAR\(\d+\) FOR BIT DATA\) AS VARCHAR\(\d+\) CCSID (\d+)\)', r"TAGGED(\1, \2)"),
    (r" CCSID 1208", ""),
    (r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY", r"LIMIT 1 OFFSET \1"),
    (r"FETCH FIRST 1 ROW ONLY", "LIMIT 1"),
    (r"CAST\(('[^']*') AS (DATE|TIME|TIMESTAMP)\)", r"\1"),
    (r"BX'", "X'"),
    (r'"\w+"\."(\w+)"', r'"\1"'),
    (r"CHAR\((\"\w+\"), (?:ISO|JIS)\)", r"\1"),
    (r" DESC\b", " DESC NULLS FIRST"),
)


class Tables:
    def __init__(self, *files: File) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.create_function("VARCHAR", 1, lambda v: None if v is None else _written(v))
        self._db.create_function("TAGGED", 2, lambda raw, ccsid: None if raw is None else raw.decode(CODECS[ccsid]))
        for file in files:
            columns = ", ".join(f'"{f.name}" {_affinity(f.type)}' for f in file.fields)
            self._db.execute(f'CREATE TABLE "{file.sql[1]}" ({columns})')

    def insert(self, file: File, *rows: tuple[Any, ...]) -> None:
        marks = ",".join("?" * len(file.fields))
        self._db.executemany(f'INSERT INTO "{file.sql[1]}" VALUES ({marks})', rows)

    def query(self, sql: str) -> list[list[Any]]:
        if "SYSTABLESTAT" in sql:
            return [[17]]
        for pattern, words in _WORDS:
            sql = re.sub(pattern, words, sql)
        sql = re.sub(r"ORDER BY ((?:\"\w+\"(?:, )?)+) LIMIT", _nulls_last, sql)
        return [list(row) for row in self._db.execute(sql)]


def _nulls_last(found: re.Match[str]) -> str:
    return "ORDER BY " + ", ".join(f"{name} NULLS LAST" for name in found[1].split(", ")) + " LIMIT"


def _affinity(type: str) -> str:
    return {"INTEGER": "INTEGER", "BIGINT": "INTEGER", "DECIMAL": "NUMERIC", "VARBIN": "BLOB"}.get(type, "TEXT")


def _written(value: Any) -> str:
    """As Db2 writes numbers: without a zero before the point."""
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return re.sub(r"^(-?)0\.", r"\1.", text)
