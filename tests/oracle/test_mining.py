"""The mining session alone: whatever files, instances and connections do, every row of the log comes once, in order."""

from __future__ import annotations

from random import Random

import pytest

from tests.oracle import redo
from tests.oracle.driver import Server
from tests.oracle.workload import Traits, Workload
from tidelog.connectors.oracle import client, config, queries
from tidelog.connectors.oracle.session import Miner
from tidelog.errors import TransientError

SEEDS = 300
OPTIONS = {
    "database.user": "c##tide",
    "database.dbname": "FREE",
    "log.mining.log.query.max.retries": "100000",
    "log.mining.log.backoff.initial.delay.ms": "0",
}


class Mined:
    """Passes over the log of a workload that goes on meanwhile."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"{seed} mining")
        rng = Random(seed)
        self.workload = Workload(rng, Traits.of(rng))
        self.server = Server(self.workload.database)
        self.server.before = self._round_trip
        self.workload.restarted = lambda thread: self.server.cut() if thread == 1 else None
        least = self.rng.choice(("0", "0", "1", "2"))
        options = {**OPTIONS, "query.fetch.size": self.rng.choice(("3", "1000")), "log.mining.log.count.min": least}
        self.config = config.read(options)
        self.read = self.start = self.workload.database.scn
        self.workload.database.redo.advance()
        self.left = 120
        self.places: list[tuple[int, str]] = []

    def run(self) -> None:
        miner = Miner(self.config)
        while self.left > 0:
            self._pass(miner)
        self.workload.settle()
        for _ in range(200):
            if self.read >= self.workload.database.scn - 30:
                break
            self._pass(miner)

    def _pass(self, miner: Miner) -> None:
        try:
            window = miner.window(self.start, self.read)
            if window is None:
                return self._step()
            statement = queries.contents_buffered(self.config, self.read, window.end)
            found = [row for batch in miner.rows(statement) for row in batch]
        except TransientError:
            return self._step()
        whole = miner.whole
        high = window.end if whole else max((row[0] for row in found), default=self.read) - 1
        self.places += [(row[0], row[-3]) for row in found if row[0] <= high and not row[5]]
        self.read = max(self.read, high)
        if self.rng.random() < 0.3:
            self.start = max(self.start, self.read - self.rng.randint(0, 60))
            self.workload.safe = self.start
        return None

    def _step(self) -> None:
        if self.left > 0:
            self.left -= 1
            self.workload.step()
        else:
            self.workload.settle_files()

    def _round_trip(self, _: str) -> None:
        if self.left > 0:
            if self.rng.random() < 0.5:
                self._step()
            if self.rng.random() < 0.003:
                self.server.cut()
        else:
            self.workload.settle_files()

    def expected(self) -> list[tuple[int, str]]:
        first = {e.order: (e.scn, f" 0x{e.thread:06x}.{e.order:08x}.0010 ") for e in self._entries()}
        return [first[e.order] for e in sorted(self._entries(), key=lambda e: e.place)]

    def _entries(self) -> list[redo.Entry]:
        wanted = (*queries.codes(self.config), 5, 6, 7, 27, 34, 36)
        entries = (e for log in self.workload.database.redo.logs() for e in log.entries)
        return [e for e in entries if e.code in wanted and self.workload.database.redo.on_disk(e)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_row_comes_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mined = Mined(seed)
    monkeypatch.setattr(client, "CONNECT", mined.server.connect)
    mined.run()
    expected = [place for place in mined.expected() if place[0] <= mined.read]
    assert mined.places == expected
    assert len(expected) > 4
