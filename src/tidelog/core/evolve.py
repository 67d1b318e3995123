"""What a target must do to follow a schema change of its source.

Columns are known by the source's column *number*, kept in the target's field metadata: a rename is the same number
under another name. The rules, per column:

- added: null in old rows, or `Column.fill`, or (`Column.rewritten`) what the source answers by key;
- renamed: the target's column is renamed;
- widened (int2→int4→int8, float4→float8, a decimal with more digits, and what has one text only→string): cast;
- retyped otherwise: the database rewrote the old values and its log says nothing of it: the source answers by key;
- defined anew while the table's rows were rewritten (`Column.storage`, `Column.definition`), be it with the same type:
  the values may be others, and the source answers by key. A key cannot be asked for by itself: it is cast, with a
  warning;
- dropped: the column stays in the target, holds what it held, and is null in new rows.

Law: a target that followed is the same whichever versions it met on the way; rows of an older version that sit in the
same batch are brought to the newest shape by the same rules (`conform`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.core.fold import Run, without_negative_zeros
from tidelog.core.metadata import BEFORE, META
from tidelog.core.moments import texts
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import UNSURE, Column, Table
from tidelog.model.selection import Selection

NUMBER, TYPE, MODIFIER = "tidelog.number", "tidelog.type", "tidelog.modifier"
STORAGE, DEFINITION = "tidelog.storage", "tidelog.definition"

Parse = Callable[[str, Table, Column], Any]
"""The database's text of a value as a Python value or an Arrow scalar."""

_TEXTS = frozenset({"text", "varchar", "character varying"})
"""Types between which a column moves without its values changing."""


@dataclass(frozen=True)
class Step:
    """One column of the target as it will be: from which present column, or with which value in old rows."""

    field: pa.Field
    origin: str | None
    fill: pa.Scalar | None = None
    note: str = ""
    """What happened to the column, for people; empty when nothing did."""
    ask: bool = False
    """Only the source knows the values of old rows."""
    replaces: bool = False
    """The target has another column of this name, whose values go."""
    unproven: bool = False
    """A key whose values may have been rewritten: nothing proves that the old ones are still right."""


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]

    @property
    def notes(self) -> list[str]:
        return [s.note for s in self.steps if s.note]

    @property
    def added(self) -> tuple[pa.Field, ...] | None:
        """The new columns, when adding columns without values is all there is to do."""
        new = [s for s in self.steps if s.origin is None]
        simple = all(s.origin is not None and not s.note for s in self.steps[: -len(new) or None])
        plain = all(s.fill is None and not s.replaces for s in new)
        return tuple(s.field for s in new) if simple and plain else None

    @property
    def unproven(self) -> list[str]:
        return [s.field.name for s in self.steps if s.unproven]

    @property
    def asked(self) -> tuple[str, ...]:
        return tuple(s.field.name for s in self.steps if s.ask)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([s.field for s in self.steps])


def describe(schema: pa.Schema, columns: Iterable[Column]) -> pa.Schema:
    """The shape of the columns as a target keeps it: each field with the identity of its source column."""
    return pa.schema([_identified(schema.field(c.name), c) for c in columns])


def _identified(field: pa.Field, column: Column) -> pa.Field:
    identity = {NUMBER: str(column.number), TYPE: column.type, MODIFIER: str(column.modifier)}
    traces = {STORAGE: column.storage, DEFINITION: column.definition} if column.definition else {}
    return pa.field(field.name, field.type, nullable=True, metadata=identity | traces)


def plan(present: pa.Schema, wanted: pa.Schema, table: Table, key: Sequence[str], parse: Parse) -> Plan:
    """From the target's columns to the wanted ones; `table` tells what old rows hold in new columns."""
    pairs = {p.name: w for p in present if (w := _successor(p, wanted, present)) is not None}
    followed = {w.name for w in pairs.values()}
    fresh = [w for w in wanted if w.name not in followed]
    names = {w.name for w in wanted}
    steps = [_follow(p, pairs[p.name], key) for p in present if p.name in pairs]
    dropped = {p.name for p in present} - set(pairs) - names
    kept = [Step(p, p.name) for p in present if p.name in dropped]
    order = {p.name: i for i, p in enumerate(present)}
    steps = sorted([*steps, *kept], key=lambda s: order[s.origin or ""])
    unsure = any(map(_unsure, present))  # a new column may be one of these under another name
    return Plan((*steps, *(_add(w, table, parse, w.name in order, unsure or _unsure(w)) for w in fresh)))


def _successor(field: pa.Field, wanted: pa.Schema, present: pa.Schema) -> pa.Field | None:
    """The wanted column that this one is, by number; by name where a side has no number."""
    number = _number(field)
    if number:
        same = next((w for w in wanted if _number(w) == number), None)
        if same is not None:
            return same
    named = wanted.field(field.name) if field.name in wanted.names else None
    if named is None or (number and _number(named)):
        return None
    taken = any(_number(p) == _number(named) for p in present if _number(p))
    return None if taken else named


