"""Can the executors do their work? On machines of their own they need tidelog, and the storage of journal and stage.

One small job looks on every machine before the stream starts, so that what is missing is one sentence and not the stack
trace of a task.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from tidelog.engine.definition import redact
from tidelog.errors import ConfigError
from tidelog.journal.files import Files
from tidelog.model.version import __version__
from tidelog.spark.session import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidelog")
_ROUNDS_MAX = 3
_POLL_S = 0.1
_REMIND_S = 20.0
_NO_EXECUTOR_S = 300.0
_NO_ANSWER_S = 300.0
"""Counted from when the first executor has registered."""
_TIDELOG = "tidelog"
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] ([^\n]+)")
_GUIDE = "docs/guide/cluster.md says how."


@dataclass(frozen=True)
class MissingRequirement:
    """What a machine lacks: tidelog, or one of the places."""

    host: str
    what: str
    why: str


def require_executors(spark: SparkSession, places: Mapping[str, Files], check: Callable[[], None]) -> None:
    """Refuse a cluster whose executors have another tidelog, or do not reach `places` (by title). `check` is called
    several times a second, and may raise to give up."""
    context = spark.sparkContext
    if is_local(context.master or ""):
        return
    for missing in find_missing(context, places, check=check):
        raise _refusal(missing, places)


def find_missing(
    context: SparkContext,
    places: Mapping[str, Files],
    version: str = __version__,
    *,
    check: Callable[[], None] = lambda: None,
    no_answer_s: float = _NO_ANSWER_S,
) -> list[MissingRequirement]:
    """Writes a probe file to each place, lets every executor read it, and deletes it."""
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        for title, place in places.items():
            _write_probe(title, place, probe)
        job = _Job(context, check, no_answer_s)
        return _ask_all(job, {title: place.uri for title, place in places.items()}, probe, version)
    finally:
        for place in places.values():
            place.delete(probe)


def _write_probe(title: str, place: Files, probe: str) -> None:
    try:
        place.write(probe, probe.encode())
    except OSError as exc:
        shown = redact({"path": place.uri})["path"]
        raise ConfigError(
            f"The {title} at {shown} cannot be written ({exc.strerror or type(exc).__name__}).",
            hint="Change journal.path, or its rights.",
        ) from exc


@dataclass(frozen=True)
class _Job:
    context: SparkContext
    check: Callable[[], None]
    no_answer_s: float
    group: str = field(default_factory=lambda: f"tidelog-probe-{uuid.uuid4().hex}")


def _ask_all(job: _Job, uris: Mapping[str, str], probe: str, version: str) -> list[MissingRequirement]:
    """Repeats the probe while more executors register, at most three times: a cluster hands them out one by one."""
    missing: list[MissingRequirement] = []
    for _ in range(_ROUNDS_MAX):
        known = _executors(job.context)
        missing += _ask(job, uris, probe, version)
        if missing or _executors(job.context) <= known:
            break
    return missing


def _ask(job: _Job, uris: Mapping[str, str], probe: str, version: str) -> list[MissingRequirement]:
    """A task for every core. The function is carried along with the job: it runs where there is no tidelog, too."""

    def look(_: Iterator[int]) -> Iterator[tuple[str, str, str]]:
        import socket
        import sys
        import uuid

        host = socket.gethostname()
        try:
            from tidelog.journal.files import Files
            from tidelog.model.version import __version__ as present
        except ImportError as exc:
            yield host, "tidelog", f"{sys.executable} cannot import it: {exc}"
            return
        if present != version:
            yield host, "tidelog", f"{sys.executable} has version {present}"
            return
        for title, uri in uris.items():
            try:
                place, own = Files(uri), f"{probe}-{uuid.uuid4().hex}"
                if place.read(probe) != probe.encode():
                    yield host, title, "a file that the driver wrote is not there"
                place.write(own, b"")
                place.delete(own)
            except Exception as exc:  # noqa: BLE001  whatever it is, this machine cannot use the place
                yield host, title, str(exc).splitlines()[0] if str(exc) else type(exc).__name__

    tasks = max(job.context.defaultParallelism, _executors(job.context), 1)
    with ThreadPoolExecutor(1) as beside:
        answers = beside.submit(lambda: _collect(job, tasks, look))
        try:
            found = _await(job, answers)
        except BaseException:
            _cancel(job, answers)
            raise
    return [MissingRequirement(*answer) for answer in found]


def _collect(job: _Job, tasks: int, look: object) -> list[tuple[str, str, str]]:
    """In a thread of its own: the job group is that of the thread."""
    job.context.setJobGroup(job.group, "tidelog looks whether the executors reach the journal", interruptOnCancel=True)
    answers: list[tuple[str, str, str]] = job.context.parallelize(range(tasks), tasks).mapPartitions(look).collect()  # type: ignore[arg-type]
    return answers


def _cancel(job: _Job, answers: Future[list[tuple[str, str, str]]]) -> None:
    with suppress(Py4JError, OSError):  # a JVM that is gone has ended the job
        while not answers.done():  # the job may not have been submitted yet
            job.context.cancelJobGroup(job.group)
            wait([answers], _POLL_S)


def _await(job: _Job, answers: Future[list[tuple[str, str, str]]]) -> list[tuple[str, str, str]]:
    """A cluster without free cores never starts the job, and storage that hangs never ends it: both are given up."""
    began_s = reminded_s = time.monotonic()
    registered_s = None
    while True:
        try:
            return answers.result(_POLL_S)
        except Py4JError as exc:
            raise _failed(str(exc)) from exc
        except NotYet:
            job.check()
        now_s = time.monotonic()
        if registered_s is None and _executors(job.context):
            registered_s = now_s
        if registered_s is not None and now_s - registered_s > job.no_answer_s:
            raise _no_answer(job)
        if registered_s is None and now_s - began_s > _NO_EXECUTOR_S:
            raise _no_executor(job.context)
        if registered_s is None and now_s - reminded_s > _REMIND_S:
            _LOG.warning("No executor of %s has started yet; still waiting.", job.context.master)
            reminded_s = now_s


def _executors(context: SparkContext) -> int:
    """How many are registered; the driver's own entry does not count."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


