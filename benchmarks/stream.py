"""Side by side on one PostgreSQL 18: pg_recvlogical, tidelog and Debezium read the same changes, one after another.

    python -m benchmarks.stream [--events 1400000] [--rounds 3] [--only NAME ...]

Rounds are interleaved and the median run of each contender counts. The table is printed, and written with the ratios to
`results/stream.json`; what the columns mean is said in `measure` and under the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from demo.embedded import Database, Postgres

from benchmarks import environment, load
from benchmarks.contenders import CONTENDERS, DEBEZIUM_TUNED, JAVA_HEAP, Job
from benchmarks.load import Load
from benchmarks.measure import ContenderFailed, Measure

RESULTS = Path(__file__).parent / "results"

TUNING = ", ".join(f"{name}={value}" for name, value in DEBEZIUM_TUNED.items())
CAPTION = f"""\
events/s  from the moment the contender's slot becomes active on the server to its last event, its runtime being up
CPU-s     of all client processes, dead ones included, in that window; total: from launch to exit
RSS       largest sum over the process tree; pages shared by its processes count once for each
cold      from launch to the slot becoming active (JVM, Spark session, engine start)
others    CPU-s of the machine in the window that were neither the contender nor PostgreSQL: disturbance
ratio     events/s over those of the faster Debezium
Debezium  the embedded engine 3.6.3, a Java consumer that does nothing, Connect records (nothing serialised), heap
          {JAVA_HEAP}; "default" has no other setting, the first has
          {TUNING}
The median of the rounds; one contender at a time, each from its own slot over the same write-ahead log."""


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    names = [name for name in CONTENDERS if not options.only or name in options.only]
    with Postgres.start(18, settings=load.SETTINGS) as server:
        database = server.create_database("bench")
        slots = {(name, turn): f"{name.replace(' ', '_')}_{turn}" for turn in range(options.rounds) for name in names}
        load.prepare(database, list(slots.values()))
        say(f"writing {options.events:,} events …")
        written = load.write(database, load.shares(options.events))
        runs, failures = compete(database, written, slots)
        facts = environment.facts(server)
    report = summarise(names, runs, failures, written)
    print_table(report["rows"], failures)
    save({**report, "environment": facts}, options.out)
    return 1 if failures else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare change streams side by side.")
    parser.add_argument("--events", type=int, default=load.EVENTS, help="scales the whole load (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per contender (default %(default)s)")
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), help="this contender only; repeatable")
    parser.add_argument("--out", type=Path, default=RESULTS / "stream.json", help="where the results go")
    return parser.parse_args(arguments)


def compete(
    database: Database, written: Load, slots: dict[tuple[str, int], str]
) -> tuple[dict[str, list[Measure]], dict[str, str]]:
    runs: dict[str, list[Measure]] = {}
    failures: dict[str, str] = {}
    for (name, turn), slot in slots.items():
        if name in failures:
            continue
        try:
            result = run_once(name, database, written, slot)
        except ContenderFailed as failure:
            failures[name] = str(failure)
            say(f"{name}: {failure}")
            continue
        runs.setdefault(name, []).append(result)
        say(f"round {turn + 1}, {name}: {result.events_per_s:,} events/s, {result.cpu_s:.1f} CPU-s")
    return runs, failures


def run_once(name: str, database: Database, written: Load, slot: str) -> Measure:
    workdir = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        return CONTENDERS[name](Job(database, written, slot, workdir))
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
        database.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def summarise(
    names: list[str], runs: dict[str, list[Measure]], failures: dict[str, str], written: Load
) -> dict[str, object]:
    medians = {name: median(runs[name]) for name in names if name in runs}
    base = debezium(medians)
    rows = [
        {
            **asdict(row),
            "ratio_to_debezium": over(row.events_per_s, base and base.events_per_s),
            "runs": speeds(runs[name]),
        }
        for name, row in medians.items()
    ]
    mix = {"inserts": written.inserts, "updates": written.updates, "single_row_transactions": written.singles}
    return {
        "events": written.events,
        "mix": mix,
        "rows": rows,
        "ratios": ratios(medians),
        "not_run": failures,
        "caption": CAPTION.splitlines(),
    }


def median(runs: list[Measure]) -> Measure:
    """The run in the middle by speed: a real run, so that its columns belong together."""
    return sorted(runs, key=lambda run: run.events_per_s)[len(runs) // 2]


def speeds(runs: list[Measure]) -> list[float]:
    return [run.events_per_s for run in runs]


def debezium(medians: dict[str, Measure]) -> Measure | None:
    """The faster of Debezium's two, tuned and default: comparisons are with Debezium at its best."""
    candidates = [row for name, row in medians.items() if name.startswith("debezium")]
    return max(candidates, key=lambda row: row.events_per_s, default=None)


def ratios(medians: dict[str, Measure]) -> dict[str, float | None]:
    base = debezium(medians)

    def speed(name: str) -> float | None:
        return medians[name].events_per_s if name in medians else None

    noop_cpu = medians["tidelog noop"].cpu_s if "tidelog noop" in medians else None
    return {
        "capture_vs_pg_recvlogical": over(speed("tidelog capture"), speed("pg_recvlogical")),
        "noop_vs_debezium": over(speed("tidelog noop"), base and base.events_per_s),
        "delta_vs_debezium": over(speed("tidelog delta"), base and base.events_per_s),
        "cpu_noop_vs_debezium": over(noop_cpu, base and base.cpu_s),
    }


def over(part: float | None, whole: float | None) -> float | None:
    return round(part / whole, 3) if part is not None and whole else None


def print_table(rows: object, failures: dict[str, str]) -> None:
    assert isinstance(rows, list)
    heads = f"{'seconds':>9}{'CPU-s':>8}{'total':>8}{'RSS MB':>8}{'cold s':>8}{'others':>8}{'ratio':>8}"
    print(f"\n{'contender':<18}{'events/s':>12}{heads}")
    for row in rows:
        ratio = "-" if row["ratio_to_debezium"] is None else f"{row['ratio_to_debezium']:.2f}"
        print(
            f"{row['contender']:<18}{row['events_per_s']:>12,}{row['seconds']:>9.1f}{row['cpu_s']:>8.1f}"
            f"{row['cpu_total_s']:>8.1f}{row['rss_peak_mb']:>8,}{row['cold_s']:>8.1f}{row['others_cpu_s']:>8.1f}{ratio:>8}"
        )
    for name, reason in failures.items():
        print(f"{name:<18}not run: {reason.splitlines()[-1]}")
    print(f"\n{CAPTION}")


def save(report: dict[str, object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    say(f"written to {path.name}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