def _follow(old: pa.Field, new: pa.Field, key: Sequence[str]) -> Step:
    is_key = new.name in key
    doubtful = (_unsure(old) or _unsure(new)) and not is_key
    way = "ask" if doubtful else passage(old, new)
    rewritten = way != "ask" and _may_be_rewritten(old, new)
    notes = [f"{old.name} is now called {new.name}"] if old.name != new.name else []
    if way == "same" and not rewritten:
        kept = (
            new.with_metadata(old.metadata) if old.name == new.name else new
        )  # a lasting note is no reason to rewrite
        return Step(kept, old.name, note=", ".join(notes))
    if way == "ask" and is_key:
        raise UnsupportedChange(
            f"The key column {new.name} changed its type from {_meta(old, TYPE)} to {_meta(new, TYPE)}.",
            hint="Its rows in the target can no longer be found. Move or delete the target table, then start again: "
            "the table is read anew.",
        )
    if way != "same" and (was := _type_name(old, new)) != (now := _type_name(new, old)):
        notes.append(f"{new.name} is now {now} instead of {was}")
    ask = way == "ask" or (rewritten and not is_key)
    if rewritten:
        notes.append(f"the values of {new.name} may have been rewritten")
    if ask:
        notes.append(f"{new.name} is read from the source")
    return Step(new, old.name, note=", ".join(notes), ask=ask, unproven=rewritten and is_key)


def _type_name(field: pa.Field, other: pa.Field) -> str:
    """The source's name of the type; where both columns have that in common, the target's."""
    name = _meta(field, TYPE)
    return name if name != _meta(other, TYPE) else str(plain(field.type))


def _may_be_rewritten(old: pa.Field, new: pa.Field) -> bool:
    """Whether the database may have computed the column's values anew, though the types alone would let them pass. A
    target from before traces were kept proves nothing of a type that changed."""
    was, now = ((_meta(f, STORAGE), _meta(f, DEFINITION)) for f in (old, new))
    if not now[1]:
        return False
    if not was[1]:
        types = [(_meta(f, TYPE), _meta(f, MODIFIER)) for f in (old, new)]
        return bool(types[0][0]) and types[0] != types[1]
    return was[0] != now[0] and was[1] != now[1]


def _add(field: pa.Field, table: Table, parse: Parse, replaces: bool, unsure: bool) -> Step:
    column = next((c for c in table.columns if c.name == field.name), None)
    note = f"{field.name} is new" if not replaces else f"{field.name} is another column than before"
    if column is None:
        return Step(field, None, note=note, replaces=replaces)
    fill = None if column.fill is None else _scalar(parse(column.fill, table, column), field.type)
    return Step(field, None, fill, note, column.rewritten or unsure, replaces)


def passage(old: pa.Field, new: pa.Field) -> str:
    """How old values become new ones: `same`, `cast`, or `ask` the source."""
    a, b = plain(old.type), plain(new.type)
    if a == b:
        return "same" if _same_values(old, new) else "ask"
    sure = not pa.types.is_string(b) or _keeps_text(old, new)
    return "cast" if widens(a, b) and sure else "ask"


def _keeps_text(old: pa.Field, new: pa.Field) -> bool:
    """Whether a value that becomes text is its own text: others pad it, round it, quote it or write it otherwise."""
    was, now = _meta(old, TYPE).lower(), _meta(new, TYPE).lower()
    if now != "numeric":
        return not now or now in _TEXTS
    before, after = (int(_meta(f, MODIFIER) or -1) for f in (old, new))
    digits = 0 if pa.types.is_integer(old.type) else _scale(before) if was == "numeric" and before >= 0 else None
    return after == -1 or digits == _scale(after)


def _same_values(old: pa.Field, new: pa.Field) -> bool:
    was, now = _meta(old, TYPE), _meta(new, TYPE)
    if not was or not now or {was, now} <= _TEXTS:
        return True
    if was != now:
        return False
    before, after = int(_meta(old, MODIFIER) or -1), int(_meta(new, MODIFIER) or -1)
    if was == "numeric":
        finer = pa.types.is_floating(new.type) and _scale(before) <= _scale(after)
        return after in (-1, before) or (before >= 0 and (finer or _scale(before) == _scale(after)))
    return before == after or pa.types.is_decimal(new.type) or (was != "bpchar" and _grows(before, after))


def _scale(modifier: int) -> int:
    """The digits after a numeric's point: values are rounded, and zeros written, as far as it says."""
    return ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400  # eleven bits, the first is its sign


