"""Values that the changes do not tell: taken from the target's row of the old key, or from the source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidelog.core.fold import ROW, Folded, Ints, Run, answer, carry, gaps, give_up, match
from tidelog.core.metadata import DELETED
from tidelog.spark.sinks import backfill
from tidelog.spark.sinks.asking import Asking


def complete(asking: Asking, folded: Folded, runs: Sequence[Run], *, soft: bool) -> Folded:
    """Fetch what the changes do not tell: from the target's row of the old key, or from the source."""
    if folded.keeps and (asking.snapshotting or asking.source is not None):
        folded = _find(asking, folded, doubted=asking.is_doubted(runs), soft=soft)
    if folded.origins.num_rows:
        found = asking.target.lookup(folded.origins.select(list(asking.key)), sorted(folded.keeps))
        folded = carry(folded, asking.key, found)
    unknown = sorted(set().union(*(run.unknown for run in runs)))
    if asked := [c for c in unknown if c in folded.keeps]:
        keys = folded.upserts.select(list(asking.key)).filter(pa.array(gaps(folded)))
        folded = answer(folded, asking.key, asked, _ask(asking, asked, keys))
    return folded


def _ask(asking: Asking, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """What the source answers; what it can't answer yet stays pending."""
    found = asking.some(columns, keys)
    if unanswered := set(columns) - set(found.column_names):
        backfill.note_pending(asking.target, backfill.pending(asking.target) | unanswered)
    return found


def _find(asking: Asking, folded: Folded, *, doubted: bool, soft: bool) -> Folded:
    """Rows that the snapshot has not brought yet are not in the target, so their values cannot stay what
    they are there: the source tells them, by key. What it has no more is left out; a later event tells why, which
    may come after the snapshot: so a row that is not there is asked for at any time. A row that moved is asked for
    as long as what the target has under its old key may be of a later time, another's; and what is answered is of
    a later time again."""
    rows, key = np.flatnonzero(gaps(folded)), list(asking.key)
    moved = np.isin(rows, folded.origins[ROW].to_numpy())
    places = folded.upserts.select(key).take(pa.array(rows))
    if not doubted:
        places = _from_origins(places, rows, folded.origins, key)
    absent = match(places, asking.target.lookup(places, []), key) < 0
    missing = rows[absent | moved] if doubted else rows[absent]
    if not len(missing):
        return folded
    keys = folded.upserts.select(key).take(pa.array(missing))
    found = _ask(asking, sorted(folded.keeps), keys)
    dead = folded.upserts[DELETED].to_numpy()[missing] if soft else False
    gone = missing[(match(keys, found, key) < 0) | dead]
    return give_up(answer(folded, key, sorted(folded.keeps), found), gone)


def _from_origins(keys: pa.Table, rows: Ints, origins: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys under which the target has the upserts `rows`: of those that moved, the old ones."""
    moved = origins[ROW].to_numpy()
    at = np.searchsorted(rows, moved)
    known = at < len(rows)
    known[known] = rows[at[known]] == moved[known]
    chosen = np.arange(len(rows))
    chosen[at[known]] = len(rows) + np.flatnonzero(known)
    return pa.concat_tables([keys, origins.select(list(key)).cast(keys.schema)]).take(pa.array(chosen))
