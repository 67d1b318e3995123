"""TLS on a server that admits nothing else: every connection of ours is encrypted, and a wrong certificate is told.

On Debian's PostgreSQL 15: the servers from PyPI are built without TLS.
"""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.postgres.certificates import Authority, Pair
from tests.integration.postgres.world import World, catch_up, told, until
from tests.patience import ENOUGH_S
from tests.servers import Database, NoServer, Postgres, install
from tidelog.connectors import chunk_reader
from tidelog.connectors.postgres import chunks, server_watch
from tidelog.connectors.postgres.client import Session
from tidelog.connectors.postgres.connector import create
from tidelog.contracts import Scan, Span
from tidelog.errors import ConfigError, TidelogError, TransientError

_DOORS = """
hostssl all certified 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
hostssl replication all 127.0.0.1/32 scram-sha-256
"""
_ENCRYPTED = """
SELECT application_name, bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
 WHERE application_name LIKE 'tidelog%' GROUP BY 1 ORDER BY 1
"""
_AUTHORIZED = re.compile(r"connection authorized: .*application_name=(tidelog(?: [a-z]+)?)(.*)")


@dataclass
class Site:
    """A server whose certificate is for `localhost`, the authority that signed it, and another one that did not."""

    server: Postgres
    root: Path
    stranger: Path
    client: Pair
    database: Database

    def options(self, mode: str, root: Path | None = None, **more: str) -> dict[str, str]:
        mine = {
            "database.hostname": "localhost",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.dbname": self.database.dbname,
            "database.sslmode": mode,
            "slot.name": "tls",
            "publication.name": "tls",
        }
        mine |= {"database.sslrootcert": str(root)} if root else {}
        return {**mine, **{name.replace("__", "."): text for name, text in more.items()}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, own = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("client")
    folder.chmod(0o777)
    authority, stranger = Authority(folder, "authority"), Authority(own, "stranger")
    pair = authority.issue("localhost", folder)
    settings = {
        "ssl": "on",
        "ssl_cert_file": pair.certificate,
        "ssl_key_file": pair.key,
        "ssl_ca_file": authority.root,
        "log_connections": "on",
    }
    try:
        install(15)
        server = Postgres.start(15, folder, settings=settings)
    except NoServer as reason:
        pytest.skip(str(reason))
    (server.data / "pg_hba.conf").write_text(_DOORS)
    server.restart()
    server.execute("CREATE ROLE certified LOGIN")
    database = server.create_database("shop")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'there already')")
    yield Site(server, authority.root, stranger.root, authority.issue("certified", own), database)
    server.stop()


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    yield
    for kept in chunks._idle.values():
        while kept:
            kept.pop().close()


def read_chunk(options: dict[str, str]) -> list[int]:
    """The ids of the table, as executors read them."""
    connector = create(options)
    try:
        (table,) = connector.tables()
        chunk = chunk_reader("postgres", options).open(Scan(table, ("id",)), Span(None, None), attempt="a")
        try:
            found = [row["id"] for batch in chunk.rows() for row in batch.to_pylist()]
            chunk.end()
            return found
        finally:
            chunk.close()
    finally:
        connector.close()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_all_that_we_say_is_encrypted(site: Site, tmp_path: Path, mode: str) -> None:
    options = site.options(mode, site.root if mode != "require" else None)
    said_before = len(site.server.log.read_text())
    world = World(site.database, tmp_path / "pipeline", source=options)
    try:
        reading = world.reading()
        start = reading.initial()
        number = 10 + len(mode)
        site.database.execute("INSERT INTO t VALUES (%s, 'new')", [number])
        _, events = catch_up(reading, start)  # the slot may tell again what an earlier test wrote
        assert told(events)[-1] == ("t", "c", {"id": number, "v": "new"})
        assert number in read_chunk(options)
        assert {f.level for f in create(options).check()} == {"ok"}
        alive = dict(site.database.execute(_ENCRYPTED))
        assert {"tidelog", "tidelog capture", "tidelog chunks"} <= alive.keys()
        assert set(alive.values()) == {True}
    finally:
        world.close()
    said = _AUTHORIZED.findall(site.server.log.read_text()[said_before:])
    assert {name for name, _ in said} == {"tidelog", "tidelog capture", "tidelog chunks", "tidelog check"}
    assert all("SSL enabled (protocol=TLSv1" in how for _, how in said)


