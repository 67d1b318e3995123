"""The target's rows by ranges of the key, as `verify` wants them.

A range is cut exactly, in Arrow, by the type that the target gives the key; where Delta can cut it alike, it gets the
same range as a predicate, and skips files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.engine.verify import ReadTarget
from tidelog.errors import ConfigError
from tidelog.model.schema import Table

Mask = npt.NDArray[np.bool_]


def read_target(sink: Mapping[str, str]) -> ReadTarget:
    """Reads the tables of a delta sink, whichever engine wrote them; `sink` are its settings and its `type`."""
    if sink.get("type") != "delta":
        raise ConfigError(
            f"verify compares rows with a delta sink; this pipeline's sink is {sink.get('type')!r}.",
            hint="A history holds changes, not rows: query it instead.",
        )
    from tidelog.spark.sinks.delta_options import Options
    from tidelog.spark.sinks.delta_rust import RustEngine, quote
    from tidelog.spark.sinks.target import uri

    options = Options.of({name: text for name, text in sink.items() if name != "type"})
    engine = RustEngine(options.storage)

    def read(table: Table, columns: Sequence[str], low: pa.Scalar | None, high: pa.Scalar | None) -> pa.Table | None:
        target = engine.target(uri(options.path, table.schema, table.name))
        schema = target.schema()
        if schema is None:
            return None
        present = [c for c in columns if c in schema.names]
        marked = options.soft and options.deleted in schema.names
        terms = [f"NOT COALESCE({quote(options.deleted)}, false)"] if marked else []
        if low is None and high is None:
            return target.scan(present, " AND ".join(terms) or None)
        key = schema.field(table.key[0])
        terms += _terms(quote(key.name), key.type, low, high)
        return target.scan(present, " AND ".join(terms) or None, _cut(key, low, high))

    return read


def _terms(name: str, kind: pa.DataType, low: pa.Scalar | None, high: pa.Scalar | None) -> Iterator[str]:
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return
    for sign, end in ((">", low), ("<=", high)):
        if end is not None:
            text = str(end.as_py())
            value = "'" + text.replace("'", "''") + "'" if pa.types.is_string(kind) else str(int(text))
            yield f"{name} {sign} {value}"


def _cut(key: pa.Field, low: pa.Scalar | None, high: pa.Scalar | None) -> Callable[[pa.Table], Mask]:
    """Which rows have low < key <= high."""

    def inside(rows: pa.Table) -> Mask:
        found: Mask = np.ones(rows.num_rows, np.bool_)
        for compare, end in ((pc.greater, low), (pc.less_equal, high)):
            if end is not None:
                found &= _mask(compare(rows[key.name], end.cast(key.type)))
        return found

    return inside


def _mask(values: Any) -> Mask:
    found: Mask = np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_)
    return found
