"""Days and moments that Python has no object for: `infinity`, years before Christ and after 9999.

Decoders tell them as numbers, and engines keep them so; a person, or a database, wants them written.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = date(1970, 1, 1)
_DAYS = date.min.toordinal() - _EPOCH.toordinal(), date.max.toordinal() - _EPOCH.toordinal()
_DAY_US = 86_400_000_000
_CYCLE = 146_097
"""Days of 400 years, after which the calendar repeats."""


def distant(values: pa.ChunkedArray | pa.Array) -> bool:
    """Whether days or moments lie outside the years 1 to 9999."""
    numbers = _numbers(values)
    if numbers is None:
        return False
    unit = 1 if pa.types.is_date(values.type) else _DAY_US
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    return low is not None and (low < _DAYS[0] * unit or high >= (_DAYS[1] + 1) * unit)


def written_number(number: int, *, is_date: bool) -> str:
    """Days or microseconds since 1970 as PostgreSQL writes them, also where no 64 bits hold them."""
    return _written(number, is_date)


def written(values: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """As PostgreSQL writes and reads them; moments in UTC."""
    numbers, is_date = _numbers(values), pa.types.is_date(values.type)
    assert numbers is not None
    return [None if number is None else _written(number, is_date) for number in numbers.to_pylist()]


def texts(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Values of any plain type as Arrow writes them, and those that it can't write, as PostgreSQL does; decimals with
    all their digits."""
    if distant(values):
        return pa.array(written(values), pa.string())
    return _digits(values) if pa.types.is_decimal(values.type) else values.cast(pa.string())


def _digits(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Arrow writes an exponent where more than six zeros would follow the point: then the point is set by hand."""
    found, scale = values.cast(pa.string()), values.type.scale
    if not pc.any(pc.match_substring(found, "E")).as_py():
        return found
    padded = pc.replace_substring_regex(_unscaled(values).cast(pa.string()), r"^(-?)", r"\1" + "0" * scale)
    return pc.replace_substring_regex(padded, rf"^(-?)0*(\d+)(\d{{{scale}}})$", r"\1\2.\3")


def _unscaled(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The digits alone, as whole numbers."""
    wide = pa.decimal256 if pa.types.is_decimal256(values.type) else pa.decimal128
    kind = wide(values.type.precision, 0)
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], kind)
    return values.view(kind)


def legible(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values, and as texts in columns that have days or moments which Python does not know."""
    found: list[dict[str, Any]] = pa.table([_legible(c) for c in rows.columns], rows.column_names).to_pylist()
    return found


def _legible(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_struct(values.type):
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        parts = [_legible(whole.field(i)) for i in range(whole.type.num_fields)]
        return pa.StructArray.from_arrays(parts, [f.name for f in whole.type], mask=whole.is_null())
    return texts(values) if distant(values) else values


def _numbers(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array | None:
    """Days, or microseconds; None of other types."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return None


def _written(number: int, is_date: bool) -> str:
    limits = np.iinfo(np.int32 if is_date else np.int64)
    if number in (limits.max, limits.min):
        return "infinity" if number == limits.max else "-infinity"
    days, micros = (number, 0) if is_date else divmod(number, _DAY_US)
    cycles, rest = divmod(days, _CYCLE)
    day = _EPOCH + timedelta(rest)
    year = day.year + 400 * cycles
    time = "" if is_date else f" {datetime.min + timedelta(microseconds=micros):%H:%M:%S.%f}"
    return f"{year if year > 0 else 1 - year:04d}-{day:%m-%d}{time}{'' if year > 0 else ' BC'}"
