"""Snapshots side by side on one PostgreSQL 18: pg_dump, tidelog and Debezium read the same million rows.

    python -m benchmarks.snapshot [--rows 1000000] [--rounds 3] [--seconds 30] [--only NAME ...] [--no-latency]
    python -m benchmarks.snapshot --only "small chunks" --only "slow batches" --no-latency --update

Rounds are interleaved and the median run of each contender counts. Where several settings are tried for one thing, the
first round tells the best, and only that runs on. Then a stream's latency is measured with and without a snapshot
beside it. Everything is printed, and written to `results/snapshot.json`; with `--update`, the results there of what is
not run now are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from demo.embedded import Database, Postgres

from benchmarks import environment, rows, snapshot_latency
from benchmarks.contenders import JAVA_HEAP
from benchmarks.measure import ContenderFailed, Measure
from benchmarks.snapshot_contenders import (
    DEFAULT,
    DEFAULT_ASYNC,
    DEFAULT_CHUNKS,
    ENTRANTS,
    FAST,
    OURS_ASYNC,
    SLOW,
    SMALL_CHUNKS,
    TUNED,
    Entrant,
    Job,
    spent,
)
from benchmarks.stream import RESULTS, median, over, save, say

TARGETS = {
    "best_vs_debezium_tuned": (">=", 3.0),
    "best_vs_debezium_default": (">=", 40.0),
    "default_vs_debezium_default_async": (">=", 40.0),
    "delta_vs_debezium_tuned": (">=", 2.0),
    "p95_latency_with_vs_without": ("<=", 3.0),
    "throughput_vs_debezium_tuned": (">=", 6.0),
    "small_chunks_vs_debezium": (">=", 2.0),
    "slow_batches_rows_per_s": (">=", 50_000.0),
}

CAPTION = f"""\
rows/s    from the moment the snapshot is asked of a contender that streams already to the arrival of its last row;
          pg_dump's clock starts with it, that of Debezium's initial snapshot with its task
CPU-s     of all client processes, dead ones included, in that window; total: from launch to exit
RSS       largest sum over the process tree; pages shared by its processes count once for each
others    CPU-s of the machine in the window that were neither the contender nor PostgreSQL: disturbance
tidelog   pN: incremental.snapshot.parallelism N, the rest in default settings, read-only; noop is Spark's noop sink,
          which takes every row in typed columns; throughput: the settings that were fastest, named in the row
Debezium  the embedded engine 3.6.3, a Java consumer that only counts, Connect records (nothing serialised), heap
          {JAVA_HEAP}; tuned: the fastest of several settings, named in the row; default: 1024 rows a chunk, by signal
async     the source commits with synchronous_commit = off, as busy servers may: a window of Debezium's waits for the
          log to be flushed, twice a chunk; tidelog writes nothing there. Everywhere else it is on, PostgreSQL's default
small     chunks of 1024 rows on both sides (with tidelog, a reading takes as many of them as fit into its time)
latency   commit to visible in Delta (Debezium: to its consumer) at 10 commits a second to another table of the same
          stream, of the commits while the snapshot ran; default settings for tidelog, the tuned ones for Debezium
