"""Where each source table lives in the target: what makes a rename of the *table* a move instead of a new target.

The book is an append-only Delta table beside the targets. A move is written down with the version it copies from
*before* anything is copied, so a crash half-way, also of two tables that swap names, is taken up where it broke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from tidelog.model.schema import Table
from tidelog.spark.sinks.target import Target

TABLE, QUERY, PLACE = "tidelog.table", "tidelog.query", "tidelog.place"
BOOK = "_tables"
"""Where the book lies, in the folder of the tables."""
MISSING = "tidelog.missing"
"""Set while a table's old rows have to be read from the source."""
NOWHERE = -1
"""Instead of a version: the rows were still missing when the table left its place."""
SHAPE = pa.schema(
    [
        ("number", pa.int64()),
        ("query", pa.string()),
        ("id", pa.int64()),
        ("uri", pa.string()),
        ("origin", pa.string()),
        ("origin_version", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Place:
    """`uri` is where the table's changes go; None when another table took its place before it was seen again."""

    number: int
    query: str
    id: int
    uri: str | None
    origin: str | None = None
    """Whose rows it starts with, and as of which version; None: it starts empty."""
    origin_version: int | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What the target says of itself once it is taken; the number tells a return from never having left."""
        return {TABLE: str(self.id), QUERY: self.query, PLACE: str(self.number)}


@dataclass
class Places:
    book: Target
    open: Callable[[str], Target]
    _places: list[Place] | None = field(default=None, init=False)

    def settle(self, query: str, table: Table, uri: str) -> Place:
        """The place of a table in this batch; a new one is written down first."""
        last = self._last(query, table.id)
        if last is not None and last.uri == uri:
            return last
        self._evict(query, table.id, uri)
        return self._add(Place(len(self._known()), query, table.id, uri, *self._origin(last)))

    def _origin(self, last: Place | None) -> tuple[str | None, int | None]:
        if last is None:
            return None, None
        if last.uri is None:
            return last.origin, last.origin_version
        return last.uri, self._version(last.uri)

    def _evict(self, query: str, id: int, uri: str) -> None:
        """Note where the rows of another table that had this place can be found once they are overwritten."""
        target = self.open(uri)
        properties = target.properties() if target.schema() is not None else {}
        other = int(properties.get(TABLE, id))
        last = self._last(query, other)
        if other != id and properties.get(QUERY) == query and last is not None and last.uri == uri:
            self._add(Place(len(self._known()), query, other, None, uri, self._version(uri)))

    def _version(self, uri: str) -> int:
        """The version in which a table's rows are found again."""
        target = self.open(uri)
        return NOWHERE if target.properties().get(MISSING) else target.version()

    def _last(self, query: str, id: int) -> Place | None:
        return next((p for p in reversed(self._known()) if (p.query, p.id) == (query, id)), None)

    def _known(self) -> list[Place]:
        if self._places is None:
            rows = self.book.read(SHAPE.names).sort_by("number").to_pylist() if self.book.schema() else []
            self._places = [Place(**row) for row in rows]
        return self._places

    def _add(self, place: Place) -> Place:
        known, self._places = self._known(), None  # read anew should the append fail
        if self.book.schema() is None:
            self.book.create(SHAPE, {})
        self.book.append(pa.Table.from_pylist([asdict(place)], SHAPE), None)
        self._places = [*known, place]
        return place
