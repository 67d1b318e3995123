"""Schemathesis against the OpenAPI: whatever is sent, no answer is a 500, and none comes that is not described.

One half of the time the names are made up; in the other half they are those of connectors that exist.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server.conftest import MYSQL, MYSQL_OFFSETS, PASSWORD
from tests.integration.server.process import ServerProcess

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "unsupported_method,allow_header_conformance"
)
KNOWN = """\
[parameters]
"path.name" = "erp"
"path.plugin" = "mysql"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path)
    body = {"name": "erp", "config": MYSQL, "initial_state": "STOPPED"}
    assert process.ask("POST", "/connectors", body).status_code == 201
    assert process.ask("PATCH", "/connectors/erp/offsets", MYSQL_OFFSETS).status_code == 200
    yield process
    process.kill()


def run(server: ServerProcess, folder: Path, seconds: int, config: str, seed: int | None) -> None:
    (folder / "schemathesis.toml").write_text(config)
    program = str(Path(sys.executable).parent / "schemathesis")
    words = [program, "--no-color", "run", f"{server.client.base_url}/openapi.json".replace("//openapi", "/openapi")]
    # One worker: Python 3.11 cannot parse sources in several threads, and hypothesis does.
    words += ["--max-time", str(seconds), "--checks", CHECKS, "--workers", "1", "--warnings", "off"]
    words += ["--request-timeout", "120", "--exclude-path", "/events"]
    words += ["--seed", str(seed)] if seed is not None else []
    if config:  # it would be gone at once
        words += ["--exclude-operation-id", "delete_connector_connectors__name__delete"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def both(server: ServerProcess, folder: Path, seconds: int, seed: int | None = None) -> None:
    for config in ("", KNOWN):
        run(server, folder, seconds, config, seed)
    assert server.ask("GET", "/connectors/erp/status").status_code == 200
    log = (server.home / "tidelog.log").read_text() if (server.home / "tidelog.log").exists() else ""
    assert "Traceback" not in log + server.said.read_text()
    assert PASSWORD not in log + server.said.read_text()


@pytest.mark.timeout(900)
def test_a_short_round(server: ServerProcess, tmp_path: Path) -> None:
    both(server, tmp_path, 15, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_five_minutes(server: ServerProcess, tmp_path: Path) -> None:
    both(server, tmp_path, 150)
