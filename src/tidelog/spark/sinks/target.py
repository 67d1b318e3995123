"""One table of a Delta target, as the sink sees it: the seam between what is done and which engine does it.

A commit with a `Mark` carries the batch in the table's own log (an app transaction), so that a batch that comes again
is recognised whatever happened in between. What a method commits before that one may be done again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.contracts import Batch
from tidelog.core.evolve import Step
from tidelog.core.fold import Mask
from tidelog.core.metadata import hidden
from tidelog.core.moments import distant

DELETE = hidden("delete")
KEEP = hidden("keep_")

Quote = Callable[[str], str]
Known = Callable[[], Iterable[pa.Table]]
"""Keys, portion by portion, as often as asked; at least one portion, be it empty."""


@dataclass(frozen=True)
class Mark:
    """Which batch a commit is of: an application id and a version that only grows."""

    app: str
    version: int
    former: str = ""
    """What a release before this one called it, where the batch may have been applied under that name: who looks for
    what is not there goes through the whole log of a table."""

    def is_on(self, target: Target) -> bool:
        return any(target.applied(app) >= self.version for app in (self.app, self.former) if app)


@dataclass(frozen=True)
class Merge:
    """Rows to be merged by key, with the flags that steer the merge as extra columns of `rows`."""

    rows: pa.Table
    key: tuple[str, ...]
    columns: tuple[str, ...]
    keeps: Mapping[str, str] = field(default_factory=dict)
    """Columns with rows that keep the target's value, and the flag that says which."""
    deletes: bool = False
    others: Mapping[str, str] = field(default_factory=dict)
    """What is set in every row that the merge does not mention, as SQL."""
    inserts: bool = True
    reads: Mask | None = None
    """The rows that a snapshot read whole. They may come in an earlier commit of their own, without the mark: each is
    what its row is at the batch's end, so a batch that comes again changes nothing of them."""

    def condition(self, quote: Quote) -> str:
        """By key; the range of the keys comes along so that the engine skips files without them."""
        terms = [self._equal(name, quote) for name in self.key]
        return " AND ".join([*terms, *([] if self.others else self.span(f"t.{quote(self.key[0])}"))])

    def _equal(self, name: str, quote: Quote) -> str:
        """With `=` engines look for the extremes among the files, and may be unable to write down infinite ones."""
        values = self.rows[name]
        relation = "IS NOT DISTINCT FROM" if values.null_count or distant(values) else "="
        return f"(t.{quote(name)} {relation} s.{quote(name)})"

    @cached_property
    def edges(self) -> tuple[pa.Scalar, pa.Scalar] | None:
        """The least and the greatest first key, where keys are whole numbers, days or moments."""
        first, t = self.rows[self.key[0]], pa.types
        ordered = t.is_integer(first.type) or t.is_date(first.type) or t.is_timestamp(first.type)
        if not ordered or first.null_count or not len(first):
            return None
        found = pc.min_max(first)
        return found["min"], found["max"]

    @property
    def numbered(self) -> bool:
        """Whether the first key is a whole number: engines disagree on how to write other ranges."""
        return self.edges is not None and pa.types.is_integer(self.edges[0].type)

    def span(self, column: str) -> list[str]:
        """The range as SQL, where it can be written."""
        if self.edges is None or not self.numbered:
            return []
        least, most = (edge.as_py() for edge in self.edges)
        return [f"{column} >= {least}", f"{column} <= {most}"]

    def updates(self, quote: Quote) -> dict[str, str]:
        return {quote(c): self._value(c, quote) for c in self.columns if c not in self.key}

    def insertions(self, quote: Quote) -> dict[str, str]:
        return {quote(c): f"s.{quote(c)}" for c in self.columns}

    def _value(self, name: str, quote: Quote) -> str:
        flag = self.keeps.get(name)
        own = f"s.{quote(name)}"
        return f"CASE WHEN s.{quote(flag)} THEN t.{quote(name)} ELSE {own} END" if flag else own

    def some(self, rows: Mask) -> Merge:
        """The same with some of the rows, whatever they are."""
        return replace(self, rows=self.rows.filter(pa.array(rows)), reads=None)

    def alive(self) -> pa.Table:
        """The rows that remain when nothing of them is in the target yet."""
        rows = self.rows.filter(pc.invert(self.rows[DELETE])) if self.deletes else self.rows
        return rows.select(list(self.columns))