The median of the rounds; one contender at a time, each from a slot of its own, on memory that was in use before."""

Runs = dict[str, list[tuple[Measure, dict[str, Any] | None]]]


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    names = [name for name in ENTRANTS if not options.only or any(name.startswith(only) for only in options.only)]
    with Postgres.start(18, settings=rows.SETTINGS) as server:
        database = server.create_database("bench")
        say(f"writing {options.rows:,} rows …")
        rows.prepare(database, options.rows)
        runs, failures = compete(database, names, options.rows, options.rounds)
        best = winners(runs)
        latency, more = ({}, {}) if options.no_latency else delays(database, options, best)
        facts = environment.facts(server)
    report = summarise(runs, best, {**failures, **more}, latency, options.rows)
    print_report(report)
    report = {**report, "environment": facts}
    save(updated(options.out, report) if options.update else report, options.out)
    return 1 if missing(report, names) else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare snapshots side by side.")
    parser.add_argument("--rows", type=int, default=rows.ROWS, help="rows of the table (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per contender (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each latency, at least (default %(default)s)")
    parser.add_argument("--only", action="append", help="contenders whose names start so; repeatable")
    parser.add_argument("--no-latency", action="store_true", help="leave out the stream's latency")
    parser.add_argument("--out", type=Path, default=RESULTS / "snapshot.json", help="where the results go")
    parser.add_argument("--update", action="store_true", help="keep the results of what is not run")
    return parser.parse_args(arguments)


# -- runs ----------------------------------------------------------------------------------------------------------


def compete(database: Database, names: list[str], count: int, rounds: int) -> tuple[Runs, dict[str, str]]:
    runs: Runs = {}
    failures: dict[str, str] = {}
    for turn in range(rounds):
        going_on = names if turn == 0 else [name for name in names if name in winners(runs).values()]
        for name in [name for name in going_on if turn == 0 or not ENTRANTS[name].once]:
            try:
                result = run_once(ENTRANTS[name], database, count, f"snapshot_{names.index(name)}_{turn}")
            except ContenderFailed as failure:
                failures[name] = str(failure)
                say(f"{name}: {failure}")
                continue
            runs.setdefault(name, []).append(result)
            say(f"round {turn + 1}, {name}: {result[0].events_per_s:,} rows/s, {result[0].cpu_s:.1f} CPU-s")
    return runs, failures


def run_once(entrant: Entrant, database: Database, count: int, slot: str) -> tuple[Measure, dict[str, Any] | None]:
    workdir = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        with rows.committing(database, entrant.commits):
            result = entrant.run(entrant, Job(database, count, slot, workdir))
        return result, spent(workdir)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)


def winners(runs: Runs) -> dict[str, str]:
    """Per group, the contender with the fastest first run."""
    best: dict[str, str] = {}
    for name in sorted(runs, key=lambda name: runs[name][0][0].events_per_s):
        best[ENTRANTS[name].group] = name
    return best


def delays(
    database: Database, options: argparse.Namespace, best: dict[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    tuned = ENTRANTS[best[TUNED]].settings if TUNED in best else None
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, race in snapshot_latency.races(tuned).items():
        workdir = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
        try:
            found[name] = race(Job(database, options.rows, name.replace(" ", "_"), workdir), options.seconds)
            say("{}: p50 {p50_ms} ms, p95 {p95_ms} ms".format(name, **found[name]))
        except ContenderFailed as failure:
            failures[name] = str(failure)
            say(f"{name}: {failure}")
        finally:
            shutil.rmtree(workdir, ignore_errors=True)
    return found, failures


# -- figures -------------------------------------------------------------------------------------------------------


def summarise(
    runs: Runs, best: dict[str, str], failures: dict[str, str], latency: dict[str, Any], count: int
) -> dict[str, Any]:
    medians = {group: median([run for run, _ in runs[name]]) for group, name in best.items()}
    return {
        "rows": count,
        "contenders": [row(group, best[group], medians[group], runs) for group in order(best)],
        "trials": {name: [run.events_per_s for run, _ in found] for name, found in runs.items() if trial(name)},
        "latency": latency,
        "ratios": ratios({group: run.events_per_s for group, run in medians.items()}, latency),
        "targets": {name: f"{sign} {value:g}" for name, (sign, value) in TARGETS.items()},
        "not_run": failures,
        "caption": CAPTION.splitlines(),
    }


def order(best: dict[str, str]) -> list[str]:
    return [group for group in dict.fromkeys(entrant.group for entrant in ENTRANTS.values()) if group in best]


def trial(name: str) -> bool:
    return sum(entrant.group == ENTRANTS[name].group for entrant in ENTRANTS.values()) > 1


def row(group: str, name: str, run: Measure, runs: Runs) -> dict[str, Any]:
    raw = asdict(run)
    entrant = ENTRANTS[name]
    return {
        "contender": group,
        "rows": raw.pop("events"),
        "rows_per_s": raw.pop("events_per_s"),
        **{field: value for field, value in raw.items() if field != "contender"},
        "settings": entrant.settings,
        **({"note": entrant.note} if entrant.note else {}),
        "runs": [found.events_per_s for found, _ in runs[name]],
        "spark": next(told for found, told in runs[name] if found == run),
    }


def ratios(speeds: dict[str, float], latency: dict[str, Any]) -> dict[str, float | None]:
    noop, delta = fastest(speeds, "tidelog noop p"), fastest(speeds, "tidelog delta")
    beside, alone = (latency.get(f"tidelog {how}", {}).get("p95_ms") for how in ("with", "without"))
    return {
        "best_vs_debezium_tuned": over(noop, speeds.get(TUNED)),
        "best_vs_debezium_default": over(noop, speeds.get(DEFAULT)),
        "default_vs_debezium_default_async": over(speeds.get(OURS_ASYNC), speeds.get(DEFAULT_ASYNC)),
        "delta_vs_debezium_tuned": over(delta, speeds.get(TUNED)),
        "p95_latency_with_vs_without": over(beside, alone),
        "throughput_vs_debezium_tuned": over(speeds.get(FAST), speeds.get(TUNED)),
        "small_chunks_vs_debezium": over(speeds.get(SMALL_CHUNKS), speeds.get(DEFAULT_CHUNKS)),
        "slow_batches_rows_per_s": speeds.get(SLOW),
    }


def fastest(speeds: dict[str, float], prefix: str) -> float | None:
    return max((speed for name, speed in speeds.items() if name.startswith(prefix)), default=None)


def updated(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """Earlier results, with those of this run in their place; a row from now on says where it was measured."""
    if not path.exists():
        return report
    earlier: dict[str, Any] = json.loads(path.read_text())
    now = {row["contender"]: {**row, "environment": report["environment"]} for row in report["contenders"]}
    kept = [now.pop(row["contender"], row) for row in earlier["contenders"]]
    measured = {name: value for name, value in report["ratios"].items() if value is not None}
    return {
        **earlier,
        "contenders": [*kept, *now.values()],
        "trials": {**earlier["trials"], **report["trials"]},
        "latency": {**earlier["latency"], **report["latency"]},
        "ratios": {**earlier["ratios"], **measured},
        "targets": report["targets"],
        "not_run": {**earlier["not_run"], **report["not_run"]},
        "caption": report["caption"],
    }


def missing(report: dict[str, Any], names: list[str]) -> set[str]:
    """Contenders that were wanted, and for which nothing at all came through."""
    return {ENTRANTS[name].group for name in names} - {row["contender"] for row in report["contenders"]}


# -- what is shown -------------------------------------------------------------------------------------------------


def print_report(report: dict[str, Any]) -> None:
    print_contenders(report["contenders"], report["not_run"])
    for name, found in report["latency"].items():
        print(
            "latency {:<20} p50 {p50_ms} ms, p95 {p95_ms} ms, max {max_ms} ms ({commits} commits)".format(name, **found)
        )
    print(f"\n{'ratio':<32}{'measured':>10}{'target':>10}")
    for name, value in report["ratios"].items():
        sign, target = TARGETS[name]
        shown = "-" if value is None else f"{value:.2f}"
        print(f"{name:<32}{shown:>10}{sign:>6}{target:>4g}{verdict(value, sign, target)}")
    print(f"\n{CAPTION}")


def print_contenders(found: list[dict[str, Any]], failures: dict[str, str]) -> None:
    heads = f"{'rows':>11}{'rows/s':>10}{'seconds':>9}{'CPU-s':>8}{'total':>8}{'RSS MB':>8}{'others':>8}"
    print(f"\n{'contender':<20}{heads}  settings")
    for row in found:
        settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
        print(
            f"{row['contender']:<20}{row['rows']:>11,}{row['rows_per_s']:>10,}{row['seconds']:>9.1f}{row['cpu_s']:>8.1f}"
            f"{row['cpu_total_s']:>8.1f}{row['rss_peak_mb']:>8,}{row['others_cpu_s']:>8.1f}  {settings}"
        )
    for name, reason in failures.items():
        print(f"{name:<20}not run: {reason.splitlines()[-1]}")


def verdict(value: float | None, sign: str, target: float) -> str:
    if value is None:
        return ""
    return "" if (value >= target if sign == ">=" else value <= target) else "  missed"


if __name__ == "__main__":
    sys.exit(main())