def test_the_watch_ends_an_encrypted_operation(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "SILENCE_S", 0.3)
    monkeypatch.setattr(server_watch, "answers", lambda *_: False)
    with Session(create(site.options("verify-full", site.root))._config) as session:
        with pytest.raises(TransientError, match=r"has not answered for \d+ s\."):
            session.query("SELECT pg_sleep(3600)")
        assert session.closed


def test_the_watch_leaves_no_error_in_the_server_log(site: Site) -> None:
    said_before = len(site.server.log.read_text())
    peer = (socket.AF_INET, (site.server.host, site.server.port))
    for _ in range(3):
        assert server_watch.answers(peer, ENOUGH_S)
    site.database.execute("SELECT 1")
    said = site.server.log.read_text()[said_before:]
    assert said.count("connection received") >= 3
    assert "could not" not in said


def test_a_certificate_instead_of_a_password(site: Site) -> None:
    mine = {"database__sslcert": str(site.client.certificate), "database__sslkey": str(site.client.key)}
    options = site.options("verify-full", site.root, database__user="certified", database__password="", **mine)
    site.database.execute("GRANT SELECT ON t TO certified")
    assert 1 in read_chunk(options)


def wrong(site: Site) -> dict[str, tuple[dict[str, str], str]]:
    """Settings that cannot connect, and what is said of them."""
    other = {"database__user": "certified", "database__password": ""}
    keyless = {**other, "database__sslcert": str(site.client.certificate), "database__sslkey": "/nowhere/a.key"}
    return {
        "another authority": (site.options("verify-full", site.stranger), "certificate verify failed"),
        "another authority, any name": (site.options("verify-ca", site.stranger), "certificate verify failed"),
        "another name": (site.options("verify-full", site.root, database__hostname="127.0.0.1"), "does not match host"),
        "no file": (site.options("verify-full", Path("/nowhere/root.crt")), "does not exist"),
        "no certificate in it": (site.options("verify-full", site.client.key), "could not read root certificate"),
        "no TLS": (site.options("disable"), "no encryption"),
        "no client certificate": (site.options("verify-full", site.root, **other), "requires a valid client cert"),
        "no key": (site.options("verify-full", site.root, **keyless), "not private key file"),
        "one address of two": (
            site.options("verify-full", site.stranger, database__hostname="127.0.0.2,127.0.0.1"),
            "certificate verify failed",
        ),
    }


def test_what_a_setting_cures_is_told_at_once_and_without_the_password(site: Site) -> None:
    """By each of the two drivers, and by `check`."""
    for name, (options, words) in wrong(site).items():
        for error in (refusal(options), chunk_refusal(site, options)):
            assert isinstance(error, ConfigError), (name, error)
            assert words in error.message, name
            assert "database.ssl" in error.hint, name
            assert site.server.password not in "".join(traceback.format_exception(error)), name
        (finding,) = create(options).check()
        assert (finding.level, finding.subject) == ("error", "connection")
        assert words in finding.meaning
        assert "database.ssl" in finding.cure


def refusal(options: dict[str, str]) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        create(options).prepare()
    return caught.value


def chunk_refusal(site: Site, options: dict[str, str]) -> TidelogError:
    connector = create(site.options("require"))
    (table,) = connector.tables()
    connector.close()
    with pytest.raises(TidelogError) as caught:
        chunk_reader("postgres", options).open(Scan(table, ("id",)), Span(None, None), attempt="a")
    return caught.value


def test_a_server_without_tls_is_not_spoken_to_in_plain(database: Database) -> None:
    mine = {"database.hostname": database.host, "database.port": str(database.port), "database.user": database.user}
    more = {"database.password": database.password, "database.dbname": database.dbname}
    error = refusal({**mine, **more, "database.sslmode": "require"})
    assert isinstance(error, ConfigError)
    assert "does not support SSL" in error.message
    assert "database.sslmode" in error.hint


def test_a_capture_whose_server_changed_its_certificate_stops(site: Site, tmp_path: Path) -> None:
    """It is not tried again and again: what the lost connection comes back to is not the server that we trust."""
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(site.root.read_bytes())
    world = World(site.database, tmp_path / "pipeline", source=site.options("verify-full", trusted))
    try:
        reading = world.reading()
        start = reading.initial()
        reading.latest(start, None, None)
        until(lambda: reading.metrics()["state"] == "running", "the stream")
        trusted.write_bytes(site.stranger.read_bytes())
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tidelog%'"
        site.server.execute(sql)
        until(lambda: reading.metrics()["state"] == "failed", "the end of the capture")
        with pytest.raises(ConfigError, match="certificate verify failed"):
            reading.latest(start, None, None)
    finally:
        world.close()
