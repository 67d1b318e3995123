"""Metrics in Prometheus' text form, under the names that Debezium's users know, in snake case.

`ChunkFrom` and `ChunkTo` are left out: keys are data, and each would be a time series of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.engine.watching import Walks, walks
from tidelog.server.samples import Sample
from tidelog.server.service import Service

_STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED")
_OPERATIONS = {"create": "c", "update": "u", "delete": "d"}


@dataclass
class Family:
    """A metric with its lines."""

    name: str
    kind: str
    meaning: str
    lines: list[str] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], value: float) -> None:
        told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        self.lines.append(f"tidelog_{self.name}{{{told}}} {value:.10g}")


def text(service: Service) -> str:
    families: dict[str, Family] = {}
    for connector in service.store.connectors():
        name, state = connector.name, service.state(connector)[0]
        for family, labels, value in _of(service, name, state):
            families.setdefault(family.name, family).add({"connector": name, **labels}, value)
    return "".join(f"{line}\n" for family in families.values() for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP tidelog_{family.name} {family.meaning}"
    yield f"# TYPE tidelog_{family.name} {family.kind}"
    yield from family.lines


Value = tuple[Family, Mapping[str, str], float]


def _of(service: Service, name: str, state: str) -> Iterator[Value]:
    now, found = service.latest(name), walks(Home.at(name))
    for known in _STATES:
        yield _gauge("connector_state", "1 for the state that the connector is in."), {"state": known}, state == known
    yield from _streaming(now)
    yield _gauge("captured_tables", "Tables of which events were delivered."), {}, len(service.counts(name))
    yield from _snapshots(service, name, found)
    yield from undelivered(Home.at(name))


def _streaming(now: Sample) -> Iterator[Value]:
    yield _gauge("milli_seconds_behind_source", "Age of the oldest change that is not delivered."), {}, now.lag_ms
    unreachable_s = max(0, now.at_ms - now.unreachable_since_ms) / 1000 if now.unreachable_since_ms else 0
    yield (
        _gauge("source_unreachable_seconds", "How long the database has not answered; 0 if it does."),
        {},
        unreachable_s,
    )
    yield _gauge("bytes_behind_source", "Log that is not acknowledged yet."), {}, now.lag_bytes
    yield _counter("total_number_of_events_seen", "Events captured."), {}, sum(now.operations.values())
    for word, letter in _OPERATIONS.items():
        family = _counter(f"total_number_of_{word}_events_seen", f"Events captured that {word} a row.")
        yield family, {}, now.operations.get(letter, 0)
    yield _counter("total_number_of_events_delivered", "Events delivered to the sink."), {}, now.events_total
    yield _gauge("events_per_second", "Events delivered a second."), {}, now.events_per_second
    yield _gauge("source_event_position", "Captured up to here."), {}, now.position
    yield _gauge("journal_bytes", "Bytes of the journal on disk."), {}, now.journal_bytes
    yield _gauge("batch_id", "The last micro-batch."), {}, now.batch_id
    yield _gauge("batch_duration_in_milli_seconds", "How long the sink took for it."), {}, now.batch_ms


def _snapshots(service: Service, name: str, found: Walks) -> Iterator[Value]:
    ended = service.ended(name)
    how = [e.how for e in ended[-1:]]
    yield _gauge("snapshot_running", "Whether tables are being read."), {}, bool(found.tables) and not found.paused
    yield _gauge("snapshot_paused", "Whether the reading rests."), {}, bool(found.tables) and found.paused
    yield _gauge("snapshot_completed", "Whether the last snapshot was completed."), {}, how == ["COMPLETED"]
    yield _gauge("snapshot_aborted", "Whether the last snapshot was stopped."), {}, how == ["ABORTED"]
    yield _gauge("remaining_table_count", "Tables that are not read to their end."), {}, len(found.tables)
    if ended and ended[-1].ms is not None:
        family = _gauge("snapshot_duration_in_seconds", "How long the last snapshot took.")
        yield family, {}, ended[-1].ms / 1000
    for walk in found.tables:
        yield _gauge("rows_scanned", "Rows of a table that are delivered."), {"table": walk.table}, walk.rows
        chunk = walk.planned + walk.staged + walk.emitted
        yield _gauge("chunk_id", "Number of the last chunk of a table."), {"table": walk.table}, chunk


def undelivered(home: Home) -> Iterator[Value]:
    waiting = [aside for aside in SetAside(home).all() if aside.waits]
    yield _gauge("set_aside_tables", "Tables that the sink cannot take."), {}, len(waiting)
    for letters in DeadLetters(home).all():
        family = _counter("undecodable_records", "Records that could not be decoded, and what became of them.")
        yield family, {"table": letters.table, "fate": "set_aside"}, letters.set_aside
        yield family, {"table": letters.table, "fate": "left_out"}, letters.left_out


def _gauge(name: str, meaning: str) -> Family:
    return Family(name, "gauge", meaning)


def _counter(name: str, meaning: str) -> Family:
    return Family(name, "counter", meaning)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