@dataclass(frozen=True)
class Answers:
    """What the source says of columns, by key; the rows that it does not mention keep what they have."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    portions: Iterable[pa.Table]
    """Key and columns, to be read once; at least one portion, be it empty. An error from it leaves the target as it
    is."""


@dataclass
class Beginnings:
    """By query, the first batch that this process meets: it alone may have been applied before, by a former release."""

    _first: dict[str, int] = field(default_factory=dict)

    def has(self, batch: Batch) -> bool:
        return self._first.setdefault(batch.query, batch.id) == batch.id


class Target(Protocol):
    uri: str

    def schema(self) -> pa.Schema | None:
        """The columns as they are now, with their metadata; None when there is no table."""

    def properties(self) -> Mapping[str, str]: ...

    def exists(self) -> bool:
        """Whether there is a table now, also where it was removed since this object read it."""

    def identity(self) -> str:
        """The id of this very table: another one in the same place has another."""

    def version(self) -> int: ...

    def holds(self, version: int) -> bool:
        """Whether all of an old version can still be read."""

    def applied(self, app: str) -> int:
        """The version of the last mark, -1 when there is none."""

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None: ...

    def describe(self, properties: Mapping[str, str]) -> None: ...

    def extend(self, fields: Sequence[pa.Field]) -> None:
        """Add columns; old rows have null there."""

    def rewrite(self, steps: Sequence[Step], answers: Answers | None = None) -> None:
        """All rows in a new shape, with the answers of the source in them, in one commit."""

    def become(self, origin: Target, version: int, properties: Mapping[str, str]) -> None:
        """Hold what `origin` held at `version`, in its shape; the properties follow in a commit of their own."""

    def merge(self, merge: Merge, mark: Mark | None) -> None: ...

    def replace(self, rows: pa.Table, mark: Mark | None) -> None:
        """These rows instead of all."""

    def append(self, rows: pa.Table, mark: Mark | None) -> None: ...

    def lookup(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows under `keys`: key and `columns`; may hold more rows than asked for."""

    def read(self, columns: Sequence[str]) -> pa.Table: ...

    def strangers(self, key: Sequence[str], known: Known, dead: str | None) -> pa.Table:
        """The keys of rows that are not known, without holding all; those that the column `dead` marks do not count."""

    def tidy(self) -> None:
        """Join small files and drop outdated ones, when it is time."""


class Engine(Protocol):
    def target(self, uri: str) -> Target: ...


def pad(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the target's shape; columns that they lack are null."""
    columns = [
        rows[f.name].cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)


def portions(parts: Iterable[pa.Table], rows: int, size: int) -> Iterator[pa.Table]:
    """Several parts at a time, until they are so many rows or bytes."""
    gathered: list[pa.Table] = []
    left_rows, left_bytes = rows, size
    for part in parts:
        if gathered and not part.num_rows:
            continue
        gathered.append(part)
        left_rows, left_bytes = left_rows - part.num_rows, left_bytes - part.nbytes
        if left_rows <= 0 or left_bytes <= 0:
            yield pa.concat_tables(gathered)
            gathered, left_rows, left_bytes = [], rows, size
    if gathered:
        yield pa.concat_tables(gathered)


def uri(root: str, *names: str) -> str:
    """Where a table is: one folder per name, such as schema and table."""
    return own_uri(root, place_of(*names))


def place_of(*names: str) -> str:
    """The folder of a table, below the sink's path."""
    return "/".join(map(folder_name, names))


def folder_name(name: str) -> str:
    """The name as a folder that every reader and store takes, different from that of any other name.

    Letters, digits and `_` of ASCII stand for themselves. Every other byte of UTF-8 is `-` and two digits (`k-c3-a4`
    for `kä`), because some readers take the escapes of a URL for the name of the file. A leading `_` is escaped too: it
    marks the sink's own folders, and Spark does not read them."""
    return _ESCAPED.sub(lambda found: "".join(f"-{byte:02x}" for byte in found[0].encode()), name)


_ESCAPED = re.compile(r"^_|[^A-Za-z0-9_]")


def own_uri(root: str, name: str) -> str:
    """Where the sink keeps a table of its own."""
    return f"{root.rstrip('/')}/{name}"
