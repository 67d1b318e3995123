"""How large the next reading is: what its rows cost decides, and never what a batch costs anyway."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from statistics import median

import pytest

from tidelog.core.snapshot import sizes
from tidelog.core.snapshot.cost import Cost, CostModel
from tidelog.core.snapshot.world import Bounds, Manifest


@dataclass
class Machine:
    """A source and a sink with known costs, beside others that make them slower now and then. A batch delivers what the
    one before it has read."""

    fixed_ms: float
    row_us: float = 2.5
    sink_us: float = 1.0
    chunk_ms: float = 15.0
    row_bytes: int = 50
    noise: float = 0.0
    bounds: Bounds = field(default_factory=Bounds)
    seed: int = 1
    model: CostModel = field(default_factory=CostModel)
    readings: CostModel = field(default_factory=CostModel)
    size: int = 0
    sizes_seen: list[int] = field(default_factory=list)
    batches_ms: list[float] = field(default_factory=list)

    def run(self, batches: int = 60) -> Machine:
        rng = Random(self.seed)
        for _ in range(batches):
            self._batch(rng)
        return self

    def _batch(self, rng: Random) -> None:
        rows, delivered = sizes.wanted(self.size, self.bounds), self.sizes_seen[-1] if self.sizes_seen else 0
        reading_ms = (self.chunk_ms + rows * self.row_us / 1000) * self._slower(rng)
        rest_ms = (self.fixed_ms + delivered * self.sink_us / 1000) * self._slower(rng)
        batch_ms = reading_ms + rest_ms + (0 if self.batches_ms else 1500)  # the first is slow everywhere
        self.model.learn((rows + delivered) / 2, int(batch_ms))
        self.readings.learn(rows, int(reading_ms))
        found = Manifest("a", rows=rows, bytes=rows * self.row_bytes, ms=int(reading_ms))
        self.size = sizes.after(self.size, found, self.model.cost, self.readings.cost, self.bounds)
        self.sizes_seen.append(rows)
        self.batches_ms.append(batch_ms)

    def _slower(self, rng: Random) -> float:
        return (1 + self.noise * rng.random()) * (4 if self.noise and rng.random() < 0.05 else 1)

    @property
    def rows_per_s(self) -> float:
        """Once the size has settled."""
        return sum(self.sizes_seen[20:]) / sum(self.batches_ms[20:]) * 1000

    @property
    def batch_ms(self) -> float:
        return median(self.batches_ms[20:])


COSTS = [0.0, 50.0, 200.0, 500.0, 1_000.0, 5_000.0]


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("fixed_ms", COSTS)
def test_a_fixed_cost_does_not_make_readings_small(fixed_ms: float, noise: float) -> None:
    for seed in range(4):
        assert Machine(fixed_ms, noise=noise, seed=seed).run().rows_per_s > 50_000


@pytest.mark.parametrize("fixed_ms", COSTS)
def test_a_small_fixed_size_does_not_make_readings_small(fixed_ms: float) -> None:
    """As Debezium's users set it; the reading is a whole number of chunks."""
    for rows in (500, 1_024):
        machine = Machine(fixed_ms, noise=0.3, bounds=Bounds(rows=rows)).run()
        assert machine.rows_per_s > 50_000
        assert machine.sizes_seen[0] == rows
        assert not any(size % rows for size in machine.sizes_seen)


@pytest.mark.parametrize("rows", [0, 1_024])
@pytest.mark.parametrize("chunk_ms", [50.0, 300.0, 1_000.0])
def test_a_server_far_away_does_not_make_readings_small(chunk_ms: float, rows: int) -> None:
    """Each statement of a reading takes its time, however few rows there are."""
    for seed in range(4):
        machine = Machine(100, chunk_ms=chunk_ms, noise=0.3, bounds=Bounds(rows=rows), seed=seed).run()
        assert machine.rows_per_s > 40_000


@pytest.mark.parametrize("fixed_ms", [0.0, 50.0, 200.0])
@pytest.mark.parametrize("sink_us", [1.0, 20.0])
def test_changes_do_not_wait_long(fixed_ms: float, sink_us: float) -> None:
    """A batch takes about half a second."""
    for seed in range(4):
        assert Machine(fixed_ms, sink_us=sink_us, noise=0.3, seed=seed).run().batch_ms < 800


@pytest.mark.parametrize("fixed_ms", [60.0, 200.0])
def test_fast_tables_are_read_in_the_wanted_time(fixed_ms: float) -> None:
    machine = Machine(fixed_ms, row_us=3.0).run()
    assert 70_000 <= machine.sizes_seen[-1] <= 90_000


def test_a_slow_sink_makes_readings_smaller() -> None:
    slow, fast = (Machine(100, row_us=3.0, sink_us=us).run().sizes_seen[-1] for us in (10, 1))
    assert slow < fast // 2


def test_a_drain_reads_much_at_once() -> None:
    streaming, drain = (Machine(200, bounds=Bounds(target_ms=ms)).run() for ms in (250, 2_000))
    assert drain.rows_per_s > 1.2 * streaming.rows_per_s
    assert drain.sizes_seen[-1] > 4 * streaming.sizes_seen[-1]


