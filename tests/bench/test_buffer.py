"""The benchmark of the buffers runs, on a load too small to say anything: every record that went in comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks import buffer_load, chronicle
from benchmarks.buffer_load import Log
from benchmarks.buffer_stores import STORES, HeapStore
from benchmarks.buffer_tasks import PROBE_EVENTS, TASKS, WrongCount, require

from tests import patience

EVENTS, OPEN, SOME, READING = 6_000, 100, 3, 1_000


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Any:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict", reason="comes with the extra `bench`")
    return STORES[request.param]


def test_rates(store: Any, tmp_path: Path) -> None:
    found = TASKS["rates"](store, tmp_path, EVENTS, OPEN, SOME, READING)
    assert found["appended"] == found["replayed"] + found["together"] == found["alone"] == EVENTS
    assert 0 < found["replayed"] < EVENTS


def test_probes(store: Any, tmp_path: Path) -> None:
    """A probe that does not get its own records back, and only these, fails by itself."""
    found = TASKS["probes"](store, tmp_path, EVENTS, OPEN, SOME, READING)
    assert len(found["alone_s"]) == len(found["contended_s"]) == SOME


def test_memory(store: Any, tmp_path: Path) -> None:
    found = TASKS["memory"](store, tmp_path, EVENTS, OPEN, 0, READING)
    assert found["events"] == EVENTS
    assert 0 < found["rss_peak_kb"] <= found["rss_peak_replay_kb"]


def test_lost_records_do_not_count(tmp_path: Path) -> None:
    store = HeapStore(tmp_path)
    store.add(next(Log.of(1, PROBE_EVENTS).endless(PROBE_EVENTS)))
    with pytest.raises(WrongCount):
        require(store.replay([1], 1), PROBE_EVENTS + 1)


def test_a_load_keeps_as_many_transactions_open() -> None:
    open: set[int] = set()
    for mixed in Log.of(OPEN, READING).passing(20 * READING, first_xid=1):
        open |= set(mixed.blocks[0].records.column("xid").to_pylist())
        assert OPEN - 1 <= len(open) <= OPEN  # of a thousand records, one may have none
        open -= set(mixed.marks.column("xid").to_pylist())
    assert len(mixed.blocks[0].records.column("payload")[0].as_py()) == buffer_load.RECORD_BYTES


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if not (shutil.which("javac") and shutil.which("java")):
        pytest.skip("there is no JDK")
    try:
        return chronicle.command(tmp_path_factory.mktemp("chronicle"))
    except chronicle.NotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.long
@pytest.mark.parametrize("form", ["bytes", "wire"])
def test_chronicle(driver: list[str], form: str, tmp_path: Path) -> None:
    """In both forms of its documents, with its files forced to disk now and then."""

    def run(task: str, extra: int) -> dict[str, Any]:
        numbers = map(str, (buffer_load.RECORD_BYTES, 1_000, EVENTS, OPEN, extra))
        command = [*driver, task, form, str(tmp_path / task), *numbers]
        done = patience.run(command)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    rates, probes = run("rates", SOME), run("probes", SOME)
    assert rates["appended"] == rates["alone"] == EVENTS
    assert 0 < rates["replayed"] < EVENTS
    assert len(probes["alone_s"]) == len(probes["contended_s"]) == SOME
