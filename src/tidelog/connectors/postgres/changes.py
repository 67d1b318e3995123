"""What a log tells between its begins and commits: rows, truncates and logical messages, as records are made of them.

Rows are taken apart with numpy over the joined buffer; only what is rare (relations, truncates, logical messages,
origins) is looked at one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tidelog.connectors.postgres import position
from tidelog.connectors.postgres.wire import Ints, Log
from tidelog.contracts import RECORDS
from tidelog.errors import CorruptState
from tidelog.model.record import Op

_OPS = {"I": Op.CREATE, "U": Op.UPDATE, "D": Op.DELETE, "T": Op.TRUNCATE, "M": Op.MESSAGE}
_CODES = np.zeros(256, np.uint8)
for _kind, _op in _OPS.items():
    _CODES[ord(_kind)] = ord(_op)
_ROWS = np.zeros(256, np.bool_)
_ROWS[[ord(_kind) for _kind in "IUD"]] = True

Rare = Callable[[int, bytes], None]
"""Looks at one message, by its number and its body."""


class Changes:
    """The records of a log in its order: `index` is the message of each, `oid` its table, `within` its place among the
    records of one message."""

    def __init__(self, log: Log, passed: str, rare: Mapping[str, Rare]) -> None:
        """`passed` are kinds that need no look; `rare` looks at those that this class does not know."""
        self._log = log
        is_row = _ROWS[log.kinds]
        self.weights = is_row.astype(np.int64)
        """How many records each message makes."""
        self.index = np.flatnonzero(is_row)
        self.oid = log.be32(log.bodies[self.index] + 1)
        self.within = np.zeros(len(self.index), np.int64)
        self.messages: list[tuple[int, int | None]] = []
        """Logical messages, each with its own place in the log if it is outside any transaction."""
        self.origins: dict[int, str] = {}
        self._truncates: list[tuple[int, int, int]] = []
        known: dict[str, Rare] = {"T": self._truncate, "M": self._message, "O": self._origin}
        self._look(is_row, passed, {ord(kind): look for kind, look in {**known, **rare}.items()})
        if self._truncates:
            self._insert(np.array(self._truncates, np.int64))

    def _look(self, is_row: np.ndarray[tuple[int], np.dtype[np.bool_]], passed: str, rare: Mapping[int, Rare]) -> None:
        plain = is_row | np.isin(self._log.kinds, [ord(kind) for kind in passed])
        for index in np.flatnonzero(~plain).tolist():
            kind = int(self._log.kinds[index])
            if kind not in rare:
                raise CorruptState(
                    f"The server sent a message of unknown kind {chr(kind)!r}.",
                    hint="Is the plugin of the slot pgoutput, and the server not newer than this tidelog knows?",
                )
            rare[kind](index, self._log.body(index))

    def _truncate(self, index: int, body: bytes) -> None:
        """One message, one record for each table that it names."""
        (count,) = struct.unpack_from(">i", body, 1)
        oids = struct.unpack_from(f">{count}I", body, 6)
        self.weights[index] = count
        self._truncates += [(index, oid, k) for k, oid in enumerate(oids)]

    def _message(self, index: int, body: bytes) -> None:
        transactional, lsn = struct.unpack_from(">BQ", body, 1)
        self.weights[index] = 1 if transactional else 0
        self.messages.append((index, None if transactional else position.of_message(lsn)))

    def _origin(self, index: int, body: bytes) -> None:
        self.origins[index] = body[9:-1].decode()

    def _insert(self, truncates: Ints) -> None:
        index = np.concatenate([self.index, truncates[:, 0]])
        order = np.argsort(index, kind="stable")
        self.index = index[order]
        self.oid = np.concatenate([self.oid, truncates[:, 1]])[order]
        self.within = np.concatenate([self.within, truncates[:, 2]])[order]

    @property
    def loose(self) -> list[tuple[int, int]]:
        """The messages outside any transaction, each with its place."""
        return [(index, at) for index, at in self.messages if at is not None]

    def records(
        self,
        index: Ints,
        *,
        position: Ints,
        ordinal: Ints,
        table_ordinal: Ints,
        xid: Ints,
        committed: Ints,
        origin: pa.StringArray,
    ) -> pa.RecordBatch:
        """The messages of `index` as `RECORDS`."""
        log = self._log
        numbers = [position, ordinal, table_ordinal, xid, committed, log.lsns(index)]
        codes = pa.array(_CODES[log.kinds[index]])
        return pa.record_batch([*map(pa.array, numbers), codes, origin, log.payloads(index)], schema=RECORDS)


def own_record(op: Op, at: int, committed: int) -> dict[str, object]:
    """A record that the log knows nothing of."""
    row: dict[str, object] = dict.fromkeys(RECORDS.names, 0)
    told = {"position": at, "committed": committed, "lsn": position.resume(at), "op": ord(op)}
    return {**row, **told, "origin": None, "payload": b""}
