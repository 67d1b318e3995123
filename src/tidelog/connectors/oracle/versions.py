"""Which version of which table a row of the log belongs to.

The log names a table by owner and name, or by its number alone. A table is described by the catalog when it is first
met, and again at each DDL on it: what the catalog says then is the version of all rows that follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.connectors.oracle.catalog import Catalog, Name
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.redo.values import is_large
from tidelog.connectors.oracle.row import Ints, Mask, Rows
from tidelog.model.schema import Table

_BIN_LENGTH = 30


class Versions:
    def __init__(self, catalog: Catalog, config: Config, known: Sequence[Table]) -> None:
        self._catalog = catalog
        self._selection = config.selection
        self._signals = config.snapshot.signal_table
        self._lob = config.lob
        self._by_name: dict[Name, Table | None] = {(t.schema, t.name): t for t in known}
        self._by_number: dict[int, Table | None] = {}
        self._loaded = False

    def of(self, rows: Rows, which: Mask) -> tuple[Ints, list[Table]]:
        """For each row the index of its table among those that come back; -1 where it has none that is captured."""
        found = np.full(len(rows), -1, np.int64)
        places = np.flatnonzero(which)
        tables: dict[str, Table] = {}
        for mine in _apart(rows, places) if len(places) else ():
            first = int(mine[0])
            number, data_number = int(rows.object[first]), int(rows.data_object[first])
            table = self.find(rows.owner[first], rows.table[first], number, data_number)
            if table is not None:
                tables.setdefault(table.fingerprint, table)
                found[mine] = list(tables).index(table.fingerprint)
        return found, list(tables.values())

    def find(self, owner: str | None, name: str | None, number: int, data_number: int = 0) -> Table | None:
        """The version of a captured table that counts now; None for other tables."""
        if not owner or not name or _is_unresolved(name):
            return self._numbered(number) or self._numbered(data_number)
        if (owner, name) not in self._by_name:
            self._by_name[owner, name] = self._described(owner, name)
        return self._by_name[owner, name]

    def _described(self, owner: str, name: str) -> Table | None:
        if not self._wants(owner, name):
            return None
        if not self._loaded:
            self._loaded = True
            for table in self._catalog.captured():
                self._by_name.setdefault((table.schema, table.name), table)
        return self._by_name.get((owner, name)) or self._catalog.named(owner, name)

    def _numbered(self, number: int) -> Table | None:
        if not number:
            return None
        if number not in self._by_number:
            table = self._catalog.by_object(number)
            self._by_number[number] = table if table is not None and self._wants(table.schema, table.name) else None
        found = self._by_number[number]
        return self._by_name.get((found.schema, found.name), found) if found is not None else None

    def _wants(self, owner: str, name: str) -> bool:
        return self._selection.has_table(owner, name) or f"{owner}.{name}" == self._signals

    def changed(self, owner: str | None, name: str | None, number: int) -> Table | None:
        """Describe a table anew, after DDL; the new version if there is one that is captured."""
        before = self._known(owner, name, number)
        now = self._now(before, owner, name)
        if before is not None and (now is None or (now.schema, now.name) != (before.schema, before.name)):
            self._by_name.pop((before.schema, before.name), None)
        if now is None or not self._wants(now.schema, now.name):
            return None
        self._by_name[now.schema, now.name] = now
        self._by_number.clear()
        return None if before is not None and before.fingerprint == now.fingerprint else now

    def _known(self, owner: str | None, name: str | None, number: int) -> Table | None:
        """Without asking the catalog."""
        found = self._by_name.get((owner, name)) if owner and name else None
        return found or next((t for t in self._by_name.values() if t is not None and t.id == number), None)

    def _now(self, before: Table | None, owner: str | None, name: str | None) -> Table | None:
        present = self._catalog.present([before.id]) if before is not None else []
        if present:
            return present[0]
        return self._catalog.named(owner, name) if owner and name and self._wants(owner, name) else None

    def is_merged(self, table: Table) -> bool:
        """Whether several rows of the log may tell one change of it."""
        return self._lob and any(map(is_large, table.columns))


def _is_unresolved(name: str) -> bool:
    dropped = name.startswith("BIN$") and name.endswith("==$0") and len(name) == _BIN_LENGTH
    return name == "UNKNOWN" or name.startswith("OBJ#") or dropped


def _apart(rows: Rows, places: Ints) -> list[Ints]:
    """These rows by table: by number, which is fast; where there is none, by name."""
    numbers = rows.object[places]
    if numbers.all():
        order = np.argsort(numbers, kind="stable")
        return list(np.split(places[order], np.flatnonzero(np.diff(numbers[order])) + 1))
    by_name: dict[tuple[str | None, str | None, int], list[int]] = {}
    for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
        by_name.setdefault((rows.owner[place], rows.table[place], number), []).append(place)
    return [np.array(some, np.int64) for some in by_name.values()]
