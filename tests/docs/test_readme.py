"""What the README shows is true: its Python runs as it stands, its YAML loads, its commands exist."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from tests import patience
from tests.servers import Database, Postgres
from tests.spark_session import prepare_environment
from tidelog.cli.main import parser

REPO = Path(__file__).parents[2]
README = (REPO / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


PIPELINE, NOTEBOOK = blocks("python")
(DEFINITION,) = blocks("yaml")


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Database]:
    """On PostgreSQL 18, or on the server whose fixture a test names as its parameter."""
    server: Postgres = request.getfixturevalue(getattr(request, "param", "postgres"))
    database = server.create_database("shop")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10, 2))")
    database.execute("INSERT INTO orders VALUES (1, 9.99), (2, 5)")
    yield database
    database.drop()


def settings(database: Database) -> dict[str, str]:
    return {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
    }


def environment(database: Database) -> dict[str, str]:
    prepare_environment()
    login = {"PGPORT": str(database.port), "PGUSER": database.user, "PGPASSWORD": database.password}
    return {**os.environ, **login, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run(
    command: list[str], folder: Path, database: Database, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return patience.run(command, cwd=folder, env=env or environment(database))


EACH_SERVER = [
    pytest.param("postgres", id="18"),
    *(pytest.param(f"postgres{version}", id=str(version), marks=pytest.mark.long) for version in (17, 16, 15, 13)),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shop", EACH_SERVER, indirect=True)
def test_the_pipeline_in_python_and_the_commands(shop: Database, tmp_path: Path) -> None:
    done = run([sys.executable, "-c", PIPELINE], tmp_path, shop)
    assert done.returncode == 0, done.stderr
    assert "events_total=2" in done.stdout
    assert DeltaTable(str(tmp_path / "lake/public/orders")).to_pyarrow_table().num_rows == 2
    (tmp_path / "shop.yaml").write_text(DEFINITION)
    shop.execute("UPDATE orders SET total = 7 WHERE id = 2")
    for command in ("check", "run", "status", "verify"):
        once = ["--once"] if command == "run" else []
        done = run(["tidelog", command, "shop.yaml", *once], tmp_path, shop)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert shop.password not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "in sync: 1 table, 2 rows, 0 differences"


def not_activated(database: Database) -> dict[str, str]:
    """The environment of a notebook: its Python is known by its path only, and `python3` is another one."""
    names = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")
    kept = {name: text for name, text in environment(database).items() if name not in names}
    return kept | {"PATH": f"{sys.base_prefix}/bin{os.pathsep}/usr/bin{os.pathsep}/bin"}


def notebook() -> str:
    """The plain source with the settings that the README recommends, and a last line that counts."""
    (builder,) = re.findall(r"`(SparkSession\.builder\.config\(.*?\))`", README)
    script = NOTEBOOK.replace("SparkSession.builder", builder)
    script = script.replace("changes.writeStream", "query = changes.writeStream").replace(".awaitTermination()", "")
    script += "\nassert tidelog.CHECKPOINTS.items() <= dict(spark.sparkContext.getConf().getAll()).items()"
    return script + "\nquery.awaitTermination()\nprint(sum(p['numInputRows'] for p in query.recentProgress), 'rows')"


def test_the_plain_source_from_a_virtual_environment_that_is_not_activated(shop: Database, tmp_path: Path) -> None:
    done = run([sys.executable, "-c", notebook()], tmp_path, shop, not_activated(shop))
    assert done.returncode == 0, done.stderr
    assert "2 rows" in done.stdout


def test_yaml_and_python_say_the_same() -> None:
    written = yaml.safe_load(DEFINITION)
    assert written["sink"] == {"type": "delta", "path": "./lake"}
    for name, value in written["source"].items():
        assert f'"{name}"' in PIPELINE
        assert str(value).replace("\\", "") in PIPELINE.replace("\\", "")


def test_every_target_it_names_exists() -> None:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_file_it_links_exists() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (REPO / link).exists(), link


@pytest.mark.parametrize("line", re.findall(r"^\$ (tidelog .*?)(?: {2,}#.*)?$", README, flags=re.MULTILINE))
def test_every_command_is_one(line: str) -> None:
    """The service's are run for real in `integration/server`."""
    arguments = parser().parse_args(line.split()[1:])
    assert callable(arguments.command)


def test_the_service_and_its_commands(tmp_path: Path, shop: Database) -> None:
    (tmp_path / "shop.yaml").write_text(DEFINITION)
    with started(tmp_path) as url:
        done = run(
            ["tidelog", "connectors", "create", "shop.yaml", "--state", "STOPPED", "--server", url], tmp_path, shop
        )
        assert done.returncode == 0, done.stderr
        done = run(["tidelog", "offsets", "get", "shop", "--server", url], tmp_path, shop)
        assert done.returncode == 0, done.stderr
        assert "no offset yet" in done.stdout


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """`tidelog server`, on a port that is free."""
    command = [str(Path(sys.executable).parent / "tidelog"), "server", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield found[0]
        process.terminate()
        assert patience.wait_for_exit(process) == 128 + signal.SIGTERM
