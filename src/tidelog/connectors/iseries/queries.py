"""The SQL that reads a journal. Names and numbers stand in the text: they are the system's own, or checked by us."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tidelog.connectors.iseries import position, receivers
from tidelog.connectors.iseries.entries import CODES, TYPES, Entry
from tidelog.connectors.iseries.receivers import Receiver

PIECE = 16_000
"""HEX takes no more bytes at once."""
TIMEZONE = "SELECT CURRENT TIMEZONE FROM SYSIBM.SYSDUMMY1"
"""How far the system's clock is ahead of UTC, as a number of the form hhmmss."""
_FIXED = """CAST(SEQUENCE_NUMBER AS BIGINT) AS SEQUENCE, JOURNAL_CODE, JOURNAL_ENTRY_TYPE, OBJECT,
       CAST(COUNT_OR_RRN AS BIGINT) AS RRN, CAST(COMMIT_CYCLE AS BIGINT) AS CYCLE,
       CAST(ENTRY_TIMESTAMP AS VARCHAR(32)) AS MOMENT, NULL_VALUE_INDICATORS"""
_COLUMNS = 8


def entries(
    journal: tuple[str, str],
    receiver: Receiver,
    first: int,
    last: int,
    *,
    libraries: Collection[str],
    width: int,
    cycles: Collection[int] = (),
) -> str:
    """Entries `first` to `last` of a receiver: of files in these libraries, with rows of up to `width` bytes; where
    `cycles` are given, of these transactions alone."""
    pieces = ", ".join(_piece(i) for i in range(max(1, -(-width // PIECE))))
    arguments = ", ".join(
        (
            f"JOURNAL_LIBRARY => {literal(journal[0])}, JOURNAL_NAME => {literal(journal[1])}",
            f"STARTING_RECEIVER_LIBRARY => {literal(receiver.library)}",
            f"STARTING_RECEIVER_NAME => {literal(receiver.name)}, STARTING_SEQUENCE => {int(first)}",
            f"ENDING_RECEIVER_LIBRARY => {literal(receiver.library)}",
            f"ENDING_RECEIVER_NAME => {literal(receiver.name)}, ENDING_SEQUENCE => {int(last)}",
        )
    )
    places = _list(f"{name:<10}" for name in sorted(libraries)) or "''"
    conditions = [
        f"JOURNAL_CODE IN ({_list(CODES)})",
        f"JOURNAL_ENTRY_TYPE IN ({_list(TYPES)})",
        f"(JOURNAL_CODE IN ('C', 'D') OR SUBSTR(OBJECT, 11, 10) IN ({places}))",
    ]
    if cycles:
        conditions.append(f"COALESCE(COMMIT_CYCLE, 0) IN ({', '.join(str(int(c)) for c in sorted(cycles))})")
    return (
        f"SELECT {_FIXED}, {pieces}\n  FROM TABLE(QSYS2.DISPLAY_JOURNAL({arguments})) AS J\n"
        f" WHERE {' AND '.join(conditions)}\n ORDER BY SEQUENCE_NUMBER"
    )


def _piece(index: int) -> str:
    """A part of the image in hexadecimal digits. SUBSTR pads what it is asked for with zeros, so it is never asked for
    more than is there; nor for less than nothing, in whichever order the system evaluates."""
    start = index * PIECE
    length = f"MIN({PIECE}, MAX(0, LENGTH(ENTRY_DATA) - {start}))"
    part = f"SUBSTR(ENTRY_DATA, {start + 1}, {length})"
    return f"HEX(CAST({part} AS VARCHAR({PIECE}) FOR BIT DATA)) AS IMAGE{index}"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _list(texts: Iterable[str]) -> str:
    return ", ".join(literal(text) for text in texts)


def read(row: Sequence[Any], receiver: Receiver, ahead_s: int) -> Entry:
    """A row of `entries`. `ahead_s` is the system's distance from UTC."""
    sequence, code, kind, name, rrn, cycle, moment, nulls = row[:_COLUMNS]
    name = str(name or "").ljust(30)
    return Entry(
        position=position.of(receiver.minute, int(sequence)),
        sequence=int(sequence),
        receiver=receiver.name,
        receiver_library=receiver.library,
        code=str(code).strip(),
        type=str(kind).strip(),
        library=name[10:20].rstrip(),
        file=name[:10].rstrip(),
        member=name[20:30].rstrip(),
        rrn=int(rrn or 0),
        cycle=int(cycle or 0),
        time_us=micros(str(moment), ahead_s),
        nulls=str(nulls or "").rstrip().encode("ascii", "replace"),
        image=bytes.fromhex("".join(piece for piece in row[_COLUMNS:] if piece)),
    )


def micros(moment: str, ahead_s: int) -> int:
    """Microseconds since 1970 in UTC, of a time that the system's clock showed."""
    shown = receivers.moment(moment).replace(tzinfo=UTC) - _EPOCH
    return (shown.days * 86_400 + shown.seconds - ahead_s) * 1_000_000 + shown.microseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ahead(number: Any) -> int:
    """Seconds, from the number hhmmss that CURRENT TIMEZONE is."""
    value = int(float(number or 0))
    hours, rest = divmod(abs(value), 10_000)
    seconds = hours * 3600 + rest // 100 * 60 + rest % 100
    return -seconds if value < 0 else seconds
