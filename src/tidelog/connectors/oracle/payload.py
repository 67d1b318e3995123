"""An Oracle record's bytes in the journal: a fixed header, three texts, and the redo SQL.

Capture packs and executors unpack a whole block at once. The redo SQL is as LogMiner wrote it, its continuations
joined. A record that several rows of the log tell together (large objects) has the code 0, and instead of SQL a JSON
object of the change: see `merged`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.connectors.oracle.redo import values
from tidelog.connectors.oracle.redo.values import Change
from tidelog.core.strings import Ints, Mask, gather
from tidelog.model.record import Op

HEADER = np.dtype(
    [
        ("code", "<u2"),  # OPERATION_CODE; 0 for a merged record
        ("thread", "<u2"),  # THREAD#
        ("flags", "<u2"),
        ("sequence", "<i8"),  # SEQUENCE#
        ("ssn", "<i8"),
        ("time_us", "<i8"),  # TIMESTAMP, microseconds since 1970 in UTC
        ("start_scn", "<i8"),  # 0 when it is not known
        ("start_us", "<i8"),  # START_TIMESTAMP; 0 when it is not known
        ("rowid", "S18"),
        ("rs_id", "S32"),
        ("user", "<u2"),  # lengths of the texts that follow
        ("client", "<u2"),
        ("info", "<u2"),
    ]
)
MERGED = 0
RELAXED = 1
"""Flag: apostrophes inside the statement's literals are not doubled."""
SHOWN = 2
"""Flag: the event's source shows the redo SQL."""
_TEXTS = ("user", "client", "info")

Numbers = npt.ArrayLike
Texts: TypeAlias = "pa.Array | Sequence[str | bytes | None]"


@dataclass(frozen=True)
class Payloads:
    """A block's payloads as columns. Of a `damaged` one nothing else counts."""

    head: npt.NDArray[Any]
    """An array of `HEADER`; `head["ssn"]` is a column of numbers."""
    user: pa.StringArray
    client: pa.StringArray
    info: pa.StringArray
    """Null where there was none."""
    sql: pa.BinaryArray
    damaged: Mask

    @property
    def merged(self) -> Mask:
        mask: Mask = self.head["code"] == MERGED
        return mask

    def flagged(self, flag: int) -> Mask:
        mask: Mask = (self.head["flags"] & flag) != 0
        return mask

    def texts(self, name: str) -> pa.StringArray:
        """`rowid` or `rs_id` as Arrow has it; null where there is none."""
        found = pa.array(self.head[name], pa.binary()).cast(pa.string())
        return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)


def pack(
    *,
    code: Numbers,
    sql: Texts,
    thread: Numbers = 1,
    flags: Numbers = 0,
    sequence: Numbers = 0,
    ssn: Numbers = 0,
    time_us: Numbers = 0,
    start_scn: Numbers = 0,
    start_us: Numbers = 0,
    rowid: Texts | None = None,
    rs_id: Texts | None = None,
    user: Texts | None = None,
    client: Texts | None = None,
    info: Texts | None = None,
) -> pa.BinaryArray:
    """A payload for each statement of `sql`; a single number stands for all rows."""
    statements = _binary(sql, 0)
    count = len(statements)
    head = np.zeros(count, HEADER)
    numbers = {"code": code, "thread": thread, "flags": flags, "sequence": sequence, "ssn": ssn}
    for name, column in {**numbers, "time_us": time_us, "start_scn": start_scn, "start_us": start_us}.items():
        head[name] = column
    for name, ids in (("rowid", rowid), ("rs_id", rs_id)):
        head[name] = _binary(ids, count).to_numpy(zero_copy_only=False).astype(HEADER[name])
    texts = [_binary(column, count) for column in (user, client, info)]
    for name, column in zip(_TEXTS, texts, strict=True):
        head[name] = pc.binary_length(column).to_numpy()
    width = HEADER.itemsize
    heads = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(head.tobytes())]).cast(pa.binary())
    return pc.binary_join_element_wise(heads, *texts, statements, b"")


def _binary(texts: Texts | None, count: int) -> pa.BinaryArray:
    """As bytes, nulls empty."""
    if texts is None:
        return pa.repeat(pa.scalar(b"", pa.binary()), count)
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.binary())
    return array.cast(pa.binary()).fill_null(b"")


def unpack(payload: pa.BinaryArray) -> Payloads:
    n, width = len(payload), HEADER.itemsize
    buffer, starts, ends = _view(payload)
    damaged = ends - starts < width
    safe = np.where(damaged, 0, starts)
    overlapping = np.ndarray((buffer.size - width + 1,), HEADER, buffer, strides=(1,))
    head = overlapping[safe] if n else np.zeros(0, HEADER)
    at = starts + width
    bounds = [at]
    for name in _TEXTS:
        bounds.append(bounds[-1] + head[name])
    damaged = damaged | (bounds[-1] > ends)
    if damaged.any():
        bounds = [np.where(damaged, starts, bound) for bound in bounds]
    user, client, info = (_present(buffer, bounds[i], bounds[i + 1]) for i in range(3))
    sql = gather(buffer, bounds[-1], ends, np.ones(n, np.bool_)).view(pa.binary())
    return Payloads(head, user, client, info, sql, damaged)


def _present(buffer: pa.Buffer, starts: Ints, ends: Ints) -> pa.StringArray:
    """These slices; an empty one is null, as Oracle itself has it."""
    return gather(buffer, starts, ends, ends > starts)


def _view(payload: pa.BinaryArray) -> tuple[pa.Buffer, Ints, Ints]:
    """The bytes of all payloads, at least as many as a header has, and where each begins and ends."""
    n = len(payload)
    _, offsets, data = payload.buffers()
    if n and offsets is not None:
        places = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + n + 1].astype(np.int64)
    else:
        places = np.zeros(n + 1, np.int64)
    if data is None or data.size < HEADER.itemsize:
        data = pa.py_buffer((data.to_pybytes() if data is not None else b"").ljust(HEADER.itemsize, b"\0"))
    return data, places[:-1], places[1:]


def merged(change: Change) -> str:
    """The text of a merged record: `{"op": "c", "before": …, "after": …}`, each a JSON object of the columns' values,
    or null. A value is null, a string, `{"$sql": "…"}` for an expression, or `{"$unavailable": true}`."""
    images = {
        name: None if image is None else {column: values.to_json(value) for column, value in image.items()}
        for name, image in (("before", change.before), ("after", change.after))
    }
    return json.dumps({"op": str(change.op), **images}, ensure_ascii=False, separators=(",", ":"))


def read_merged(text: str | bytes) -> Change:
    raw = json.loads(text)
    before, after = (
        None if raw[name] is None else {column: values.from_json(value) for column, value in raw[name].items()}
        for name in ("before", "after")
    )
    return Change(Op(raw["op"]), before, after)
