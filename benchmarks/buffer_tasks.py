"""What is measured of a buffer in Python, each task in a process of its own; the answer is one line of JSON.

python -m benchmarks.buffer_tasks rates|probes|memory tidelog|heap|rocksdb <folder> <events> <open> <extra> <reading>
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import buffer_load, measure
from benchmarks.buffer_load import Log
from benchmarks.buffer_stores import STORES, Store
from tidelog.contracts import Mixed

FLUSH_EVENTS = 100_000
"""What was appended is made durable so often, and at the end."""
WARM_EVENTS = 50_000
PROBE_EVENTS = 10
FAR = 1 << 40
"""Positions from here on are those of the transactions that are timed."""


Make = Callable[[Path], Store]


class WrongCount(RuntimeError):
    """What came back is not what was put in: its speed does not count."""


def rates(store: Make, folder: Path, events: int, open: int, replayed: int, size: int) -> dict[str, Any]:
    """Append events of many open transactions; replay some one by one, and the rest in one go; then one alone."""
    warm_up(store, folder / "warm", open)
    mixed = store(folder / "mixed")
    readings = list(Log.of(open, size).endless(events))
    measure.awaken(folder / "asleep", 3 * events * buffer_load.RECORD_BYTES)
    before = time.process_time()
    append_s, _ = timed(lambda: append(mixed, readings))
    append_cpu_s = time.process_time() - before
    xids = list(range(1, open + 1))
    some = xids[:: max(1, open // replayed)][:replayed]
    replay_s, count = timed(lambda: sum(mixed.replay([xid], FAR + xid) for xid in some))
    rest = [xid for xid in xids if xid not in some]
    together_s, rest_count = timed(lambda: mixed.replay(rest, FAR + open + 1))
    mixed.close()
    require(count + rest_count, events)
    return {
        "appended": events,
        "append_s": append_s,
        "append_cpu_s": append_cpu_s,
        "replayed": count,
        "replay_s": replay_s,
        "together": rest_count,
        "together_s": together_s,
        **alone(store, folder / "alone", events, size),
    }


def alone(store: Make, folder: Path, events: int, size: int) -> dict[str, Any]:
    single = store(folder)
    append(single, Log.of(1, size).endless(events))
    seconds, count = timed(lambda: single.replay([1], FAR))
    single.close()
    require(count, events)
    return {"alone": count, "alone_s": seconds}


def probes(store: Make, folder: Path, foreign: int, open: int, count: int, size: int) -> dict[str, Any]:
    """Transactions of a few events: some alone, each in a buffer of its own; others open across the foreign events."""
    warm_up(store, folder / "warm", open)
    found = [probe_alone(store, folder / f"alone{n}") for n in range(count)]
    log = Log.of(open, max(1, min(size, foreign // PROBE_EVENTS)))
    return {"alone_s": found, "contended_s": probe_contended(store(folder / "mixed"), log, foreign, count)}


def probe_alone(store: Make, folder: Path) -> float:
    """The same readings and flushes as in company, and nothing in them but the transaction's own records."""
    single = store(folder)
    for part in range(PROBE_EVENTS):
        single.add(own([1], part))
        single.flush()
    return ended_in(single, 1, FAR)


def probe_contended(mixed: Store, log: Log, foreign: int, count: int) -> list[float]:
    xids = list(range(1, count + 1))
    passing = log.passing(foreign, first_xid=count + 1)
    each = -(-foreign // log.size) // PROBE_EVENTS
    for part in range(PROBE_EVENTS):
        mixed.add(own(xids, part * each))
        append(mixed, itertools.islice(passing, each if part < PROBE_EVENTS - 1 else None))
    found = [ended_in(mixed, xid, FAR + xid) for xid in xids]
    mixed.close()
    return found


def own(xids: list[int], turn: int) -> Mixed:
    """One record of each transaction that is timed."""
    payloads = buffer_load.texts(np.random.default_rng(turn), len(xids))
    return buffer_load.reading(turn, np.array(xids, np.int64), payloads)


def ended_in(store: Store, xid: int, position: int) -> float:
    seconds, count = timed(lambda: store.replay([xid], position))
    require(count, PROBE_EVENTS)
    return seconds


def memory(store: Make, folder: Path, events: int, _open: int, _extra: int, size: int) -> dict[str, Any]:
    """One huge open transaction, then its replay; the marks are the kernel's, of this whole process."""
    single = store(folder)
    append(single, Log.of(1, size, distinct=size).endless(events))
    filled = resident_peak_kb()
    count = single.replay([1], FAR)
    single.close()
    require(count, events)
    return {"events": events, "rss_peak_kb": filled, "rss_peak_replay_kb": resident_peak_kb()}


# -- steps ---------------------------------------------------------------------------------------------------------


def append(store: Store, readings: Iterable[Mixed]) -> int:
    since = 0
    for mixed in readings:
        store.add(mixed)
        since += sum(block.records.num_rows for block in mixed.blocks)
        if since >= FLUSH_EVENTS:
            store.flush()
            since = 0
    store.flush()
    return since


def warm_up(store: Make, folder: Path, open: int) -> None:
    one = store(folder)
    append(one, Log.of(open).endless(WARM_EVENTS))
    one.replay([1], FAR)
    one.close()


def timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def require(found: int, wanted: int) -> None:
    if found != wanted:
        raise WrongCount(f"{found} of {wanted} records came back")


def resident_peak_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"rates": rates, "probes": probes, "memory": memory}


def main(arguments: list[str]) -> None:
    task, name, folder, *numbers = arguments
    Path(folder).mkdir(parents=True, exist_ok=True)
    print(json.dumps(TASKS[task](STORES[name], Path(folder), *map(int, numbers))))


if __name__ == "__main__":
    main(sys.argv[1:])
