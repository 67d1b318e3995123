"""The buffers that live in Python: tidelog's own, a dictionary on the heap, and RocksDB.

All take the same readings. `replay` is what happens at a commit: it is told, and every record of the transaction comes
back; the number of records is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import buffer_load
from tidelog.contracts import Mixed
from tidelog.journal import segment
from tidelog.journal.buffer import Buffer
from tidelog.journal.files import Files
from tidelog.journal.journal import SegmentJournal
from tidelog.journal.ledger import Ledger

MEMORY_BYTES = 32 << 20
"""For open transactions: the half of what capture has by default."""


class Store(Protocol):
    def add(self, mixed: Mixed) -> None: ...

    def flush(self) -> None:
        """What was added is durable when this returns, if the store can do that."""

    def replay(self, xids: list[int], position: int) -> int: ...

    def close(self) -> None: ...


class TidelogStore:
    """The buffer, and the journal that takes what has committed: as capture runs them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = Files(str(folder))
        self._journal = SegmentJournal(self._files, Ledger(str(folder / "ledger")), max_bytes=1 << 40)
        self._journal.open(0)
        self._buffer = Buffer(self._files, memory_bytes=MEMORY_BYTES, persistent=True)

    def add(self, mixed: Mixed) -> None:
        for portion in self._buffer.add(mixed):
            self._journal.append(portion)

    def flush(self) -> None:
        self._buffer.flush()

    def replay(self, xids: list[int], position: int) -> int:
        self.add(buffer_load.ending(xids, position))
        slices = self._journal.plan(position, position + len(xids))
        return sum(segment.load(self._files, piece).num_rows for piece in slices)

    def close(self) -> None:
        self._journal.close()


class HeapStore:
    """What everyone writes first: a list of records for each transaction. A crash takes it all."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - it has no use for a disk
        self._open: dict[int, list[bytes]] = {}

    def add(self, mixed: Mixed) -> None:
        for xid, payload in changes(mixed):
            self._open.setdefault(xid, []).append(payload)
        for xid in ended(mixed):
            self._open.pop(xid, None)

    def flush(self) -> None: ...

    def replay(self, xids: list[int], position: int) -> int:  # noqa: ARG002
        return sum(1 for xid in xids for record in self._open.pop(xid) if record)

    def close(self) -> None: ...


class RocksStore:
    """RocksDB with keys of transaction and place, so that each transaction's records stand together."""

    def __init__(self, folder: Path) -> None:
        from rocksdict import Options, Rdict

        folder.mkdir(parents=True, exist_ok=True)
        self._db = Rdict(str(folder / "rocks"), Options(raw_mode=True))
        self._place = 0

    def add(self, mixed: Mixed) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for block in mixed.blocks:
            xids, payloads = (block.records.column(name) for name in ("xid", "payload"))
            for key, payload in zip(self._keys(xids.to_numpy()), payloads.to_pylist(), strict=True):
                batch.put(key, payload)
        for xid in ended(mixed):
            batch.delete_range(*bounds(xid))
        self._db.write(batch)

    def _keys(self, xids: buffer_load.Ints) -> Iterator[bytes]:
        pairs = np.empty((len(xids), 2), ">i8")
        pairs[:, 0], pairs[:, 1] = xids, np.arange(self._place, self._place + len(xids))
        self._place += len(xids)
        raw = pairs.tobytes()
        return (raw[at : at + 16] for at in range(0, len(raw), 16))

    def flush(self) -> None:
        self._db.flush_wal(sync=True)

    def replay(self, xids: list[int], position: int) -> int:  # noqa: ARG002
        return sum(self._scan(xid) for xid in xids)

    def _scan(self, xid: int) -> int:
        low, high = bounds(xid)
        count = 0
        for key, record in self._db.items(from_key=low):
            if key >= high:
                break
            count += bool(record)
        self._db.delete_range(low, high)
        return count

    def close(self) -> None:
        self._db.close()


def changes(mixed: Mixed) -> Iterator[tuple[int, bytes]]:
    for block in mixed.blocks:
        xids, payloads = (block.records.column(name).to_pylist() for name in ("xid", "payload"))
        yield from zip(xids, payloads, strict=True)


def ended(mixed: Mixed) -> list[int]:
    return mixed.marks.column("xid").to_pylist()  # type: ignore[no-any-return]


def bounds(xid: int) -> tuple[bytes, bytes]:
    return xid.to_bytes(8, "big"), (xid + 1).to_bytes(8, "big")


STORES: dict[str, Callable[[Path], Any]] = {"tidelog": TidelogStore, "heap": HeapStore, "rocksdb": RocksStore}
