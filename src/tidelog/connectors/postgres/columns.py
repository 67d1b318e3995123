"""The columns of a chunk: how each is selected, and how what comes becomes what the stream would deliver.

What the driver's binary form gives exactly comes so; everything else comes as the type's own text, and takes the one
way by which texts get a type. `::text` is that text only where no cast of its own stands between (`inet`, `boolean`
and `character` have one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import decode, types
from tidelog.connectors.postgres.names import identifier
from tidelog.contracts import Decoded
from tidelog.core import moments, rules
from tidelog.core.faults import Fault, read_error, read_letters
from tidelog.core.strings import Mask, as_mask
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

_BINARY = {"int2", "int4", "int8", "float4", "float8", "bool", "bytea"}
_INSTANTS = {"date", "timestamp", "timestamptz"}
_STRINGS = {"text", "varchar", "bpchar"}
_CASTS = {"numeric", "uuid", "json", "jsonb", "time", "timetz", "interval", *_BINARY, *_INSTANTS} - {"bool"}
_SHIFTS = {4: 10_957, 8: 946_684_800_000_000}
"""From PostgreSQL's 2000 to 1970: days of a date, microseconds of a timestamp, by their width."""
_EARLIEST = -300_000_000_000_000_000
"""Before any timestamp that PostgreSQL has, and after all that the shift made wrap."""


@dataclass(frozen=True)
class Chosen:
    column: Column
    sql: str
    way: str
    """`binary`: as it comes; `instant`: shifted by the driver; `parsed`: from its text; `text`: its text."""


def plain(table: Table) -> list[Chosen]:
    """All columns as texts."""
    return [Chosen(column, text_of(column), "text") for column in table.columns]


def delivered(table: Table, selection: Selection) -> list[Chosen]:
    return [_chosen(table.columns[one.index], bool(one.rules)) for one in rules.delivered(table, selection)]


def _chosen(column: Column, ruled: bool) -> Chosen:
    name = identifier(column.name)
    if ruled or column.type not in {*_BINARY, *_INSTANTS, "oid"}:
        return Chosen(column, text_of(column), "parsed")
    if column.type in _INSTANTS:
        return Chosen(column, name, "instant")
    return Chosen(column, f"{name}::int8" if column.type == "oid" else name, "binary")


def text_of(column: Column) -> str:
    """What the type's output function writes, which is what the log says; NULL stays NULL."""
    name = identifier(column.name)
    if column.type in _STRINGS:
        return name
    if column.type in _CASTS:
        return f"{name}::text"
    # A composite of nothing but NULLs is not NULL itself: IS NOT NULL would say so.
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"


def typed(batch: pa.RecordBatch, chosen: Sequence[Chosen], table: Table, selection: Selection) -> Decoded:
    """The rows that fit their types; the others are dead letters, unless the selection wants to stop there."""
    found = [_values(batch.column(i), one, table, selection) for i, one in enumerate(chosen)]
    rows = pa.RecordBatch.from_arrays([array for array, _ in found], names=[one.column.name for one in chosen])
    faults = [
        Fault(
            failed,
            f"column {one.column.name}: {types.reason(one.column, selection)}",
            types.hint(one.column),
            one.column.name,
        )
        for (_, failed), one in zip(found, chosen, strict=True)
        if failed is not None and failed.any()
    ]
    if not faults:
        return Decoded(rows)
    shown = _shown(batch, rows, chosen, table, selection)
    if selection.failures == "fail":
        raise read_error(faults, shown, table)
    bad = np.logical_or.reduce([fault.rows for fault in faults])
    return Decoded(rows.filter(pa.array(~bad)), read_letters(faults, shown, table))


def _shown(
    batch: pa.RecordBatch, rows: pa.RecordBatch, chosen: Sequence[Chosen], table: Table, selection: Selection
) -> dict[str, pa.Array]:
    """What a dead letter may tell: the values as they came, but of columns that a rule hides what is delivered."""
    shown: dict[str, pa.Array] = {}
    for i, one in enumerate(chosen):
        is_raw = one.way == "parsed" and not selection.rules_for(table, one.column)
        came = batch.column(i)
        if one.way == "instant" and _instants(came)[1] is not None:
            shown[one.column.name] = _instant_texts(came)
        else:
            shown[one.column.name] = came if is_raw else rows.column(i)
    return shown


def _instant_texts(array: pa.Array) -> pa.Array:
    """Days and moments as PostgreSQL writes them, also those that have no place in Arrow's types."""
    numbers, shift = _since_2000(array)
    is_date, limits = pa.types.is_date(array.type), np.iinfo(numbers.dtype)
    # An infinity is an extreme of the type and is not shifted.
    whole = [n if n in (limits.min, limits.max) else n + shift for n in numbers.tolist()]
    texts = [moments.written_number(n, is_date=is_date) for n in whole]
    return pa.array(texts, pa.string(), mask=as_mask(array.is_null()))


def _since_2000(array: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.signedinteger]], int]:
    """PostgreSQL's own numbers, which the driver's shift let wrap, and how far it shifted them."""
    whole = pa.int32() if pa.types.is_date(array.type) else pa.int64()
    numbers = array.view(whole).fill_null(0).to_numpy()
    shift = _SHIFTS[whole.bit_width // 8]
    return numbers - numbers.dtype.type(shift), shift


def _values(array: pa.Array, one: Chosen, table: Table, selection: Selection) -> tuple[pa.Array, Mask | None]:
    match one.way:
        case "binary":
            return array, None
        case "instant":
            return _instants(array)
        case "text":
            return array, None
    return decode.values(array, table, one.column, selection)


def _instants(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """The driver shifts every number, and lets it wrap: infinities, and years from 294247 on, which fit no more."""
    whole = pa.int32() if pa.types.is_date(array.type) else pa.int64()
    numbers = array.view(whole).fill_null(0).to_numpy()
    limits, shift = np.iinfo(numbers.dtype), _SHIFTS[whole.bit_width // 8]
    told = numbers - numbers.dtype.type(shift)
    infinite, early = (told == limits.max) | (told == limits.min), numbers < max(_EARLIEST, limits.min)
    if not (infinite | early).any():
        return array, None
    failed = early & ~infinite
    nulls = as_mask(array.is_null()) | failed
    return pa.array(np.where(infinite, told, numbers), whole, mask=nulls).view(array.type), failed