def test_a_fixed_cost_that_changes() -> None:
    """A sink begins to take a second for nothing: the rate falls by that second, and not to nothing."""
    machine = Machine(50).run(30)
    machine.fixed_ms, before = 1_050, len(machine.sizes_seen)
    machine.run(60)
    later = slice(before + 30, None)
    assert sum(machine.sizes_seen[later]) / sum(machine.batches_ms[later]) * 1000 > 50_000


def test_a_size_changes_by_steps() -> None:
    fast, slow = (Manifest("a", rows=20_000, bytes=1, ms=ms) for ms in (1, 10_000))
    assert sizes.after(20_000, fast, Cost(), Cost(), Bounds()) == 80_000
    assert sizes.after(20_000, slow, Cost(), Cost(), Bounds()) == 10_000


def test_wide_rows_bound_a_reading() -> None:
    """Memory holds a reading: 64 MiB of rows of 64 KiB are 1,024."""
    for rows in (0, 100):
        machine = Machine(1_000, row_us=1, row_bytes=1 << 16, bounds=Bounds(rows=rows)).run()
        assert machine.sizes_seen[-1] <= max(2_000, 1_024)


def test_rows_of_megabytes_are_read_a_few_at_a_time() -> None:
    found = Manifest("a", rows=2_000, bytes=2_000 * (2 << 20), ms=4_000)
    assert sizes.after(2_000, found, Cost(), Cost(), Bounds()) == 32
    assert sizes.after(32, Manifest("a", rows=32, bytes=32 << 10, ms=5), Cost(), Cost(), Bounds()) > 32


def test_wide_rows_bound_the_first_reading() -> None:
    """As far as the statistics know them."""
    assert sizes.wanted(sizes.first(2 << 20, Bounds()), Bounds()) == 32
    assert sizes.wanted(sizes.first(1 << 40, Bounds()), Bounds()) == 1
    for row_bytes in (0, 1, 100):
        assert sizes.wanted(sizes.first(row_bytes, Bounds()), Bounds()) == 20_000
    assert sizes.wanted(sizes.first(2 << 20, Bounds(rows=500)), Bounds(rows=500)) == 500
    assert sizes.wanted(sizes.first(10 << 10, Bounds(rows=500)), Bounds(rows=500)) == 500


def test_a_few_rows_say_nothing() -> None:
    """The end of a table, or a stretch of which most was deleted."""
    found = Manifest("a", rows=9, bytes=900, ms=20)
    assert sizes.after(40_000, found, Cost(), Cost(), Bounds()) == 40_000
    assert sizes.after(64_000, found, Cost(), Cost(), Bounds(rows=1_000)) == 64_000


def test_a_failed_reading_is_tried_by_halves() -> None:
    assert [sizes.smaller(size, Bounds()) for size in (0, 3_000, 100_000)] == [10_000, 2_000, 50_000]
    assert [sizes.smaller(size, Bounds(rows=500)) for size in (0, 3_000)] == [500, 1_500]


def test_one_chunk_at_a_time() -> None:
    found = Manifest("a", rows=500, bytes=50_000, ms=1)
    assert sizes.wanted(sizes.after(0, found, Cost(), Cost(), Bounds(rows=500, target_ms=0)), Bounds(rows=500)) == 500


def test_a_large_fixed_size_is_kept() -> None:
    bounds = Bounds(rows=1_000_000)
    found = Manifest("a", rows=1_000_000, bytes=1 << 27, ms=4_000)
    assert sizes.wanted(sizes.after(0, found, Cost(), Cost(), bounds), bounds) == 1_000_000


# -- fixed cost and cost per row, told apart -------------------------------------------------------------------------


def learned(points: list[tuple[int, int]]) -> Cost:
    model = CostModel()
    for rows, ms in points:
        model.learn(rows, ms)
    return model.cost


def test_nothing_is_known_at_first() -> None:
    assert CostModel().cost == Cost()
    assert learned([(20_000, 700)]) == Cost(700.0)


def test_both_parts_are_found() -> None:
    cost = learned([(rows, 100 + rows // 100) for rows in (0, 10_000, 20_000, 40_000, 80_000)])
    assert cost.fixed_ms == pytest.approx(100, abs=1)
    assert cost.row_ms == pytest.approx(0.01, rel=0.01)


def test_outliers_do_not_count() -> None:
    points = [(rows, 1_000 + rows // 200) for rows in range(0, 100_000, 5_000)]
    points[3], points[11], points[17] = (15_000, 20_000), (55_000, 9_000), (85_000, 30_000)
    cost = learned(points)
    assert cost.fixed_ms == pytest.approx(1_000, rel=0.1)
    assert cost.row_ms == pytest.approx(0.005, rel=0.1)


def test_batches_that_are_all_alike_keep_what_was_known() -> None:
    points = [(rows, 100 + rows // 100) for rows in (0, 10_000, 20_000, 40_000)]
    cost = learned([*points, *[(40_000, 500)] * 50])
    assert cost.row_ms == pytest.approx(0.01, rel=0.01)
    assert cost.fixed_ms == pytest.approx(100, abs=1)
    later = learned([*points, *[(40_000, 500)] * 50, *[(40_000, 1_500)] * 50])
    assert later.fixed_ms == pytest.approx(1_100, abs=1)


def test_rows_never_make_a_batch_quicker() -> None:
    assert learned([(rows, 2_000 - rows // 100) for rows in range(0, 100_000, 10_000)]).row_ms == 0.0
