"""Fixtures every test may ask for: servers live for the session, databases for one test."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

from tests import machine, reaper, schedule, startup
from tests.patience import Patience
from tests.proxy import Proxy
from tests.servers import OTHER_DEBIAN_RELEASES, S3, Database, NoServer, OtherDebianPostgres, Postgres, install
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
_ALARM_S = 15.0


def pytest_configure(config: pytest.Config) -> None:
    """No server outlives the tests, and a worker does not outlive pytest's controller, nor that one make."""
    if hasattr(config, "workerinput"):
        reaper.guard([os.getppid()])
    else:
        make = os.environ.pop(reaper.MAKE, None)
        startup.share(reaper.guard([int(make)] if make else []))
    startup.speed_up_java(tempfile.gettempdir())


def pytest_xdist_auto_num_workers() -> int:
    return machine.worker_count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that all workers end together."""
    items.sort(key=lambda item: -schedule.seconds(item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """A test's limit is counted in the time of a quiet machine."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    patience = Patience(settings.timeout)

    def ring(*_: object) -> None:
        __tracebackhide__ = True
        if patience.is_over():
            pytest_timeout.timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, _ALARM_S)
    return True


def serve(version: int) -> Iterator[Postgres]:
    try:
        if version == 15:
            install(version)
        with startup.one_at_a_time():
            kind = OtherDebianPostgres if version in OTHER_DEBIAN_RELEASES else Postgres
            server = kind.start(version)
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


@pytest.fixture(scope="session")
def postgres17() -> Iterator[Postgres]:
    """For long campaigns only: it is fetched from another Debian release."""
    yield from serve(17)


@pytest.fixture(scope="session")
def postgres13() -> Iterator[Postgres]:
    """For long campaigns only: it is fetched from another Debian release."""
    yield from serve(13)


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
def database17(postgres17: Postgres) -> Iterator[Database]:
    yield from fresh(postgres17)


@pytest.fixture
def database13(postgres13: Postgres) -> Iterator[Database]:
    yield from fresh(postgres13)


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
    with startup.one_at_a_time():
        broker = KafkaBroker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with startup.one_at_a_time():
        session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
