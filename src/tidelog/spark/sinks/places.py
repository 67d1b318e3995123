"""Where each source table lives in the target: what makes a rename of the *table* a move instead of a new target.

The book is an append-only Delta table beside the targets. A move is written down with the version it copies from
*before* anything is copied, so a crash half-way, also of two tables that swap names, is taken up where it broke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

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
    root: str
    """The folder of the tables."""
    book: Target
    open: Callable[[str], Target]
    _places: list[Place] | None = field(default=None, init=False)

    def settle(self, query: str, table: Table, uri: str) -> Place:
        """The place of a table in this batch; a new one is written down first."""
        last = self.last(query, table.id)
        if last is not None and last.uri == uri:
            return last
        if last is None and (number := self._number_in_target(query, table.id, uri)) is not None:
            return self._add(Place(number, query, table.id, uri))  # the book was lost, and the table was not
        self._evict(query, table.id, uri)
        return self._add(Place(self._next_number(), query, table.id, uri, *self._origin(last)))

    def last(self, query: str, id: int) -> Place | None:
        return next((p for p in reversed(self._known()) if (p.query, p.id) == (query, id)), None)

    def forget_origin(self, query: str, id: int) -> None:
        """The table does not start with the rows of an earlier place any more: a snapshot brings all of them."""
        last = self.last(query, id)
        if last is not None and last.origin is not None:
            self._add(Place(self._next_number(), query, id, None))

    def _next_number(self) -> int:
        return max((place.number for place in self._known()), default=-1) + 1

    def _number_in_target(self, query: str, id: int, uri: str) -> int | None:
        properties = self.open(uri).properties()
        is_own = (properties.get(TABLE), properties.get(QUERY)) == (str(id), query)
        return int(properties[PLACE]) if is_own else None

    def _origin(self, last: Place | None) -> tuple[str | None, int | None]:
        if last is None:
            return None, None
        if last.uri is None:
            return last.origin, last.origin_version
        return last.uri, self._version(last.uri)

    def _evict(self, query: str, id: int, uri: str) -> None:
        """Note where the rows of another table that had this place can be found once they are overwritten."""
        target = self.open(uri)
        if target.schema() is None:  # lost, with the rows of whichever table the book knows here
            others = {place.id for place in self._known() if place.query == query} - {id}
        else:
            properties = target.properties()
            others = {int(properties.get(TABLE, id))} - {id} if properties.get(QUERY) == query else set()
        for other in sorted(others):
            last = self.last(query, other)
            if last is not None and last.uri == uri:
                self._add(Place(self._next_number(), query, other, None, uri, self._version(uri)))

    def _version(self, uri: str) -> int:
        """The version in which a table's rows are found again."""
        target = self.open(uri)
        is_missing = target.schema() is None or target.properties().get(MISSING)
        return NOWHERE if is_missing else target.version()

    def _known(self) -> list[Place]:
        if self._places is None:
            rows = self.book.read(SHAPE.names).sort_by("number").to_pylist() if self.book.schema() else []
            self._places = [self._where_it_is_now(Place(**row)) for row in rows]
        return self._places

    def _where_it_is_now(self, place: Place) -> Place:
        """The folder of the tables may have been moved, or is called by another path."""
        return replace(place, uri=self._below_root(place.uri), origin=self._below_root(place.origin))

    def _below_root(self, uri: str | None) -> str | None:
        """Each table is two folders below the root: one for its schema, and its own."""
        return uri and "/".join([self.root.rstrip("/"), *uri.split("/")[-2:]])

    def _add(self, place: Place) -> Place:
        known, self._places = self._known(), None  # read anew should the append fail
        if self.book.schema() is None:
            self.book.create(SHAPE, {})
        self.book.append(pa.Table.from_pylist([asdict(place)], SHAPE), None)
        self._places = [*known, place]
        return place
