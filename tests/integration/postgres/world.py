"""A database, and a reader of its log without Spark: what every test of the capture starts from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import Patience
from tests.servers import Database
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.contracts import Portion, Slice, Tail
from tidelog.core import metadata
from tidelog.engine.batch_plan import Plan
from tidelog.engine.definition import Definition
from tidelog.engine.home import Home
from tidelog.engine.reading import Reading
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.model.offset import Offset
from tidelog.model.record import Op
from tidelog.model.schema import Table


@dataclass(frozen=True)
class Event:
    """A record, decoded under the version of its table that the journal gives it."""

    table: str
    op: str
    row: dict[str, Any]
    before: dict[str, Any] | None
    position: int
    ordinal: int
    xid: int
    origin: str | None
    payload: bytes
    version: Table | None

    @property
    def place(self) -> tuple[int, int]:
        return self.position, self.ordinal


@dataclass
class World:
    """One pipeline's settings and state; `reading()` is one run of it."""

    database: Database
    folder: Path
    source: dict[str, str] = field(default_factory=dict)
    journal: dict[str, str] = field(default_factory=dict)
    stream: dict[str, str] = field(default_factory=dict)
    runs: list[Reading] = field(default_factory=list)

    @property
    def options(self) -> dict[str, str]:
        mine = {
            "database.hostname": self.database.host,
            "database.port": str(self.database.port),
            "database.user": self.database.user,
            "database.password": self.database.password,
            "database.dbname": self.database.dbname,
            "slot.name": self.database.dbname,
            "publication.name": self.database.dbname,
            "snapshot.mode": "no_data",
        }
        return {**mine, **self.source}

    @property
    def definition(self) -> Definition:
        source = {"connector": "postgres", **self.options}
        return Definition(self.folder.name, source, {"type": "console"}, self.stream, self.journal)

    def connector(self) -> PostgresConnector:
        return create(self.options)

    def reading(self, reader: str = "main") -> Reading:
        self.folder.mkdir(exist_ok=True)
        self.runs.append(Reading(self.definition, Home(self.folder), reader=reader))
        return self.runs[-1]

    def confirmed(self) -> int:
        sql = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        return int(self.database.server.execute(sql, [self.options["slot.name"]])[0][0])

    def close(self) -> None:
        for run in self.runs:
            run.close()


def catch_up(reading: Reading, start: Offset, *, events: int | None = None) -> tuple[Offset, list[Event]]:
    """Everything up to the present end of the log, batch by batch, as a query would take it."""
    reading.drain()
    found: list[Event] = []
    while (end := reading.latest(start, events, None)) != start:
        found += decode(reading.plan(start, end))
        start = end
    return start, found


def follow(reading: Reading, start: Offset, count: int) -> tuple[Offset, list[Event]]:
    """At least so many events, as they come."""
    found: list[Event] = []
    patience = Patience()
    while len(found) < count:
        assert not patience.is_over(), f"{count} events did not come, only {found}"
        end = reading.latest(start, None, None)
        found += decode(reading.plan(start, end))
        start = end
    return start, found


def decode(plan: Plan) -> list[Event]:
    """The events of a plan in log order."""
    files, decoder = Files(plan.journal), PostgresDecoder()
    found = [event for piece in plan.slices for event in _events(files, piece, decoder, plan)]
    return sorted(found, key=lambda e: e.place)


def _events(files: Files, piece: Slice, decoder: PostgresDecoder, plan: Plan) -> list[Event]:
    block = segment.load(files, piece)
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    if piece.table is not None:
        typed = decoder.typed(block, piece.table, plan.selection).rows.to_pylist()
        rows = {(row[metadata.POSITION], row[metadata.ORDINAL]): row for row in typed}
    return [_event(row, rows.get((row["position"], row["ordinal"]), {}), piece.table) for row in block.to_pylist()]


def _event(raw: dict[str, Any], row: dict[str, Any], table: Table | None) -> Event:
    return Event(
        table=table.qualified.removeprefix("public.") if table else "",
        op=chr(raw["op"]),
        row={k: v for k, v in row.items() if not k.startswith("_")},
        before=row.get(metadata.BEFORE),
        position=raw["position"],
        ordinal=raw["ordinal"],
        xid=raw["xid"],
        origin=raw["origin"],
        payload=raw["payload"],
        version=table,
    )


def changes(events: list[Event]) -> list[Event]:
    """Without what tidelog itself adds."""
    return [e for e in events if e.op not in (Op.SCHEMA, Op.HEARTBEAT)]


def told(events: list[Event]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(e.table, e.op, e.row) for e in changes(events)]


def until(done: Callable[[], object], what: str) -> None:
    patience = Patience()
    while not done():
        assert not patience.is_over(), f"{what} did not happen"
        time.sleep(0.02)


def poll_until(tail: Tail, done: Callable[[list[Portion]], bool], what: str) -> list[Portion]:
    """Portions until they are enough."""
    found: list[Portion] = []
    patience = Patience()
    while not done(found):
        assert not patience.is_over(), f"{what} did not come"
        portion = tail.poll(0.05, True)
        found += [portion] if portion is not None else []
    return found