# -- sentences -------------------------------------------------------------------------------------------------------


def _refusal(missing: MissingRequirement, places: Mapping[str, Files]) -> ConfigError:
    if missing.what == _TIDELOG:
        return ConfigError(
            f"The executors on {missing.host} lack tidelog {__version__}: {missing.why}.",
            hint=f"Install tidelog {__version__} there in the same place, or send it along (--archives). {_GUIDE}",
        )
    place = redact({"path": places[missing.what].uri})["path"]
    return ConfigError(
        f"The executors on {missing.host} cannot use the {missing.what} at {place}: {missing.why}.",
        hint="Set journal.path to storage that all machines reach: s3://bucket/prefix, or a folder that is mounted on "
        f"all of them under the same path and may be written. {_GUIDE}",
    )


def _failed(text: str) -> ConfigError:
    if found := _NO_PYTHON.search(text):
        reason = f"there is no {found[1]}"
    elif found := _OTHER_PYTHON.search(text):
        reason = found[1].rstrip(".")
    else:
        reason = next((line for line in text.splitlines() if "Exception" in line), text[:200]).strip().rstrip(".")
    return ConfigError(
        f"Python does not run on the executors: {reason}.",
        hint=f"Set PYSPARK_PYTHON to a Python that every machine has under this path. {_GUIDE}",
    )


def _no_answer(job: _Job) -> ConfigError:
    return ConfigError(
        f"The executors of {job.context.master} have not answered within {job.no_answer_s:.0f} s.",
        hint="Does the storage of journal.path hang there, such as a mount whose server is away? Are their cores busy "
        "with other jobs?",
    )


def _no_executor(context: SparkContext) -> ConfigError:
    return ConfigError(
        f"No executor of {context.master} has started within {int(_NO_EXECUTOR_S)} s.",
        hint="Does the cluster have workers with free cores, and as much memory as spark.executor.memory says? Do they "
        "reach this machine (spark.driver.host)?",
    )
