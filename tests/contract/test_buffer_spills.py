"""What the buffer writes while it reads on: in order, whole, and never believed when it is not.

Transactions that are on disk add to it there before the flush, by a thread. None of that may be seen: not by a commit
that comes meanwhile, not by a start after a crash, and not when the disk fails.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.contract.test_buffer import ITEMS, ORDERS, Rig, Said, in_order, model, reading
from tidelog.contracts import RECORDS
from tidelog.journal import draft, holding, spill
from tidelog.journal.holding import Memory, Open, bundled
from tidelog.journal.sorting import Reading
from tidelog.journal.state import restore
from tidelog.model.record import Mark

MEMORY = 256 << 10


def rows_of(xids: list[int], each: int, first: int = 1, size: int = 200) -> list[Said]:
    """Records of these transactions by turns."""
    said = [(xid, n) for n in range(each) for xid in xids]
    return [Said(first + i, xid, None, ORDERS, 1, b"%07d" % n + b"x" * size) for i, (xid, n) in enumerate(said)]


def add(rig: Rig, said: list[Said]) -> None:
    for portion in rig.buffer.add(reading(said)):
        rig.journal.append(portion)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Two transactions are on disk, and the next that is read of them goes there at once."""
    rig = Rig(tmp_path, MEMORY, True)
    add(rig, rows_of([7, 8], 400))
    rig.flush()
    return rig


def on_disk(rig: Rig) -> list[str]:
    return sorted(path.name for path in (rig.folder / "open").iterdir())


def test_who_is_on_disk_adds_to_it_there_before_the_flush(rig: Rig) -> None:
    before = on_disk(rig)
    add(rig, rows_of([7, 8], 300, 1_000))
    assert rig.buffer.held() == 0
    assert [name for name in on_disk(rig) if name not in before] == ["00000001-0000000002.arrow.tmp"]
    rig.flush()
    assert set(on_disk(rig)) - set(before) == {"00000001-0000000002.arrow", "00000001-0000000003.state.arrow"}


def test_who_has_little_stays_in_memory(rig: Rig) -> None:
    add(rig, [*rows_of([7, 8], 300, 1_000), *rows_of([9], 5, 2_000)])
    assert 0 < rig.buffer.held() < 5_000
    rig.flush()
    rig.buffer.sweep(rig.journal.referred())
    rig.die()
    said = [Said(3_000, 9, Mark.COMMIT, position=99)]
    add(rig, said)
    assert in_order(rig.rows()) == model([*rows_of([9], 5, 2_000), *said])


def test_a_commit_refers_to_files_that_are_there(rig: Rig) -> None:
    said = [*rows_of([7, 8], 400), *rows_of([7, 8], 300, 1_000), Said(2_000, 8, Mark.COMMIT, position=99)]
    add(rig, said[800:1400])
    [portion] = rig.buffer.add(reading(said[1400:]))
    rig.journal.append(portion)
    assert not [name for name in on_disk(rig) if name.endswith(".tmp")]
    rig.buffer.sweep(rig.journal.referred())
    assert in_order(rig.rows()) == model(said)
    rig.die()
    assert rig.done == 800  # the last state does not speak of what was written after it
    assert set(rig.buffer.open()) == {7, 8}


def test_ids_that_come_again_are_not_taken_for_each_other(rig: Rig) -> None:
    again = [Said(900, 7, Mark.BEGIN, position=900), *rows_of([7, 8], 300, 1_000)]
    add(rig, again)
    rig.flush()
    rig.buffer.sweep(rig.journal.referred())
    rig.die()
    commit = Said(2_000, 7, Mark.COMMIT, position=99)
    add(rig, [commit])
    assert in_order(rig.rows()) == model([*again, commit])


