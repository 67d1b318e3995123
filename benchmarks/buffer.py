"""Transaction buffers side by side: tidelog's, Chronicle Queue, a Python dictionary and RocksDB take the same load.

    python -m benchmarks.buffer [--events 2000000] [--rounds 3] [--only NAME ...]

Every figure comes from a process of its own, one at a time, on a disk that has nothing left to write. Rounds of the
rates are interleaved and their median counts. `--events` scales everything: the foreign events and the huge
transaction too. Everything is printed, and written to `results/buffer.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import chronicle, environment, measure
from benchmarks.buffer_load import LIFE, READING, RECORD_BYTES
from benchmarks.buffer_stores import MEMORY_BYTES
from benchmarks.buffer_tasks import FLUSH_EVENTS, PROBE_EVENTS
from benchmarks.stream import RESULTS, over, save, say

EVENTS = 2_000_000
FOREIGN = 2.5
"""Times the events: what passes while a small transaction is open."""
HUGE = 5
"""Times the events: the one transaction whose memory is looked at."""
OPEN = 1_000
PROBES = 9
REPLAYED = 20
SECONDS_MAX = 300.0
PACKAGES = ("tidelog", "pyarrow", "numpy", "rocksdict")

CHRONICLE = "chronicle"
TARGETS = {"replay_contended_vs_alone": ("<=", 2.0), "append_vs_chronicle": (">=", 0.5)}
MEMORY_TARGET_MB = 300

CAPTION = f"""\
append    {RECORD_BYTES}-byte records of {OPEN:,} open transactions, in readings of {READING:,}; none of them ends;
          per CPU-s: of the process, which a disturbed machine changes less; on memory that was in use before
durable   tidelog, RocksDB and "synced": on the disk (fsync) every {FLUSH_EVENTS:,} events and at the end, on the clock;
          Chronicle as it comes forces nothing to disk, the dictionary cannot
