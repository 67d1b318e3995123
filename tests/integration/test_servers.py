"""The servers under the tests do what the tests rely on."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from tests.proxy import Proxy
from tests.servers import S3, Database, Postgres
from tests.spark_session import REPO


@pytest.mark.parametrize("version", [15, 16, 18])
def test_every_version_decodes_logically(version: int, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue("database" if version == 18 else f"database{version}")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("SELECT pg_create_logical_replication_slot('decodes', 'pgoutput')")
    database.execute("INSERT INTO t VALUES (1)")
    changes = "SELECT get_byte(data, 0) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, %s, %s, %s, %s)"
    kinds = database.execute(changes, ["decodes", "proto_version", "1", "publication_names", "p"])
    assert database.server.execute("SHOW server_version_num")[0][0].startswith(str(version))
    assert bytes(kind for (kind,) in kinds) == b"BRIC"


def test_a_wrong_password_is_refused(postgres: Postgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        postgres.connect(password="wrong")


def test_a_crash_keeps_committed_rows(private_postgres: Postgres) -> None:
    private_postgres.execute("CREATE TABLE t AS SELECT 1 AS id")
    private_postgres.restart(immediate=True)
    assert private_postgres.execute("SELECT id FROM t") == [(1,)]
    private_postgres.restart()
    assert private_postgres.execute("SELECT id FROM t") == [(1,)]


def test_a_dropped_database_takes_its_slots_along(postgres: Postgres) -> None:
    database = postgres.create_database("has_slot")
    database.execute("SELECT pg_create_logical_replication_slot('left_over', 'pgoutput')")
    database.drop()
    assert postgres.execute("SELECT FROM pg_replication_slots WHERE slot_name = 'left_over'") == []


def test_the_proxy_cuts_and_refuses(database: Database, proxy: Proxy) -> None:
    with database.connect(port=proxy.port) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert proxy.cut() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        database.connect(port=proxy.port)
    proxy.accept()
    database.connect(port=proxy.port).close()


def test_the_proxy_stalls(database: Database, proxy: Proxy) -> None:
    with database.connect(port=proxy.port) as connection:
        proxy.stall()
        timer = threading.Timer(0.5, proxy.flow)
        began = time.monotonic()
        timer.start()
        connection.execute("SELECT 1")
        assert time.monotonic() - began >= 0.4
        timer.join()


def test_the_proxy_throttles(database: Database, proxy: Proxy) -> None:
    with database.connect(port=proxy.port) as connection:
        proxy.throttle(200_000)
        began = time.monotonic()
        connection.execute("SELECT repeat('x', 100000)")
        assert time.monotonic() - began >= 0.4


def test_the_proxy_cuts_in_mid_message(database: Database, proxy: Proxy) -> None:
    with database.connect(port=proxy.port) as connection:
        proxy.cut_after(50_000)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('x', 1000000)")


def test_s3_speaks_to_pyarrow(s3: S3) -> None:
    from pyarrow import fs

    filesystem, path = fs.FileSystem.from_uri(s3.url("folder/file"))
    with filesystem.open_output_stream(path) as out:
        out.write(b"hello")
    with filesystem.open_input_stream(path) as file:
        assert file.read() == b"hello"


def test_python_workers_see_this_checkout(spark) -> None:  # type: ignore[no-untyped-def]
    def where(rows):  # type: ignore[no-untyped-def]
        import tidelog

        for _ in rows:
            yield tidelog.__file__

    assert set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()) == {
        str(REPO / "src" / "tidelog" / "__init__.py")
    }