def test_what_began_again_holds_nothing(rig: Rig) -> None:
    begin = Said(2_000, 9, Mark.BEGIN, position=2_000)
    add(rig, [*rows_of([9], 5, 1_000), begin, *rows_of([9], 5, 3_000), Said(4_000, 9, Mark.ROLLBACK)])
    assert rig.buffer.held() == 0


def test_what_was_written_since_the_last_flush_is_read_again(rig: Rig) -> None:
    add(rig, rows_of([7, 8], 300, 1_000))
    rig.die()
    assert rig.done == 800
    said = [*rows_of([7, 8], 300, 1_000), Said(2_000, 8, Mark.COMMIT, position=99)]
    add(rig, said)
    assert in_order(rig.rows()) == model([*rows_of([7, 8], 400), *said])


def test_what_a_dead_process_left_is_not_counted_twice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the journal needs stays, also with records that were read again since."""
    monkeypatch.setattr("tidelog.journal.handover._INLINE_BYTES", 0)
    said = [*rows_of([7, 8], 300, 1_000), Said(2_000, 8, Mark.COMMIT, position=99)]
    add(rig, said[:-1])
    add(rig, said[-1:])
    rig.die()
    add(rig, said)
    rig.done = 2_000
    rig.flush()
    rig.die()
    assert rig.done == 2_000
    commit = Said(3_000, 7, Mark.COMMIT, position=199)
    add(rig, [commit])
    assert in_order(rig.rows()) == model([*rows_of([7, 8], 400), *said, commit])


def test_a_rollback_leaves_what_is_being_written_alone(rig: Rig) -> None:
    add(rig, rows_of([7, 8], 300, 1_000))
    add(rig, [Said(2_000, 7, Mark.ROLLBACK), Said(2_001, 8, Mark.ROLLBACK)])
    rig.buffer.sweep(rig.journal.referred())
    rig.flush()
    rig.buffer.sweep(rig.journal.referred())
    assert [spill.is_state(name) for name in on_disk(rig)] == [True]


def failing(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(draft.Draft, method, fail)


@pytest.mark.parametrize("method", ["_write", "_close"])
def test_a_disk_that_fails_is_heard_of_every_time(rig: Rig, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = on_disk(rig)
    failing(monkeypatch, method)
    add(rig, rows_of([7, 8], 300, 1_000))
    with pytest.raises(OSError, match="No space"):
        rig.flush()
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            rig.flush()
    rig.buffer._thread.submit(lambda: None).result()  # whatever waited has had its turn
    assert {name for name in on_disk(rig) if not name.endswith(".tmp")} == set(before)
    rig.die()
    assert rig.done == 800


def test_a_disk_that_fails_is_heard_of_without_a_flush(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "_write")
    add(rig, rows_of([7, 8], 200, 1_000))
    rig.buffer._thread.submit(lambda: None).result()
    with pytest.raises(OSError, match="No space"):
        add(rig, rows_of([7, 8], 200, 2_000))


def test_only_a_few_blocks_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_added, most = threading.Event(), 0
    write = draft.Draft._write

    def slowly(self: draft.Draft, records: pa.RecordBatch) -> None:
        """Not before another one waits, and then there is time for a third."""
        nonlocal most
        while len(self._waiting) < 2 and not all_added.wait(0.001):
            pass
        all_added.wait(0.02)
        most = max(most, len(self._waiting))
        write(self, records)

    monkeypatch.setattr("tidelog.journal.buffer._CARRY", 1 << 30)
    monkeypatch.setattr("tidelog.journal.buffer._EARLY", 1 << 30)
    rig = Rig(tmp_path, 8 << 20, True)
    add(rig, rows_of([7, 8], 100))
    rig.flush()
    monkeypatch.setattr(draft.Draft, "_write", slowly)
    for turn in range(10):
        add(rig, rows_of([7, 8], 100, 1_000 * (turn + 1)))
    all_added.set()
    rig.flush()
    assert most == 2


@pytest.mark.parametrize("kind", ["records", "state"])
def test_no_damaged_byte_is_believed(rig: Rig, kind: str) -> None:
    """Wherever it is: it is refused, or it was of no importance. Then the state before it may count."""
    before = told(rig)
    add(rig, [*rows_of([7], 300, 1_000), *rows_of([9], 3, 2_000)])
    rig.flush()
    whole = told(rig)
    assert whole
    path = max(p for p in (rig.folder / "open").iterdir() if spill.is_state(p.name) == (kind == "state"))
    content, refused = path.read_bytes(), 0
    for at in range(0, len(content), 211 if kind == "records" else 29):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        found = told(rig)
        assert found in ((), before, whole), f"byte {at}"
        refused += found != whole
    assert refused > 20
    path.write_bytes(content)
    assert told(rig) == whole


def told(rig: Rig) -> tuple[Any, ...]:
    """Everything that the next start would begin with."""
    files = rig.buffer._files
    state = restore(files)
    if state is None:
        return ()
    reader = spill.Reader(files)
    owned = [(one.life, one.events, one.by_table, one.merged, spill.in_order(all_)) for one, all_ in state.everything()]
    rows = [reader.read(piece).drop_columns(["committed"]).to_pydict() for *_, all_ in owned for piece in all_]
    return state.resume, state.versions, owned, rows


def test_a_spill_without_a_directory_does_not_count(rig: Rig) -> None:
    """Such as those of an earlier version."""
    path = max(p for p in (rig.folder / "open").iterdir() if not spill.is_state(p.name))
    with pa.ipc.open_file(path.read_bytes()) as file:
        blocks = [file.get_batch(i) for i in range(file.num_record_batches)]
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, RECORDS) as writer:
        for block in blocks:
            writer.write_batch(block)
    rig.die()
    assert rig.done == 0


@pytest.mark.parametrize("seed", range(40))
def test_what_lies_in_many_runs_is_laid_down_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether runs are written as they lie or gathered, and whatever was let go or moved together in between."""
    r = random.Random(seed)
    monkeypatch.setattr(holding, "_TINY_ROWS", r.choice([1, 3]))
    memory, owners = Memory(), {xid: Open(xid, 0, 0) for xid in range(6)}
    payloads: dict[tuple[int, int], list[bytes]] = {}
    for turn in range(r.randint(1, 6)):
        said = []
        for lsn in range(turn * 100, turn * 100 + r.randint(2, 40)):
            xid, table = r.choice([0, 0, 0, 1, 1, 2, 3, 4, 5]), r.choice([ORDERS, ORDERS, ITEMS])
            said.append(Said(lsn, xid, None, table, 1, b"%d" % lsn))
            payloads.setdefault((xid, table.id), []).append(b"%d" % lsn)
        sorted_ = Reading(reading(said))
        for run, mine in sorted_.runs([owners[xid] for xid, *_ in sorted_.groups()]):
            for k, one in enumerate(mine):
                assert one is not None
                memory.keep(one, run, k)
        if r.random() < 0.3:
            memory.compact(r.sample(sorted(owners.values(), key=lambda one: one.xid), 3))
    wanted = r.sample(range(6), 4)
    most = r.choice([2, 50])
    found: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for bundle in bundled([owners[xid] for xid in wanted], most):
        assert bundle.table is not None
        for one, first, last in zip(bundle.owners, bundle.firsts, bundle.lasts, strict=True):
            assert 0 < last - first <= most
            rows = bundle.rows.slice(first, last - first)
            assert set(rows.column("xid").to_pylist()) == {one.xid}
            told = zip(rows.column("table_ordinal").to_pylist(), rows.column("payload").to_pylist(), strict=True)
            found.setdefault((one.xid, bundle.table.id), []).extend(told)
    assert found == {owned: list(enumerate(all_)) for owned, all_ in payloads.items() if owned[0] in wanted}
    for one in owners.values():
        memory.release(one)
    assert memory.held == memory.pinned == 0
