"""Fixtures every test may ask for: servers live for the session, databases for one test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.proxy import Proxy
from tests.servers import S3, Database, NoServer, Postgres, install
from tests.servers_kafka import KafkaBroker
from tests.servers_kafka import install as install_kafka
from tests.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about the machine than about us. The same examples every time: new ones are for
# the long campaigns, where somebody looks at what they find.
settings.register_profile("anew", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("anew"), derandomize=True)
settings.load_profile("same")

_numbers = itertools.count(1)
_SLOW = ("spark", "browser", "conformance", "server", "docs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, so that all workers end together."""
    items.sort(key=lambda item: not set(_SLOW) & set(item.path.parts))


def serve(version: int) -> Iterator[Postgres]:
    try:
        if version == 15:
            install(version)
        server = Postgres.start(version)
    except NoServer as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


def fresh(server: Postgres) -> Iterator[Database]:
    database = server.create_database(f"test_{next(_numbers)}")
    yield database
    database.drop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL 18. Shared by all tests: who restarts or cuts it takes `private_postgres`."""
    yield from serve(18)


@pytest.fixture(scope="session")
def postgres16() -> Iterator[Postgres]:
    yield from serve(16)


@pytest.fixture(scope="session")
def postgres15() -> Iterator[Postgres]:
    yield from serve(15)


@pytest.fixture
def private_postgres() -> Iterator[Postgres]:
    """PostgreSQL 18 for one test, to be restarted, crashed and misconfigured at will."""
    yield from serve(18)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """A fresh database on PostgreSQL 18; its slots and publications go with it."""
    yield from fresh(postgres)


@pytest.fixture
def database16(postgres16: Postgres) -> Iterator[Database]:
    yield from fresh(postgres16)


@pytest.fixture
def database15(postgres15: Postgres) -> Iterator[Database]:
    yield from fresh(postgres15)


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    """A misbehaving way to `postgres`."""
    with Proxy(postgres.host, postgres.port) as between:
        yield between


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = S3.start()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """An S3 with one empty bucket."""
    s3_server.reset()
    return s3_server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker. Shared by all tests: give topics names of your own."""
    try:
        install_kafka()
    except NoServer as reason:
        pytest.skip(str(reason))
    broker = KafkaBroker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
