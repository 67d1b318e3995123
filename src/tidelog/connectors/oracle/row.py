"""Rows of V$LOGMNR_CONTENTS as columns.

The driver hands over tuples. They are turned into numpy columns at once, one pass for each column; a statement that
goes on in the next rows (CSF) is joined on the way. Statements are bytes, because some are no valid UTF-8: who decodes
them says so. Nothing here knows what a row means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.connectors.oracle.redo import fragments

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Texts = NDArray[np.object_]
Fetched = tuple[Any, ...]

_NUMBERS = {
    "scn": "SCN",
    "code": "OPERATION_CODE",
    "rollback": "ROLLBACK",
    "status": "STATUS",
    "ssn": "SSN",
    "thread": "THREAD#",
    "object": "DATA_OBJ#",
    "object_version": "DATA_OBJV#",
    "data_object": "DATA_OBJD#",
    "start_scn": "START_SCN",
    "commit_scn": "COMMIT_SCN",
    "sequence": "SEQUENCE#",
}
_TIMES = {"time_us": "TIMESTAMP", "start_us": "START_TIMESTAMP", "commit_us": "COMMIT_TIMESTAMP"}
_TEXTS = {
    "sql": "SQL_REDO",  # as bytes
    "table": "TABLE_NAME",
    "owner": "SEG_OWNER",
    "operation": "OPERATION",
    "rowid": "ROW_ID",
    "info": "INFO",
    "rs_id": "RS_ID",
    "user": "USERNAME",
    "client": "CLIENT_ID",
}
_NUMBER_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1)  # as the server's clock shows it, without a zone
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Rows:
    """Columns that the query leaves out, and NULLs, are 0 or None."""

    xid: Ints
    """The eight bytes as a signed number."""
    scn: Ints
    code: Ints
    rollback: Ints
    status: Ints
    ssn: Ints
    thread: Ints
    object: Ints
    object_version: Ints
    data_object: Ints
    start_scn: Ints
    commit_scn: Ints
    sequence: Ints
    time_us: Ints
    start_us: Ints
    commit_us: Ints
    sql: Texts
    """Bytes."""
    table: Texts
    owner: Texts
    operation: Texts
    rowid: Texts
    info: Texts
    rs_id: Texts
    user: Texts
    client: Texts

    def __len__(self) -> int:
        return len(self.scn)

    def part(self, first: int, last: int) -> Rows:
        return Rows(**{f.name: getattr(self, f.name)[first:last] for f in fields(self)})

    def take(self, which: Ints | Mask) -> Rows:
        return Rows(**{f.name: getattr(self, f.name)[which] for f in fields(self)})


def read(fetched: Sequence[Fetched], names: Sequence[str], ahead_us: int = 0) -> Rows:
    """`names` are the columns of the tuples; the server's clock is `ahead_us` before UTC. The last statement has to be
    complete."""
    count = len(fetched)
    columns = dict(zip(names, zip(*fetched, strict=True), strict=True)) if count else {}
    found: dict[str, Any] = {"xid": _xids(columns.get("XID"), count)}
    found |= {field: _numbers(columns.get(name), count) for field, name in _NUMBERS.items()}
    found |= {field: _times(columns.get(name), count, ahead_us) for field, name in _TIMES.items()}
    found |= {field: _texts(columns.get(name), count) for field, name in _TEXTS.items()}
    return _joined(Rows(**found), _numbers(columns.get("CSF"), count))


def _numbers(column: Sequence[Any] | None, count: int) -> Ints:
    if column is None:
        return np.zeros(count, np.int64)
    try:
        return np.array(column, np.int64)
    except (TypeError, OverflowError):  # some are NULL, or the greatest SCN there is, which means none
        return np.array([value if value and value <= _NUMBER_MAX else 0 for value in column], np.int64)


def _xids(column: Sequence[bytes | None] | None, count: int) -> Ints:
    if column is None:
        return np.zeros(count, np.int64)
    joined = b"".join(value or bytes(8) for value in column)
    return np.frombuffer(joined, ">i8").astype(np.int64)


def _times(column: Sequence[datetime | None] | None, count: int, ahead_us: int) -> Ints:
    """The log tells times in seconds: many rows share one, and few have to be converted."""
    if column is None:
        return np.zeros(count, np.int64)
    known = {time: 0 if time is None else (time - _EPOCH) // _MICROSECOND - ahead_us for time in set(column)}
    return np.fromiter(map(known.__getitem__, column), np.int64, count)


def _texts(column: Sequence[Any] | None, count: int) -> Texts:
    found = np.empty(count, np.object_)
    if column is not None:
        found[:] = column
    return found


def _joined(rows: Rows, csf: Ints) -> Rows:
    """One row for each statement: its first, with the text of all."""
    if not csf.any():
        return rows
    goes_on = csf[:-1] != 0
    heads = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    ends = np.concatenate([heads[1:], [len(csf)]])
    for head, end in zip(heads.tolist(), ends.tolist(), strict=True):
        if end > head + 1:
            rows.sql[head] = fragments.join(zip(csf[head:end].tolist(), rows.sql[head:end].tolist(), strict=True))
    return rows.take(heads)


class Feed:
    """What was fetched, in pieces that can be looked at alone: no statement is cut, and, if `whole`, no SCN either, so
    that each piece is known to hold all that was logged up to its last SCN."""

    def __init__(self, names: Sequence[str], *, whole: bool, ahead_us: int = 0) -> None:
        self._names = names
        self._whole = whole
        self._ahead_us = ahead_us
        self._csf, self._scn = names.index("CSF"), names.index("SCN")
        self._held: list[Fetched] = []

    def push(self, fetched: Sequence[Fetched]) -> Rows:
        rows = [*self._held, *fetched]
        end = self._complete(rows)
        self._held = rows[end:]
        return self._read(rows[:end])

    def finish(self) -> Rows:
        """Nothing more comes."""
        rows, self._held = self._held, []
        return self._read(rows)

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def _complete(self, rows: Sequence[Fetched]) -> int:
        end = len(rows)
        while end and rows[end - 1][self._csf]:
            end -= 1
        if self._whole and rows:
            last = rows[-1][self._scn]
            while end and rows[end - 1][self._scn] == last:
                end -= 1
        return end

    def _read(self, rows: Sequence[Fetched]) -> Rows:
        return read(rows, self._names, self._ahead_us)
