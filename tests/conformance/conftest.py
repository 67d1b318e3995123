"""Both servers, for the whole run; each plays the script once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests import startup
from tests.conformance import script
from tests.conformance.peers import Peer
from tests.conformance.shapes import Answer
from tests.integration.server.process import ServerProcess
from tests.patience import wall_seconds
from tests.servers import Postgres
from tests.servers_kafka import ConnectWorker, KafkaBroker

Played = dict[str, tuple[Answer, Answer]]


@pytest.fixture(scope="session")
def kafka_connect(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Kafka Connect itself, with a connector that reads a file."""
    file = tmp_path_factory.mktemp("kafka-connect") / "lines"
    file.write_text("one\ntwo\n")
    plugin = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    with startup.one_at_a_time():
        worker = ConnectWorker.start(kafka)
    with httpx.Client(base_url=worker.url, timeout=wall_seconds()) as client:
        yield Peer(
            client,
            plugin,
            "FileStreamSource",
            {"connector.class": plugin, "tasks.max": "1", "file": str(file), "topic": "lines"},
            change={"batch.size": "1000"},
            failure={"topic": "not a name"},
            wrong_offset={"position": "x"},
        )
    worker.stop()


@pytest.fixture(scope="session")
def tidelog(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """`tidelog server` as a process, with a connector that reads PostgreSQL into Delta."""
    folder = tmp_path_factory.mktemp("tidelog")
    database = postgres.create_database("conformance")
    database.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    database.execute("INSERT INTO lines VALUES (1), (2)")
    server = ServerProcess(folder)
    plugin = "io.debezium.connector.postgresql.PostgresConnector"
    settings = {
        "connector.class": plugin,
        "tasks.max": "1",
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "sink.type": "delta",
        "sink.path": str(folder / "lake"),
    }
    yield Peer(
        server.client,
        plugin,
        "postgres",
        settings,
        change={"incremental.snapshot.chunk.size": "1000"},
        failure={"database.dbname": "nowhere"},
        wrong_offset={"lsn": "x"},
    )
    server.kill()
    database.drop()


@pytest.fixture(scope="session")
def played(kafka_connect: Peer, tidelog: Peer) -> Played:
    """Every step's two answers: theirs, ours."""
    with ThreadPoolExecutor(2) as both:
        theirs, ours = both.map(script.play, (kafka_connect, tidelog))
    return {name: (theirs[name], ours[name]) for name in script.STEPS}
