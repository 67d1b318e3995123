"""The servers that tests run against, all real and without containers: PostgreSQL by version, and S3.

PostgreSQL is `demo.embedded`; this module adds the versions of this and of other Debian releases, and S3 (moto).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from demo.embedded import DEBIAN, Database, NoServer, Postgres, free_port, unprivileged

from tests.patience import wait_until, wall_seconds
from tests.reaper import REPO

__all__ = [
    "DATABASES",
    "S3",
    "Database",
    "NoServer",
    "OtherDebianPostgres",
    "Postgres",
    "await_readers",
    "drop_slots",
    "free_port",
    "frozen",
    "install",
]

DATABASES = [
    pytest.param("database", id="18"),
    pytest.param("database16", id="16"),
    pytest.param("database15", id="15"),
    pytest.param("database17", id="17", marks=pytest.mark.long),
    pytest.param("database13", id="13", marks=pytest.mark.long),
]
"""The fixtures of a database on each version, for `params` and `parametrize`."""

OTHER_DEBIAN_RELEASES = {13: "bullseye", 17: "trixie"}
"""The Debian release that has each of the PostgreSQL versions which this one has not."""


def install(version: int) -> None:
    """Fetch a PostgreSQL that only Debian has; `NoServer` says why it cannot be had."""
    if (DEBIAN / str(version) / "bin" / "postgres").exists():
        return
    if os.geteuid() != 0:
        raise NoServer(f"PostgreSQL {version} is not installed, and only root can apt-get install postgresql-{version}")
    if shutil.which("apt-get") is None:
        raise NoServer(f"PostgreSQL {version} comes from Debian, and there is no apt-get here")
    command = [str(REPO / "scripts" / "apt.sh"), f"postgresql-{version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


class OtherDebianPostgres(Postgres):
    """A PostgreSQL of another Debian release, with that release's own libraries in place of this machine's."""

    @property
    def usr(self) -> Path:
        return REPO / ".venv" / f"postgresql-{self.version}" / "usr"

    def _binaries(self, version: int) -> Path:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise NoServer(f"PostgreSQL {version} comes from another Debian release: it needs root and apt-get")
        command = [
            str(REPO / "scripts" / "unpack.sh"),
            OTHER_DEBIAN_RELEASES[version],
            str(self.usr.parent),
            f"postgresql-{version}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoServer(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
        return DEBIAN / str(version) / "bin"

    def _unprivileged(self) -> list[str]:
        own_namespace = ["unshare", "--mount", "sh", "-c", f"mount --bind '{self.usr}' /usr && exec \"$@\"", "sh"]
        return [*own_namespace, *unprivileged(self.folder)]


def await_readers(database: Database) -> None:
    """Until nobody reads its slots: the server notices a moment later that a reader has gone."""
    read = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() AND active"
    wait_until(lambda: not database.execute(read), f"nobody reads the slots of {database.dbname}", poll_s=0.02)


@contextlib.contextmanager
def frozen(server: Postgres) -> Iterator[None]:
    """Stops all processes of a server, as a hung machine does: its connections stay open, and none answers."""
    postmaster = psutil.Process(server.pid)
    postmaster.suspend()  # first, so that it starts no further process
    processes = [postmaster, *postmaster.children(recursive=True)]
    try:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        yield
    finally:
        for process in reversed(processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def drop_slots(database: Database) -> None:
    """Those of this database, once nobody reads them any more."""
    await_readers(database)
    mine = "FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(f"SELECT pg_drop_replication_slot(slot_name) {mine}"), "there was none"


@dataclass
class S3:
    """An S3 server (moto) in a process of its own, with one bucket; its content dies with it."""

    process: subprocess.Popen[bytes]
    port: int
    bucket: str = "tidelog"
    access_key: str = "test"
    secret_key: str = "test-secret"
    region: str = "us-east-1"
    log: Path = field(default_factory=Path)

    @classmethod
    def start(cls) -> S3:
        port = free_port()
        log = Path(tempfile.mkstemp(prefix="tidelog-s3-", suffix=".log")[1])
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        server = cls(process, port, log=log)
        server._await()
        server.create_bucket(server.bucket)
        return server

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For AWS clients in this or other processes: boto, pyarrow, delta-rs."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def url(self, path: str = "") -> str:
        """An address pyarrow understands without further settings."""
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region={self.region}"
        return f"s3://{self.access_key}:{self.secret_key}@{self.bucket}/{path}?{options}"

    def create_bucket(self, name: str) -> None:
        self._request("PUT", f"/{name}")

    def reset(self) -> None:
        """Forget everything, then offer the empty bucket again."""
        self._request("POST", "/moto-api/reset")
        self.create_bucket(self.bucket)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.unlink(missing_ok=True)

    def _request(self, method: str, path: str) -> None:
        request = urllib.request.Request(self.endpoint + path, method=method)
        urllib.request.urlopen(request, timeout=wall_seconds()).close()

    def _await(self) -> None:
        def answers() -> bool:
            try:
                self._request("GET", "/moto-api/data.json")
            except (urllib.error.URLError, OSError):
                return False
            return True

        def require_alive() -> None:
            if self.process.poll() is not None:
                raise NoServer(f"moto did not start: {output()}")

        def output() -> str:
            return self.log.read_text(errors="replace")[-2000:]

        wait_until(answers, output, poll_s=0.1, check=require_alive)
