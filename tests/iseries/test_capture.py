"""The engine's own capture on the simulated system: its thread, its retries, and both kinds of restart."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.iseries.driver import Server
from tests.iseries.run import OPTIONS
from tests.iseries.system import System
from tests.iseries.workload import ORDERS
from tidelog.connectors.iseries import client, connector
from tidelog.core import metadata
from tidelog.engine.capture import Capture
from tidelog.journal import segment
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger

REST = tuple(field.default() for field in ORDERS.fields[1:])


class Engine:
    """A capture from its start to its stop."""

    def __init__(self, folder: Path, start: int, *, persistent: bool) -> None:
        self.files = Files(str(folder / "journal"))
        self.source = connector.create(OPTIONS)
        self.journal = SegmentJournal(self.files, Ledger(str(folder / "ledger.sqlite")), persistent=persistent)
        self.capture = Capture(self.source, self.journal, self.files, persistent=persistent)
        self.capture.start(start)

    def ids(self, start: int) -> list[int]:
        """Of all rows that are there once the log is read to its end."""
        assert self.capture.caught_up(self.source.log_end(), 120)
        found = []
        for piece in self.journal.plan(start, self.journal.end()):
            assert piece.table is not None
            rows = self.source.decoder().typed(segment.load(self.files, piece), piece.table, self.source.selection())
            found += [(row[metadata.POSITION], row[metadata.ORDINAL], row["ID"]) for row in rows.rows.to_pylist()]
        return [id for _, _, id in sorted(found)]

    def stop(self) -> None:
        self.capture.stop()
        self.capture.raise_failure()
        self.source.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_what_is_open_survives_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, persistent: bool) -> None:
    system = System([ORDERS])
    server = Server(system)
    monkeypatch.setattr(client, "CONNECT", server.connect)
    start = connector.create(OPTIONS).prepare()
    open_one, gone = system.begin(), system.begin()
    system.row("PT", ORDERS, 1, (1, *REST), open_one)
    system.row("PT", ORDERS, 2, (2, *REST), gone)
    system.row("PT", ORDERS, 3, (3, *REST))
    first = Engine(tmp_path, start, persistent=persistent)
    assert first.ids(start) == [3]
    first.stop()
    system.attach()
    system.row("PT", ORDERS, 4, (4, *REST), open_one)
    system.row("DR", ORDERS, 2, (2, *REST), gone)
    system.write("C", "RB", cycle=gone)
    system.write("C", "CM", cycle=open_one)
    second = Engine(tmp_path, start, persistent=persistent)
    assert second.ids(start) == [3, 1, 4]
    note = second.journal.last_commit(second.journal.end())[2]
    told = second.source.document(second.journal.end(), 0, 0, note)
    assert told["offset.receiver"] == "RCV0002"
    assert second.source.position_of(told) == second.journal.end()
    lag = second.source.lag()
    assert lag.bytes >= 0
    second.stop()


def test_a_broken_connection_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    system = System([ORDERS])
    server = Server(system)
    monkeypatch.setattr(client, "CONNECT", server.connect)
    start = connector.create(OPTIONS).prepare()
    engine = Engine(tmp_path, start, persistent=True)
    system.row("PT", ORDERS, 1, (1, *REST))
    assert engine.ids(start) == [1]
    broken = iter([True])

    def cut(sql: str) -> None:
        ours = threading.current_thread().name == "tidelog-capture"
        if ours and "JOURNAL_RECEIVER_INFO" in sql and next(broken, False):
            raise OSError("the connection broke")

    server.before = cut
    system.row("PT", ORDERS, 2, (2, *REST))
    assert engine.ids(start) == [1, 2]
    assert next(broken, None) is None
    engine.stop()