replay    from the commit to the last record: of {OPEN:,} open transactions one by one, and of one that is alone there
small     {PROBE_EVENTS} events, alone, and open while the foreign events pass: {OPEN:,} transactions open at any time,
          each of about {READING * LIFE // OPEN} events, then it commits; the median of several
memory    the kernel's mark (VmHWM) of the process with one huge open transaction, mapped files included; replay: also
          after it was read back
tidelog   buffer and journal, {MEMORY_BYTES >> 20} MB for open transactions (default); what it reads is verified;
          "10k": readings of 10,000 records instead, the fetch of a small query
Chronicle {chronicle.VERSION}, from Java (heap {chronicle.JAVA_HEAP}), one queue: a commit scans from the transaction's
          start and filters by its id; numbers and bytes, the fastest form; "wire": named fields and text
heap      a dictionary of lists of bytes; RocksDB: rocksdict in raw mode with default options; both record by record
others    CPU-s of the machine during the runs that were not the contender's: disturbance"""


@dataclass(frozen=True)
class Contender:
    """How a buffer is run: a store in Python, or a form of Chronicle's documents."""

    store: str = ""
    reading: int = READING
    form: str = ""
    synced: int = 0
    tasks: tuple[str, ...] = ("rates", "probes", "memory")
    replayed: int = REPLAYED
    probes: int = PROBES
    rounds: int | None = None
    """None: as many as asked for."""

    def command(self, task: str, java: list[str], folder: Path, numbers: Numbers) -> list[str]:
        extra = {"rates": self.replayed, "probes": self.probes, "memory": 0}[task]
        counts = [str(numbers.of(task)), str(OPEN), str(extra)]
        if self.store:
            return [
                sys.executable,
                "-m",
                "benchmarks.buffer_tasks",
                task,
                self.store,
                str(folder),
                *counts,
                str(self.reading),
            ]
        return [*java, task, self.form, str(folder), str(RECORD_BYTES), str(self.synced), *counts]


@dataclass(frozen=True)
class Numbers:
    events: int

    def of(self, task: str) -> int:
        return int(self.events * {"rates": 1, "probes": FOREIGN, "memory": HUGE}[task])


SCANS = 3
"""Chronicle reads everything for each transaction that it replays: so many show it."""
CONTENDERS: dict[str, Contender] = {
    "tidelog": Contender(store="tidelog"),
    "tidelog, 10k": Contender(store="tidelog", reading=10_000, tasks=("rates",), rounds=1),
    CHRONICLE: Contender(form="bytes", replayed=SCANS),
    "chronicle synced": Contender(form="bytes", synced=FLUSH_EVENTS, tasks=("rates",), replayed=SCANS),
    "chronicle wire": Contender(form="wire", tasks=("rates",), replayed=SCANS, rounds=1),
    "heap": Contender(store="heap"),
    "rocksdb": Contender(store="rocksdb"),
}

Answers = dict[str, dict[str, list[dict[str, Any]]]]
"""By contender and task."""


class Failed(RuntimeError):
    """It did not come to an end; the message is what it said last."""


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    began = time.monotonic()
    numbers = Numbers(options.events)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        names = [name for name in CONTENDERS if not options.only or name in options.only]
        java, failures = ready(names, Path(folder))
        names = [name for name in names if name not in failures]
        answers = compete(names, java, Path(folder), numbers, options.rounds, failures)
    report = summarise(answers, failures, numbers)
    print_report(report)
    save({**report, "environment": facts(), "took_s": round(time.monotonic() - began)}, options.out)
    return 1 if failures else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare transaction buffers side by side.")
    parser.add_argument("--events", type=int, default=EVENTS, help="scales the whole load (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of the rates (default %(default)s)")
    parser.add_argument("--only", action="append", choices=list(CONTENDERS), help="this contender only; repeatable")
    parser.add_argument("--out", type=Path, default=RESULTS / "buffer.json", help="where the results go")
    return parser.parse_args(arguments)


# -- runs ----------------------------------------------------------------------------------------------------------


def ready(names: list[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command of Chronicle's driver, and who cannot run."""
    queues = [name for name in names if not CONTENDERS[name].store]
    if not queues:
        return [], {}
    try:
        return chronicle.command(folder), {}
    except chronicle.NotHere as reason:
        say(str(reason))
        return [], dict.fromkeys(queues, str(reason))


def compete(
    names: list[str], java: list[str], folder: Path, numbers: Numbers, rounds: int, failures: dict[str, str]
) -> Answers:
    answers: Answers = {name: {} for name in names}
    for task in ("rates", "probes", "memory"):
        for turn in range(rounds if task == "rates" else 1):
            for name in names:
                contender = CONTENDERS[name]
                if name in failures or task not in contender.tasks or turn >= (contender.rounds or rounds):
                    continue
                command = contender.command(task, java, folder / "run", numbers)
                try:
                    found = run_once(command, folder / "run")
                except Failed as failure:
                    failures[name] = f"{task}: {failure}"
                    say(f"{name}, {task}: {failure}")
                    continue
                answers[name].setdefault(task, []).append(found)
                say(f"{task} {turn + 1}, {name}: {told(task, found)}")
    return answers


def run_once(command: list[str], folder: Path) -> dict[str, Any]:
    """Run a task in a fresh folder, once nothing of the one before is left to be written."""
    os.sync()
    busy, own = measure.machine_cpu(), children_cpu()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"it was not done after {SECONDS_MAX:.0f} s") from late
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise Failed(done.stderr.strip()[-1500:] or "it said nothing")
    others = max(0.0, measure.machine_cpu() - busy - (children_cpu() - own))
    return {**json.loads(done.stdout.splitlines()[-1]), "others_cpu_s": round(others, 2)}


def children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def told(task: str, found: dict[str, Any]) -> str:
    match task:
        case "rates":
            return f"{rate(found, 'appended', 'append_s'):,} appended/s, {rate(found, 'alone', 'alone_s'):,} replayed/s"
        case "probes":
            alone, contended = (statistics.median(found[key]) * 1e3 for key in ("alone_s", "contended_s"))
            return f"{alone:.3f} ms alone, {contended:.3f} ms in company"
        case _:
            return f"{found['rss_peak_kb'] / 1024:,.0f} MB"


# -- figures -------------------------------------------------------------------------------------------------------


def summarise(answers: Answers, failures: dict[str, str], numbers: Numbers) -> dict[str, Any]:
    rows = {name: row(found) for name, found in answers.items() if found}
    return {
        "record_bytes": RECORD_BYTES,
        "open_transactions": OPEN,
        "events": numbers.of("rates"),
        "foreign_events": numbers.of("probes"),
        "huge_events": numbers.of("memory"),
        "flush_events": FLUSH_EVENTS,
        "contenders": [{"contender": name, **found} for name, found in rows.items()],
        "ratios": ratios(rows),
        "targets": {name: f"{sign} {value:g}" for name, (sign, value) in TARGETS.items()},
        "memory_mb": rows.get("tidelog", {}).get("rss_peak_mb"),
        "memory_target_mb": f"<= {MEMORY_TARGET_MB}",
        "raw": answers,
        "not_run": failures,
        "caption": CAPTION.splitlines(),
    }


def row(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    rates, probes, memory = (found.get(task, []) for task in ("rates", "probes", "memory"))
    return {
        "append_per_s": middle(rates, "appended", "append_s"),
        "append_per_cpu_s": middle(rates, "appended", "append_cpu_s"),
        "append_runs": [rate(run, "appended", "append_s") for run in rates],
        "replay_per_s": middle(rates, "replayed", "replay_s"),
        "replay_together_per_s": middle(rates, "together", "together_s"),
        "replay_alone_per_s": middle(rates, "alone", "alone_s"),
        **{f"small_{how}_ms": small_ms(probes, how) for how in ("alone", "contended")},
        "rss_peak_mb": megabytes(memory, "rss_peak_kb"),
        "rss_peak_replay_mb": megabytes(memory, "rss_peak_replay_kb"),
        "others_cpu_s": round(sum(run["others_cpu_s"] for runs in found.values() for run in runs), 2),
    }


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """Chronicle's rate is that of its fastest form, without any sync."""
    own, other = rows.get("tidelog", {}), rows.get(CHRONICLE, {})
    return {
        "replay_contended_vs_alone": over(own.get("small_contended_ms"), own.get("small_alone_ms")),
        "append_vs_chronicle": over(own.get("append_per_s"), other.get("append_per_s")),
    }


def rate(run: dict[str, Any], count: str, seconds: str) -> int:
    return int(run[count] / run[seconds])


def middle(runs: list[dict[str, Any]], count: str, seconds: str) -> int | None:
    found = [rate(run, count, seconds) for run in runs if count in run]
    return statistics.median_low(found) if found else None


def small_ms(runs: list[dict[str, Any]], how: str) -> float | None:
    return round(statistics.median(runs[0][f"{how}_s"]) * 1e3, 4) if runs else None


def megabytes(runs: list[dict[str, Any]], key: str) -> int | None:
    return round(runs[0][key] / 1024) if runs and key in runs[0] else None


def facts() -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "cpu": environment.cpu_model(),
        "python": sys.version.split()[0],
        "java": environment.java_version(),
        "chronicle-queue": chronicle.VERSION,
        **{name: environment.version_of(name) for name in PACKAGES},
    }


# -- what is shown -------------------------------------------------------------------------------------------------

HEADS = {
    "append/s": "append_per_s",
    "per CPU-s": "append_per_cpu_s",
    "replay/s": "replay_per_s",
    "alone/s": "replay_alone_per_s",
    "small ms": "small_alone_ms",
    "contended": "small_contended_ms",
    "RSS MB": "rss_peak_mb",
    "replay MB": "rss_peak_replay_mb",
    "others": "others_cpu_s",
}


def print_report(report: dict[str, Any]) -> None:
    print(f"\n{'contender':<18}" + "".join(f"{head:>12}" for head in HEADS))
    for found in report["contenders"]:
        print(f"{found['contender']:<18}" + "".join(f"{shown(found[key]):>12}" for key in HEADS.values()))
    for name, reason in report["not_run"].items():
        print(f"{name:<18}not run: {reason.splitlines()[-1]}")
    print(f"\n{'ratio':<32}{'measured':>10}{'target':>10}")
    for name, value in report["ratios"].items():
        sign, target = TARGETS[name]
        print(f"{name:<32}{shown(value):>10}{sign:>6}{target:>4g}{verdict(value, sign, target)}")
    peak = report["memory_mb"]
    print(f"{'memory of a huge transaction, MB':<32}{shown(peak):>10}{'<=':>6}{MEMORY_TARGET_MB:>4}", end="")
    print(f"{verdict(peak, '<=', MEMORY_TARGET_MB)}\n\n{CAPTION}")


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def verdict(value: float | None, sign: str, target: float) -> str:
    if value is None:
        return ""
    return "" if (value >= target if sign == ">=" else value <= target) else "  missed"


if __name__ == "__main__":
    sys.exit(main())
