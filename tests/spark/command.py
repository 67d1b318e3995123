"""`tidelog` as people start it: a process of its own, its definition in a file, its state in the test's folder."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil
from deltalake import DeltaTable

from tests.patience import Patience, wait_for_exit
from tests.servers import Database
from tests.spark.conftest import source_of
from tests.spark_session import prepare_environment

EACH = 10
"""Rows of a transaction."""


class Shop:
    """A pipeline's file and folder, and the commands on it."""

    def __init__(self, database: Database, folder: Path, stream: str = "{}") -> None:
        self.database = database
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.lake = folder / "lake"
        password = "${TIDELOG_TEST_PASSWORD}"
        source = "".join(f"  {k}: {v}\n" for k, v in (source_of(database) | {"database.password": password}).items())
        sink = f"{{type: history, path: {self.lake}, format: delta}}"
        self.file.write_text(f"name: shop\nsource:\n{source}sink: {sink}\nstream: {stream}\n")
        prepare_environment()
        mine = {"TIDELOG_HOME": str(folder / "home"), "TIDELOG_TEST_PASSWORD": database.password}
        self.environment = {**os.environ, **mine}

    @property
    def home(self) -> Path:
        return self.folder / "home" / "shop"

    def start(self, command: str, *arguments: str) -> Command:
        return Command(self, [str(Path(sys.executable).parent / "tidelog"), command, str(self.file), *arguments])

    def ids(self) -> Counter[int]:
        """How often each row of `t` is in the history."""
        table = str(self.lake / "public/t")
        if not DeltaTable.is_deltatable(table):
            return Counter()
        found = DeltaTable(table).to_pyarrow_table(columns=["id"])
        return Counter(found.column("id").to_pylist())


class Command:
    """A running command, in a process group of its own as a terminal gives it; killed when the test is over."""

    def __init__(self, shop: Shop, words: list[str]) -> None:
        self._log = shop.folder / f"{words[1]}-{time.monotonic_ns()}.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                words, env=shop.environment, cwd=shop.folder, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def until_started(self) -> None:
        """Until it handles signals: before that, Python itself starts, and a signal ends it as it ends any program."""
        self.until(self._handles_signals, "the handling of signals")

    def _handles_signals(self) -> bool:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def until(self, done: Callable[[], object], what: str) -> None:
        """While it lives."""
        patience = Patience()
        while not done():
            assert self._process.poll() is None, f"ended before {what}: {self.said}"
            assert not patience.is_over(), f"{what} did not happen: {self.said}"
            time.sleep(0.05)

    def end(self) -> int:
        """Its exit code. It leaves no process behind."""
        code = wait_for_exit(self._process, lambda: self.said)
        assert not self.processes(), f"left behind: {self.processes()}"
        return code

    def processes(self) -> list[str]:
        """The names of the processes of its group that live."""
        found = []
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                name, _, rest = file.read_text(errors="replace").partition("(")[2].rpartition(")")
                state, _, group = rest.split()[:3]
                found += [name] if group == str(self._process.pid) and state != "Z" else []
        return found

    def spark_loads(self, package: str) -> bool:
        """Whether a Python process that Spark started has libraries of a package loaded."""
        found = False
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # also a zombie
                found |= any(package in Path(file.path).parts for file in child.memory_maps())
        return found

    def kill_jvm(self) -> None:
        for child in psutil.Process(self._process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()

    def interrupt(self) -> None:
        """Ctrl-C: a terminal tells the whole group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """As a service manager does."""
        self._process.terminate()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()


class Writer:
    """Commits transactions of some rows, one after the other, in the background."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.transactions = 0

    @property
    def ids(self) -> Counter[int]:
        return Counter(range(self.transactions * EACH))

    def _write(self) -> None:
        with self._database.connect() as connection:
            while not self._over.wait(0.02):
                first = self.transactions * EACH
                connection.execute(f"INSERT INTO t SELECT generate_series({first}, {first + EACH - 1})")
                self.transactions += 1

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
