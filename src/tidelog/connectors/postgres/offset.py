"""The offset document of PostgreSQL connectors, with the keys their users know.

We deliver whole transactions, so the three LSNs agree: everything before them is delivered. A document that another
connector wrote in the middle of a transaction is read as its last commit: the transaction comes again as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.connectors.postgres import position
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets import moments
from tidelog.core.offsets.common import INCREMENTAL, SNAPSHOT, SNAPSHOT_COMPLETED, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, Kind, expected, flag, text, whole
from tidelog.core.offsets.partition import Partition
from tidelog.core.offsets.problem import Problem
from tidelog.errors import ConfigError

_POSITIONS = ("lsn_commit", "lsn_proc", "lsn")
_MISSING = Problem("", "The offset has none of lsn_commit, lsn_proc and lsn.", "Give at least lsn.")


def _lsn(value: Any) -> int:
    """A number; the form that the server prints is named in the hint, not taken for it."""
    if isinstance(value, str) and re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", value):
        raise expected("a whole number", value, hint=f"Write the LSN as a number: {position.parse(value)}.")
    number: int = whole().read(value)
    return number


_LSN = Kind("an LSN as a whole number", _lsn, whole().schema)


def _somewhere(offset: Mapping[str, Any]) -> Iterator[Problem]:
    if all(offset.get(name) is None for name in _POSITIONS):
        yield _MISSING


_PLACE = ("ts_usec", "txId", "lsn", "xmin", "lsn_proc", "lsn_commit", "messageType", "lsn_events_processed")

DOCUMENT = Document(
    title="PostgreSQL",
    fields=(
        Field("ts_usec", "When the last transaction committed, in microseconds since 1970.", whole(), 1600733377000000),
        Field("txId", "The number of the last transaction.", whole(), 560),
        Field("lsn", "The LSN of the last event.", _LSN, 23876608),
        Field("xmin", "The oldest transaction that was still running, as its slot knew it.", whole(), 555),
        Field("lsn_proc", "The LSN up to which all events were delivered.", _LSN, 23876592),
        Field("lsn_commit", "The LSN of the last delivered commit; reading goes on here.", _LSN, 23876592),
        Field("messageType", "The kind of the last event.", text("[A-Z_]+", "INSERT"), "INSERT"),
        Field(
            "lsn_events_processed",
            "How many events with the last LSN were delivered: some share one.",
            whole(),
            1,
            silent=(0,),
        ),
        SNAPSHOT,
        Field("last_snapshot_record", "Whether it was the last row of the snapshot.", flag(in_quotes=True), False),
        SNAPSHOT_COMPLETED,
        *TRANSACTION,
        *INCREMENTAL,
    ),
    partition=Partition("one for the whole database, by its topic prefix."),
    forms=(
        Form(
            "snapshot",
            "a snapshot",
            (*_PLACE, "snapshot", "last_snapshot_record", "snapshot_completed"),
            mark="snapshot",
        ),
        Form("streaming", "streaming", _PLACE),
    ),
    rules=(_somewhere,),
)


def document(at: int, xid: int, committed: int) -> dict[str, int]:
    lsn = position.resume(at)
    written = {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn}
    return written | ({"txId": xid, "ts_usec": committed} if committed else {})


def position_of(read: Mapping[str, Any]) -> int:
    """Where a document says that reading goes on; it may be one that stands in a checkpoint, among our own keys."""
    for name in (*_POSITIONS, "txId", "ts_usec", "xmin", "lsn_events_processed"):
        if read.get(name) is not None and (isinstance(read[name], bool) or not isinstance(read[name], int)):
            raise ConfigError(f"The offset's {name} is {read[name]!r}, not a whole number.", hint="Correct it.")
    for name in _POSITIONS:
        if read.get(name) is not None:
            return int(read[name])
    raise ConfigError(_MISSING.message, hint=_MISSING.hint)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    return orders.of(position_of(DOCUMENT.read(a)), position_of(DOCUMENT.read(b)))


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    parts = [f"LSN {_shown(position_of(read))}"]
    if "txId" in read:
        parts.append(f"transaction {read['txId']}")
    if "ts_usec" in read:
        parts.append(f"committed {moments.utc(read['ts_usec'])}")
    return ", ".join([*parts, "in a snapshot"] if "snapshot" in read else parts)


def _shown(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def edited(offset: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """An offset that a person moves by one of the names of its place: the others say the same, and what was told of
    the transaction there is gone."""
    told = [changes[name] for name in _POSITIONS if name in changes]
    if not told:
        return {**offset, **changes}
    there = {name: told[0] for name in _POSITIONS if name in offset}
    return {**{k: v for k, v in offset.items() if k not in _PLACE}, **there, **changes}
