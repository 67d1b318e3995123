"""What is left of a chunk once the log has told what it did not see.

Law: the *window* are the log's events of the table that the chunk's watermark does not cover, in log order, up
to the end of the batch that emits the chunk. A row whose key the window touches, old or new, is stale and goes; an
uncovered truncate takes all rows. But where an event left columns out (unchanged TOAST), only the chunk knows them: the
row is folded with its events and emitted as it is at the window's end, under the key it has there. So each `r` that
comes out equals the source's row at the end of the batch. An event whose row the chunk does not hold gives nothing.
Nor does one whose key was changed, where the chunk may have seen more than its watermark says: what it holds under the
old key may be another row by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Watermark
from tidelog.core.fold import Run, encode, fold, gaps, leaves_out, match, moves
from tidelog.core.metadata import BEFORE, COMMIT_TS, META, OP, ORDINAL, POSITION, UNCHANGED, XID

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HOPS = 8
"""How many changes of key are followed before the whole window is folded instead."""


def stamp(rows: pa.Table, *, position: int, ts_us: int) -> pa.Table:
    """A chunk's columns as rows of the stream: the operation is `r`, and nothing is known of a transaction."""
    count = rows.num_rows
    meta = {
        OP: pa.repeat("r", count),
        POSITION: pa.repeat(pa.scalar(position, pa.int64()), count),
        COMMIT_TS: pa.repeat(pa.scalar(ts_us, pa.timestamp("us", "UTC")), count),
        XID: pa.nulls(count, pa.int64()),
        ORDINAL: pa.array(np.arange(count)),
        BEFORE: pa.nulls(count, pa.struct(list(rows.schema))),
        UNCHANGED: pa.nulls(count, pa.list_(pa.string())),
    }
    for name, column in meta.items():
        rows = rows.append_column(name, column)
    return rows


def uncovered(rows: pa.Table, watermark: Watermark) -> pa.Table:
    """The events that a chunk has not seen."""
    if not rows.num_rows:
        return rows
    seen = watermark.covers(rows[POSITION].to_numpy(), rows[XID].to_numpy())
    return rows.filter(pa.array(~seen))


def reconcile(rows: pa.Table, window: Sequence[Run], key: Sequence[str], *, exact: bool = True) -> pa.Table:
    """The rows of a chunk that are to be emitted. `key` are the replica identity's columns, never a surrogate; without
    a key no row can be told from another, and only a truncate counts. `exact`: the chunk has seen nothing of the
    window."""
    window = [run for run in window if run.rows.num_rows]
    if any(pc.any(pc.equal(run.rows[OP], "t")).as_py() for run in window):
        return rows[:0]
    if not key or not window or not rows.num_rows:
        return rows
    touches = _Touches.of(rows, window, list(key))
    stale = touches.stale
    fresh = rows.filter(pa.array(~stale))
    if not stale.any() or not any(leaves_out(run) for run in window):
        return fresh
    continued = _continued(rows.filter(pa.array(stale)), touches.concerned(window), list(key), exact=exact)
    return pa.concat_tables([fresh, continued])


@dataclass(frozen=True)
class _Touches:
    """Keys as numbers: of the chunk's rows, of the window's events, and the old ones of the events `moved`."""

    held: Ints
    own: Ints
    moved: Ints
    old: Ints

    @staticmethod
    def of(rows: pa.Table, window: Sequence[Run], key: list[str]) -> _Touches:
        left = [moves(run, key) for run in window]
        starts = np.cumsum([0, *(run.rows.num_rows for run in window)])
        moved = np.concatenate([at + start for (at, _), start in zip(left, starts[:-1], strict=True)])
        keys = [rows.select(key), *(run.rows.select(key) for run in window), *(old for _, old in left)]
        codes = encode(pa.concat_tables([part.cast(keys[0].schema) for part in keys]))
        held, own, old = np.split(codes, [rows.num_rows, rows.num_rows + starts[-1]])
        return _Touches(held, own, moved, old)

    @property
    def stale(self) -> Mask:
        known = self._among(self.own, self.old)
        return known[self.held]

    def _among(self, *codes: Ints) -> Mask:
        known = np.zeros(len(self.held) + len(self.own) + len(self.old), np.bool_)
        for some in codes:
            known[some] = True
        return known

    def concerned(self, window: Sequence[Run]) -> list[Run]:
        """The events of rows that the chunk holds, wherever their keys went; all, if they went far."""
        known, new = self._among(self.held), self.own[self.moved]
        for _ in range(_HOPS):
            further = known[new] != known[self.old]
            if not further.any():
                break
            known[new[further]] = known[self.old[further]] = True
        else:
            return list(window)
        ends = np.cumsum([run.rows.num_rows for run in window])
        parts = np.split(known[self.own], ends[:-1])
        return [replace(run, rows=run.rows.filter(pa.array(some))) for run, some in zip(window, parts, strict=True)]


def _continued(stale: pa.Table, window: Sequence[Run], key: list[str], *, exact: bool) -> pa.Table:
    """The rows at the window's end of which the window does not tell everything and the chunk does."""
    alone = fold(window, key)
    wanting = alone.upserts.select(key).filter(pa.array(gaps(alone)))
    if not exact:
        wanting = wanting.filter(pa.array(match(wanting, _changed(window, key), key) < 0))
    whole = fold([Run(_shaped(stale, window[0].rows.schema)), *window], key)
    needed = match(whole.upserts.select(key), wanting, key) >= 0
    return _reads(whole.upserts.filter(pa.array(needed & ~gaps(whole))), stale.schema)


def _changed(window: Sequence[Run], key: list[str]) -> pa.Table:
    """Every key that a row has left or got by a change of its key."""
    changes = [(run.rows.select(key), *moves(run, key)) for run in window]
    parts = [part for keys, at, old in changes for part in (keys.take(pa.array(at)), old)]
    return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The chunk's rows in the window's shape; they have no old image, whatever its shape."""
    columns = [pa.nulls(rows.num_rows, f.type) if f.name == BEFORE else rows[f.name].cast(f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _reads(upserts: pa.Table, schema: pa.Schema) -> pa.Table:
    """Folded rows in the typed shape, with the stamps of their last change."""
    count = upserts.num_rows
    own = {name: pa.nulls(count, schema.field(name).type) for name in META if name not in upserts.column_names}
    own[OP] = pa.repeat("r", count).cast(schema.field(OP).type)
    columns = [own[f.name] if f.name in own else upserts[f.name].cast(f.type) for f in schema]
    return pa.table(columns, schema=schema)
