"""`tidelog server` as a process of its own, and everything it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from tests import startup
from tests.patience import ENOUGH_S, wait_for_exit, wait_until, wall_seconds


class ServerProcess:
    def __init__(self, folder: Path, *more: str, environment: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.said = folder / "server.out"
        self.answers: list[str] = []
        self._begin = self.said.stat().st_size if self.said.exists() else 0
        with startup.one_at_a_time(), self.said.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", "server", "--port", "0", *more],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                start_new_session=True,
                env={**os.environ, "TIDELOG_HOME": str(self.home), **(environment or {})},
            )
            # Each call has a connection of its own: the service ends those that rest, maybe while a call is on its way.
            alone = httpx.Limits(max_keepalive_connections=0)
            self.client = httpx.Client(base_url=self._find_address(), timeout=wall_seconds(), limits=alone)
            self.until(lambda: self._answers())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, path: str, body: object = None, **more: object) -> httpx.Response:
        answer = self.client.request(method, path, json=body, **more)  # type: ignore[arg-type]
        self.answers.append(answer.text)
        return answer

    def until(self, condition: Callable[[], object], seconds: float = ENOUGH_S) -> None:
        """While the process lives."""
        wait_until(condition, self._output, seconds=seconds, poll_s=0.1, check=self._require_alive)

    def state(self, name: str) -> str:
        return str(self.ask("GET", f"/connectors/{name}/status").json()["connector"]["state"])

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.client.close()
        self._process.send_signal(number)
        return wait_for_exit(self._process, self._output)

    def kill(self) -> None:
        """Whatever is left, with the processes that Spark started."""
        self.client.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _find_address(self) -> str:
        """It is in the first line of this process."""

        def find() -> str:
            addresses = re.findall(r"http://[\d.:]+", self._output())
            return str(addresses[-1]) if len(addresses) > self._earlier() else ""

        return wait_until(find, self._output, check=self._require_alive)

    def _output(self) -> str:
        return self.said.read_text()

    def _require_alive(self) -> None:
        assert self._process.poll() is None, self._output()

    def _earlier(self) -> int:
        return self.said.read_bytes()[: self._begin].count(b"http://")

    def _answers(self) -> bool:
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False
