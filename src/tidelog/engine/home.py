"""The state folder of a pipeline: `$TIDELOG_HOME/<name>`, default `.tidelog/<name>`.

One run at a time: a run holds a kernel lock on a file in the folder. The kernel drops the lock with the process,
however it dies, so there is never a stale one. A folder that is deleted takes the file along, and a second run would
lock another one: so a run keeps looking whether the file is still the one that it has locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tidelog.errors import ConfigError, StateLost

Identity = tuple[int, int]
"""A file's device and inode."""


@dataclass(frozen=True)
class Lock:
    """A lock on a state folder that this process holds."""

    file: Path
    identity: Identity
    """Of the file that is locked, whatever lies at its path meanwhile."""

    @property
    def kept(self) -> bool:
        """Whether the state folder is still the one that was locked."""
        return is_same(self.file, self.identity)

    def require_kept(self) -> None:
        if not self.kept:
            folder = self.file.parent
            raise StateLost(
                f"The state folder {folder} was deleted, moved or replaced while {folder.name!r} was running.",
                hint="Bring it back and start again; that goes on after the last committed batch. If it is lost, start "
                "with `tidelog run --fresh`, which reads every table again.",
            )


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def identity_of(file: int) -> Identity:
    """Of an open file or folder."""
    return _identity(os.fstat(file))


def is_same(path: Path, identity: Identity) -> bool:
    """Whether the file or folder at `path` is still the one with this identity."""
    try:
        return _identity(path.stat()) == identity
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:  # a disk that is away for a moment is none that was replaced
        return exc.errno != errno.ESTALE


@dataclass(frozen=True)
class Home:
    path: Path

    @staticmethod
    def at(name: str) -> Home:
        """Where the state of `name` is or would be; nothing is created."""
        return Home(Path(os.environ.get("TIDELOG_HOME") or ".tidelog").expanduser().absolute() / name)

    @staticmethod
    def open(name: str) -> Home:
        """The state folder, created and writable."""
        home = Home.at(name)
        try:
            home.path.mkdir(parents=True, exist_ok=True)
            home._probe()
        except OSError as exc:
            raise ConfigError(
                f"The state folder {home.path} cannot be written ({exc.strerror}).",
                hint="Set TIDELOG_HOME to a folder you may write, or change its rights.",
            ) from exc
        return home

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def has_begun(self) -> bool:
        """Whether a batch was ever planned."""
        return any(self.checkpoint.glob("offsets/[0-9]*"))

    @property
    def first_start(self) -> Path:
        """Written when a first start was accepted, before anything is created for it elsewhere."""
        return self.path / "first-start.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.sqlite"

    @property
    def stage(self) -> Path:
        return self.path / "stage"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def signals(self) -> Path:
        """Signals that wait to be followed."""
        return self.path / "signals"

    @property
    def set_aside(self) -> Path:
        """A file for each table that the sink cannot take."""
        return self.path / "set-aside"

    @property
    def former_writers(self) -> Path:
        """Which queries had written to the target before the first start."""
        return self.path / "former-writers.json"

    @property
    def catalog_texts(self) -> Path:
        """Descriptions of tables in the catalog, to which offsets refer by their digests."""
        return self.path / "catalog.json"

    @property
    def filled_targets(self) -> Path:
        """Which target tables have rows."""
        return self.path / "targets.json"

    @property
    def dead_letters(self) -> Path:
        """How many records could not be decoded."""
        return self.path / "dead-letters.json"

    @property
    def notifications(self) -> Path:
        """What was told, one JSON object a line."""
        return self.path / "notifications.jsonl"

    @property
    def snapshot(self) -> Path:
        """How far the snapshots are."""
        return self.path / "snapshot.json"

    @property
    def messages(self) -> Path:
        """What tidelog itself has to say: notifications, signals, warnings."""
        return self.path / "tidelog.log"

    @property
    def log(self) -> Path:
        """What Spark has to say, warnings and worse."""
        return self.path / "spark.log"

    @property
    def native_log(self) -> Path:
        """What compiled libraries print, such as a panic of delta-rs."""
        return self.path / "native.log"

    @contextmanager
    def lock(self, role: str = "run", *, patience_s: float = 0.3, refusal: ConfigError | None = None) -> Iterator[Lock]:
        """Holds the name while the process lives; refused while another process holds it for longer than
        `patience_s`."""
        with self._lock_file(role) as file:
            if not self._seize(file, patience_s):
                raise refusal or self._taken(role)
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield Lock(self._path_of(role), identity_of(file.fileno()))

    def holder(self, role: str = "run") -> int | None:
        """The process that holds the name now, if one does; 0 when it did not say."""
        try:
            with self._path_of(role).open(encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return self._pid(role)
        return None

    def require_free(self, role: str = "run") -> None:
        """Refuse early what `lock` would refuse later."""
        if self.holder(role) is not None:
            raise self._taken(role)

    def _seize(self, file: TextIO, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            else:
                return True

    def _taken(self, role: str) -> ConfigError:
        pid = self._pid(role)
        return ConfigError(
            f"A {role} of {self.path.name!r} is alive already (process {pid or 'unknown'}, state in {self.path}).",
            hint=f"Stop it first (kill {pid}), or give this pipeline another name." if pid else "Stop it first.",
        )

    def _lock_file(self, role: str) -> TextIO:
        try:
            return self._path_of(role).open("a+", encoding="utf-8")
        except OSError as exc:
            raise ConfigError(
                f"The lock {self._path_of(role)} cannot be opened ({exc.strerror}).", hint="Check the folder's rights."
            ) from exc

    def _path_of(self, role: str) -> Path:
        return self.path / f"{role}.lock"

    def _pid(self, role: str) -> int:
        text = self._path_of(role).read_text(encoding="utf-8").strip()
        return int(text) if text.isdigit() else 0

    def _probe(self) -> None:
        """Write for real: rights alone do not tell of a full or read-only disk."""
        probe = self.path / f".probe-{os.getpid()}"
        probe.write_bytes(b"tidelog")
        probe.unlink()
