"""System change numbers, and `commit_scn`: how far the commits of each redo thread were delivered.

    12345                             before 1.9.5, also as a number; the thread is 1
    12345:00241f.00093ff0.0010:0:1    1.9.5: SCN, rollback segment, sequence of the statement, thread
    12345:1:tx-tx,678901:2:           since 1.9.6: SCN, thread, the transactions that committed with this SCN

Only the last form is written. Two commits can share an SCN, which is why the transactions are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.core.offsets import compare as orders
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.fields import Kind, expected
from tidelog.errors import ConfigError

_SCN = re.compile(r"[0-9]{1,20}")
_TRANSACTION = re.compile(r"[0-9a-z.]+")
_HINT = "Write it like 12345:1:0a00140012345678, one such entry for each redo thread."


@dataclass(frozen=True)
class Committed:
    """What was delivered of one redo thread: all commits below `scn`, and these transactions at it."""

    scn: int
    transactions: tuple[str, ...] = ()

    def shown(self, thread: int) -> str:
        return f"{self.scn}:{thread}:{'-'.join(self.transactions)}"


@dataclass(frozen=True)
class CommitScn:
    threads: Mapping[int, Committed] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(self.threads[thread].shown(thread) for thread in sorted(self.threads))

    @property
    def highest(self) -> int | None:
        return max((c.scn for c in self.threads.values()), default=None)

    @property
    def lowest(self) -> int | None:
        return min((c.scn for c in self.threads.values()), default=None)

    def with_scn(self, scn: int) -> CommitScn:
        """All threads at one SCN; the transactions stay."""
        return CommitScn({thread: Committed(scn, c.transactions) for thread, c in self.threads.items()})

    def record(self, thread: int, scn: int, transaction: str) -> CommitScn:
        """A commit was delivered."""
        known = self.threads.get(thread)
        together = known.transactions if known is not None and known.scn == scn else ()
        now = Committed(scn, tuple(sorted({*together, transaction.lower()})))
        return CommitScn({**self.threads, thread: now})

    def handled(self, thread: int, scn: int, transaction: str | None) -> bool:
        """Whether this commit was delivered already."""
        known = self.threads.get(thread)
        if known is None:
            return False
        here = transaction is not None and transaction.lower() in known.transactions
        return known.scn > scn or (known.scn == scn and here)

    def against(self, scn: int | None) -> int:
        """-1, 0 or 1; the thread that is furthest behind decides, and an unknown SCN is below all others."""
        if not self.threads:
            return 0 if scn is None else -1
        return min(_sign(c.scn, scn) for c in self.threads.values())

    def order(self, other: CommitScn) -> Order:
        if self.threads.keys() != other.threads.keys():
            return orders.of_maps({t: c.scn for t, c in self.threads.items()}, _scns(other))
        return orders.both(_order(c, other.threads[thread]) for thread, c in self.threads.items())


def _scns(commits: CommitScn) -> dict[int, int]:
    return {thread: c.scn for thread, c in commits.threads.items()}


def _order(a: Committed, b: Committed) -> Order:
    if a.scn != b.scn:
        return orders.of(a.scn, b.scn)
    these, those = set(a.transactions), set(b.transactions)
    return orders.of_sets(these <= those, those <= these)


def _sign(a: int, b: int | None) -> int:
    return 1 if b is None else (a > b) - (a < b)


def parse_scn(value: Any) -> int | None:
    """A text of digits; older documents have a number."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**20:
        return value
    if isinstance(value, str) and _SCN.fullmatch(value):
        return int(value)
    raise expected("a system change number", value, hint='Write its digits in quotes, such as "745688898023".')


def parse(value: Any) -> CommitScn:
    if value is None:
        return CommitScn()
    if not isinstance(value, str):
        return CommitScn({1: Committed(parse_scn(value) or 0)})
    found: dict[int, Committed] = {}
    for entry in value.split(","):
        thread, committed = _entry(entry.strip())
        if thread in found:
            raise ConfigError(f"commit_scn names the redo thread {thread} twice.", hint="Give each thread once.")
        found[thread] = committed
    return CommitScn(found)


def _entry(text: str) -> tuple[int, Committed]:
    match text.split(":"):
        case [scn]:
            return 1, Committed(_number(scn, text))
        case [scn, thread, transactions]:
            return _number(thread, text), Committed(_number(scn, text), _transactions(transactions, text))
        case [scn, _, _, thread]:
            return _number(thread, text), Committed(_number(scn, text))
        case _:
            raise _wrong(text)


def _number(digits: str, entry: str) -> int:
    if not _SCN.fullmatch(digits):
        raise _wrong(entry)
    return int(digits)


def _transactions(text: str, entry: str) -> tuple[str, ...]:
    found = tuple(sorted(set(text.lower().split("-")))) if text else ()
    if not all(_TRANSACTION.fullmatch(transaction) for transaction in found):
        raise _wrong(entry)
    return found


def _wrong(entry: str) -> ConfigError:
    return ConfigError(f"{entry[:60]!r} is no entry of a commit_scn.", hint=_HINT)


def normal(value: Any) -> str | None:
    return str(parse(value)) or None


def normal_scn(value: Any) -> str | None:
    found = parse_scn(value)
    return None if found is None else str(found)


SCN = Kind(
    "a system change number",
    normal_scn,
    {"type": ["string", "integer"], "pattern": "^[0-9]{1,20}$", "minimum": 0},
)
COMMIT_SCN = Kind("the commits of each redo thread", normal, {"type": ["string", "integer"], "minimum": 0})
