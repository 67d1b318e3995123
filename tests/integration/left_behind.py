"""A test that starts servers and never ends, for `test_reaper`, which kills it. It is collected only by its name."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from tests.browser.chromium import launched
from tests.integration.server.process import ServerProcess
from tests.servers import S3, Postgres

READY = "LEFT_BEHIND_READY"
"""A file to write when the servers run."""


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> ServerProcess:
    """Everything that the tests start, by the fixtures of the tests."""
    for name in ("kafka", "s3_server"):
        request.getfixturevalue(name)
    spark = request.getfixturevalue("spark")
    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()  # starts Python workers
    return ServerProcess(tmp_path)


def test_everything(servers: ServerProcess, postgres: Postgres) -> None:  # noqa: ARG001
    with launched():
        _stay()


def test_a_server(postgres: Postgres) -> None:  # noqa: ARG001
    S3.start()
    _stay()


def _stay() -> None:
    file = Path(os.environ[READY])
    file.with_suffix(".new").write_text(f"{os.getpid()} {tempfile.gettempdir()}")
    file.with_suffix(".new").rename(file)
    while True:
        time.sleep(60)
