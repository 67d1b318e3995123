"""The offset documents of Oracle connectors: each adapter has a form of its own.

With LogMiner, `scn` is where reading begins and `commit_scn` says what was delivered; `txId` and `txSeq` are a place
inside a transaction. The buffered adapter counts `txSeq` itself and the unbuffered one takes it from the log, so the
two are not interchangeable. XStream has a position instead, OpenLogReplicator an index beside its SCN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.connectors.oracle import scn
from tidelog.connectors.oracle.scn import COMMIT_SCN, SCN
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets.common import INCREMENTAL, SNAPSHOT, SNAPSHOT_COMPLETED, TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, Null, expected, flag, parsed, text, whole
from tidelog.core.offsets.partition import Partition
from tidelog.core.offsets.problem import Problem

_PENDING = re.compile(r"[0-9a-zA-Z.]+:[0-9]{1,20}")


def _position(value: str) -> str:
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", value):
        raise expected("the bytes of an LCR position in hexadecimal", value, hint="Write it like 00000000000600000001.")
    return value.lower()


def _pending(value: str) -> str | None:
    entries = [entry.strip() for entry in value.split(",")] if value.strip() else []
    for entry in entries:
        if not _PENDING.fullmatch(entry):
            raise expected("transactions with their SCNs", entry, hint="Write transaction:scn,transaction:scn.")
    return ",".join(entries).lower() or None


_FIELDS = (
    Field("scn", "The SCN from which the log is read.", SCN, "745688898023", null=Null.KEPT),
    Field("scn_idx", "OpenLogReplicator: the index of its checkpoint at this SCN.", whole(), 7),
    Field(
        "lcr_position",
        "XStream: the position of the last delivered change record, in hexadecimal.",
        parsed("an LCR position", _position, "^(?:[0-9a-fA-F]{2})+$"),
        "00000000000600000001",
    ),
    Field(
        "commit_scn",
        "What was delivered of each redo thread: SCN, thread, and the transactions that committed with this SCN.",
        COMMIT_SCN,
        "745688898024:1:0a00140012345678",
        null=Null.KEPT,
    ),
    Field("snapshot_scn", "The SCN at which the initial snapshot read the tables.", SCN, "745688000000"),
    Field(
        "snapshot_pending_tx",
        "The transactions that were open at the snapshot, each with the SCN of its start.",
        parsed("transactions with their SCNs", _pending),
        "0a00140012345678:745688898000",
    ),
    Field("txId", "The transaction of the last delivered change.", text(r"[0-9a-zA-Z.]+"), "0a00140012345678"),
    Field("txSeq", "Which change of that transaction it was.", whole(), 25),
    Field(
        "window_advance_enabled",
        "Whether reading has gone past the start of long transactions.",
        flag(in_quotes=True),
        True,
    ),
    SNAPSHOT,
    SNAPSHOT_COMPLETED,
    *TRANSACTION,
    *INCREMENTAL,
)

_COMMON = ("scn", "commit_scn", "snapshot_scn", "snapshot_pending_tx")
_INSIDE = ("txId", "txSeq")


def _one_adapter(offset: Mapping[str, Any]) -> Iterator[Problem]:
    for name in ("scn", "scn_idx"):
        if offset.get("lcr_position") is not None and offset.get(name) is not None:
            yield Problem(name, "It is not used beside lcr_position, which is XStream's.", "Leave one of them out.")


DOCUMENT = Document(
    title="Oracle",
    fields=_FIELDS,
    partition=Partition("one for the whole database, by its topic prefix."),
    forms=(
        Form(
            "snapshot",
            "a snapshot",
            ("scn", "snapshot", "snapshot_completed", "snapshot_scn", "snapshot_pending_tx", "commit_scn"),
            mark="snapshot",
        ),
        Form(
            "xstream",
            "XStream",
            ("lcr_position", "snapshot_scn", "snapshot_pending_tx", "commit_scn"),
            ("lcr_position",),
            mark="lcr_position",
        ),
        Form("olr", "OpenLogReplicator", ("scn", "scn_idx", "commit_scn", "txId"), ("scn",), mark="scn_idx"),
        Form("logminer_unbuffered", "LogMiner without a buffer", (*_COMMON, *_INSIDE), ("scn",)),
        Form("logminer", "LogMiner", (*_COMMON, *_INSIDE, "window_advance_enabled"), ("scn",)),
    ),
    rules=(_one_adapter,),
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    a, b = DOCUMENT.read(a), DOCUMENT.read(b)
    if "lcr_position" in a and "lcr_position" in b:
        return orders.of(bytes.fromhex(a["lcr_position"]), bytes.fromhex(b["lcr_position"]))
    if "lcr_position" in a or "lcr_position" in b:
        return Order.UNRELATED
    if "scn_idx" in a and "scn_idx" in b:
        return orders.of((_scn(a), a["scn_idx"]), (_scn(b), b["scn_idx"]))
    return _mined(a, b)


def _mined(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """With LogMiner: what was delivered, and from where on the log is read; a place inside a transaction decides
    where these agree."""
    delivered = scn.parse(a.get("commit_scn")).order(scn.parse(b.get("commit_scn")))
    outside = orders.both([delivered, orders.of(_scn(a), _scn(b))])
    if outside is Order.SAME:
        return _inside(a, b)
    together = delivered is Order.SAME and a.get("txId") == b.get("txId")
    return orders.both([outside, _inside(a, b)]) if together else outside


def describe(offset: Mapping[str, Any]) -> str:
    read = DOCUMENT.read(offset)
    if "lcr_position" in read:
        return f"LCR position {read['lcr_position']}"
    parts = [f"SCN {read.get('scn') or 'unknown'}" + (f", index {read['scn_idx']}" if "scn_idx" in read else "")]
    commits = scn.parse(read.get("commit_scn")).threads
    parts += [f"commits of redo thread {thread} up to SCN {commits[thread].scn}" for thread in sorted(commits)]
    if "txId" in read:
        parts.append(f"transaction {read['txId']}" + (f", change {read['txSeq']}" if "txSeq" in read else ""))
    return ", ".join([*parts, "in a snapshot"] if "snapshot" in read else parts)


def _scn(offset: Mapping[str, Any]) -> int:
    found = scn.parse_scn(offset.get("scn"))
    return -1 if found is None else found


def _inside(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    """Only places inside the same transaction compare; without one, nothing was delivered of any."""
    if a.get("txId") == b.get("txId"):
        return orders.of(a.get("txSeq") or 0, b.get("txSeq") or 0)
    if "txId" in a and "txId" in b:
        return Order.UNRELATED
    return orders.of("txId" in a, "txId" in b)