def _grows(before: int, after: int) -> bool:
    return after == -1 or 0 <= before <= after


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    t = pa.types
    if t.is_integer(old) and t.is_integer(new):
        return bool(old.bit_width <= new.bit_width)
    if t.is_floating(old) and t.is_floating(new):
        return bool(old.bit_width <= new.bit_width)
    if t.is_decimal(old) and t.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    exact = t.is_integer(old) or t.is_decimal(old) or t.is_boolean(old) or t.is_date(old)
    return bool(t.is_string(new) and exact)


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without what Delta and Spark spell differently: large or not, the name of a list's element."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def transform(steps: Sequence[Step], rows: pa.Table) -> pa.Table:
    """Old rows in the new shape. What only the source knows keeps its old value if that fits, and is null if not."""
    columns = [_column(step, rows) for step in steps]
    return pa.table(columns, schema=pa.schema([s.field for s in steps]))


def _column(step: Step, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    kind = step.field.type
    if step.origin is None:
        return pa.repeat(step.fill, rows.num_rows) if step.fill is not None else pa.nulls(rows.num_rows, kind)
    column = rows[step.origin]
    if pa.types.is_string(plain(kind)) or plain(column.type) == plain(kind) or widens(plain(column.type), plain(kind)):
        return _cast(column, kind)
    return pa.nulls(rows.num_rows, kind)


def _cast(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Arrow's own texts of days and decimals are not always the database's."""
    turns = pa.types.is_string(plain(kind)) and not pa.types.is_string(plain(column.type))
    return (as_text(column) if turns else column).cast(kind)


def as_text(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Any values as readable text; the database may write them otherwise. Bytes are always written in hexadecimal
    digits, also where they happen to be text: else nobody could tell which of the two a value is."""
    if pa.types.is_binary(plain(column.type)):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    try:
        return texts(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists
        return pa.array([None if v is None else _shown(v) for v in column.to_pylist()], pa.string())


def _shown(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False) if isinstance(value, list) else _plain(value)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def conform(version: Table, newest: Table, rows: pa.Table, selection: Selection, shape: pa.Schema, parse: Parse) -> Run:
    """Rows of `version` in the shape of `newest`; columns whose value only the source can tell are `unknown`."""
    run = _in_newest_shape(version, newest, rows, selection, shape, parse)
    rows = run.rows
    for name in selection.key_of(newest):
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), without_negative_zeros(rows[name]))
    return replace(run, rows=rows)


def _in_newest_shape(
    version: Table, newest: Table, rows: pa.Table, selection: Selection, shape: pa.Schema, parse: Parse
) -> Run:
    key, whole = selection.key_of(newest), version.old_image == "full"
    if version == newest:
        return Run(_narrow_before(rows, {k: k for k in key}, shape), whole=whole)
    old = describe(rows.schema, selection.columns_of(version))
    new = describe(shape, selection.columns_of(newest))
    steps = [s for s in plan(old, new, newest, key, parse).steps if s.field.name in new.names]
    aliases = {s.origin: s.field.name for s in steps if s.origin and s.origin != s.field.name}
    body = transform(sorted(steps, key=lambda s: new.get_field_index(s.field.name)), rows)
    for name in META:
        body = body.append_column(rows.schema.field(name), rows[name])
    origins = {s.field.name: s.origin for s in steps if s.origin}
    run = _narrow_before(body, {k: origins[k] for k in key if k in origins}, shape)
    return Run(run, frozenset(s.field.name for s in steps if s.ask), aliases, whole)


def _narrow_before(rows: pa.Table, key: dict[str, str], shape: pa.Schema) -> pa.Table:
    """`BEFORE` with the key alone, under its newest names: the fold needs no more, and versions then agree."""
    kind = pa.struct([pa.field(new, shape.field(new).type) for new in key])
    before = rows[BEFORE]
    if before.null_count == len(before):
        narrow = pa.nulls(len(before), kind)
    else:
        narrow = pa.chunked_array([_narrow(chunk, key, kind) for chunk in before.chunks], kind)
    return rows.set_column(rows.column_names.index(BEFORE), BEFORE, narrow)


def _narrow(before: pa.StructArray, key: dict[str, str], kind: pa.StructType) -> pa.StructArray:
    whole = dict(zip([f.name for f in before.type], before.flatten(), strict=True))
    columns = [without_negative_zeros(_cast(whole[old], kind.field(new).type)) for new, old in key.items()]
    absent = pa.array(np.asarray(before.is_null()))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=absent)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    return value.cast(kind) if isinstance(value, pa.Scalar) else pa.scalar(value, kind)


def _number(field: pa.Field) -> int:
    return max(0, int(_meta(field, NUMBER) or 0))


def _unsure(field: pa.Field) -> bool:
    """The column has an identity that nobody knows: its name alone proves nothing, and the source has to tell."""
    return _meta(field, NUMBER) == str(UNSURE)


def _meta(field: pa.Field, name: str) -> str:
    raw = (field.metadata or {}).get(name.encode(), b"")
    return str(raw.decode())
