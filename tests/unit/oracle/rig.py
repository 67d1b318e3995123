"""A tail and the transaction buffer, over a simulated database that is worked on meanwhile.

What the engine does around them is done here in miniature: what came is kept in a list, and after a crash the tail
begins again from the last transaction that was kept, with its note. Values are compared as redo SQL has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle import literals
from tests.oracle.driver import Server
from tests.oracle.workload import EXCLUDED_USER, OWNER, Event, Traits, Workload
from tidelog.connectors.oracle import client, config, payload, pending, position
from tidelog.connectors.oracle import note as notes
from tidelog.connectors.oracle.buffered import BufferedTail
from tidelog.connectors.oracle.note import Note
from tidelog.connectors.oracle.redo import dml
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Value
from tidelog.connectors.oracle.tail import MiningTail
from tidelog.connectors.oracle.unbuffered import UnbufferedTail
from tidelog.contracts import Block, Mixed, Portion
from tidelog.errors import TransientError
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.model.record import Op

BUFFERED, UNBUFFERED = "logminer", "logminer_unbuffered"
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)

Told = tuple[int, str, str, str, Any, Any]


class Rig:
    def __init__(self, seed: int, adapter: str, folder: Path, **traits: Any) -> None:
        rng = Random(seed)
        self.workload = Workload(rng, Traits(**traits) if traits else Traits.of(rng))
        self.server = Server(self.workload.database)
        self.server.before = self._round_trip
        self.workload.restarted = lambda thread: self.server.cut() if thread == 1 else None
        self.rng = Random(f"{seed} {adapter}")
        self.persistent = adapter == BUFFERED and self.rng.random() < 0.5
        self.files = Files(str(folder))
        self.config = config.read(self._options(adapter))
        self.left = 0
        self.told: list[Told] = []
        self.tail: MiningTail | None = None
        self.epoch = 0

    def _options(self, adapter: str) -> dict[str, str]:
        traits = self.workload.traits
        excluded = {"log.mining.username.exclude.list": EXCLUDED_USER} if traits.excluded else {}
        pauses = {f"log.mining.sleep.time.{name}.ms": "0" for name in ("default", "min", "max", "increment")}
        return {
            "database.user": "c##tide",
            "database.dbname": "FREE",
            "database.connection.adapter": adapter,
            "table.include.list": rf"{OWNER}\..*",
            "lob.enabled": str(traits.large).lower(),
            "query.fetch.size": self.rng.choice(("1", "3", "50", "1000")),
            "log.mining.log.query.max.retries": "100000",
            "log.mining.log.backoff.initial.delay.ms": "0",
            "log.mining.low.watermark.interval.ms": "0",
            **pauses,
            **excluded,
        }

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self, steps: int, *, crashes: bool = True) -> None:
        for _ in range(self.rng.randint(0, 20)):
            self.workload.step()
        start = pending.look(client.Session(self.config))
        self.since = start.scn
        self.at = position.last_at(position.of_scn(start.scn))
        self.note: Note = Note(start.mine_from, snapshot_scn=start.scn, pending=start.pending)
        self.left = steps
        while self.left > 0:
            self._poll()
            if crashes and self.rng.random() < 0.05:
                self._die()
        self.workload.settle()
        goal = position.of_scn(self.workload.database.scn)
        for _ in range(3000):
            if self.tail is not None and self.tail.quiet() and self.tail.reached() >= goal:
                return
            self._poll()
        raise AssertionError(f"the log was read up to {position.scn_of(self.tail.reached() if self.tail else 0)} only")

    def _poll(self) -> None:
        try:
            if self.tail is None:
                self._open()
            assert self.tail is not None
            found = self.tail.poll(0.0, True)
        except TransientError:
            self._die()
            return
        if found is not None:
            assert isinstance(found, Mixed)
            self._keep(self.buffer.add(found))
            if self.persistent and self.rng.random() < 0.3:
                self.buffer.flush()

    def _open(self) -> None:
        self.epoch += 1
        self.buffer = Buffer(
            self.files, memory_bytes=1 << 20, start=self.at, epoch=self.epoch, persistent=self.persistent
        )
        kept = self.buffer.kept()
        if self.config.unbuffered:
            self.tail = UnbufferedTail(self.config, self.at, [], 1 << 20, self.note)
        else:
            self.tail = BufferedTail(self.config, self.at, [], 1 << 20, self.note, kept)
        self.buffer.merging = self.tail.merging

    def _die(self) -> None:
        if self.tail is not None:
            self.server.cut()
        self.tail = None

    def _keep(self, portions: list[Portion]) -> None:
        for portion in portions:
            told = [one for block in portion.blocks for one in self._events(block)]
            self.told += [event for _, event in sorted(told, key=lambda one: one[0])]
            last = portion.transactions.to_pylist()[-1]
            assert last["position"] >= self.at
            self.at, self.note = last["end"], notes.parse(last["note"])
            if self.rng.random() < 0.02:
                self._die()
                return

    def _round_trip(self, _: str) -> None:
        if self.left > 0:
            for _ in range(self.rng.randint(0, 2)):
                self.left -= 1
                self.workload.step()
            if self.rng.random() < 0.003:
                self.server.cut()
        else:
            self.workload.settle_files()

    # -- what came, and what had to come -------------------------------------------------------------------------

    def _events(self, block: Block) -> Iterator[tuple[tuple[int, int], Told]]:
        payloads = payload.unpack(block.records.column("payload"))
        for row, sql, merged in zip(
            block.records.to_pylist(), payloads.sql.to_pylist(), payloads.merged.tolist(), strict=True
        ):
            op = Op(chr(row["op"]))
            if op not in _CHANGES or block.table is None:
                continue
            change = payload.read_merged(sql) if merged else dml.parse(sql.decode(), block.table)
            assert change.op is op
            images = _shown(change.before), _shown(change.after)
            scn, xid = position.scn_of(row["position"]), position.xid_text(row["xid"])
            yield (row["position"], row["ordinal"]), (scn, xid, block.table.qualified, str(op), *images)

    def expected(self) -> list[Told]:
        return [self._expected(event) for event in self.workload.events(self.since)]

    def _expected(self, event: Event) -> Told:
        """As the log has it: it never tells an old large value."""
        columns = {c.name: c for c in self.workload.database.relations[event.table].columns}

        def literal(row: Mapping[str, Any] | None, old: bool) -> dict[str, str] | None:
            if row is None:
                return None
            kept = {k: v for k, v in row.items() if not (old and columns[k].large)}
            return {k: _plain(literals.literal(columns[k], v)) for k, v in kept.items()}

        before, after = event.before, event.after
        if before is not None and after is not None:
            same = [k for k in after if columns[k].large and before.get(k) == after[k]]
            after = {k: v for k, v in after.items() if k not in same}
        return event.commit_scn, event.xid, event.table, event.op, literal(before, True), literal(after, False)


def _shown(image: Mapping[str, Value] | None) -> dict[str, str] | None:
    if image is None:
        return None
    return {k: str(v) for k, v in image.items() if v is not None and v is not UNAVAILABLE}


def _plain(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def played(seed: int, adapter: str, folder: Path, patch: pytest.MonkeyPatch, steps: int = 120, **traits: Any) -> Rig:
    rig = Rig(seed, adapter, folder, **traits)
    patch.setattr(client, "CONNECT", rig.server.connect)
    rig.run(steps)
    return rig
