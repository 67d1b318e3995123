"""`tidelog server` as a process of its own, and everything it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

START_S = 240.0
ENOUGH_S = 240.0


class ServerProcess:
    def __init__(self, folder: Path, *more: str, environment: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.said = folder / "server.out"
        self.answers: list[str] = []
        self._begin = self.said.stat().st_size if self.said.exists() else 0
        with self.said.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog.cli.main", "server", "--port", "0", *more],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                start_new_session=True,
                env={**os.environ, "TIDELOG_HOME": str(self.home), **(environment or {})},
            )
        # Each call has a connection of its own: the service ends those that rest, maybe while a call is on its way.
        alone = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self._address(), timeout=90, limits=alone)
        self.until(lambda: self._answers())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, path: str, body: object = None, **more: object) -> httpx.Response:
        answer = self.client.request(method, path, json=body, **more)  # type: ignore[arg-type]
        self.answers.append(answer.text)
        return answer

    def until(self, condition: Callable[[], object], seconds: float = ENOUGH_S) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._process.poll() is None, self.said.read_text()
            assert time.monotonic() < deadline, f"nothing happened in time\n{self.said.read_text()}"
            time.sleep(0.2)

    def state(self, name: str) -> str:
        return str(self.ask("GET", f"/connectors/{name}/status").json()["connector"]["state"])

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.client.close()
        self._process.send_signal(number)
        return self._process.wait(ENOUGH_S)

    def kill(self) -> None:
        """Whatever is left, with the processes that Spark started."""
        self.client.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _address(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.findall(r"http://[\d.:]+", self.said.read_text())
            if len(found) > self._earlier():
                return str(found[-1])
            assert self._process.poll() is None, self.said.read_text()
            time.sleep(0.1)
        raise AssertionError(f"the service did not say where it listens\n{self.said.read_text()}")

    def _earlier(self) -> int:
        return self.said.read_bytes()[: self._begin].count(b"http://")

    def _answers(self) -> bool:
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False
