"""The guide's cluster: its definition, its master and workers, its commands; and what executors may lack."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patience
from tests.servers import Database, Postgres, await_readers
from tests.spark.standalone import Cluster, standalone

GUIDE = (Path(__file__).parents[2] / "docs/guide/cluster.md").read_text(encoding="utf-8")
ROWS = 4000


def commands(title: str) -> list[str]:
    """The lines of a block that the guide marks as run here."""
    (block,) = re.findall(rf"<!-- run: {title} -->\n```console\n(.*?)```", GUIDE, re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    master, worker = commands("cluster")
    with standalone(tmp_path_factory.mktemp("cluster"), master, worker) as running:
        yield running


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Database]:
    database = postgres.create_database("shop")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    database.execute(f"INSERT INTO orders SELECT i, 'item ' || i FROM generate_series(1, {ROWS}) i")
    yield database
    await_readers(database)
    database.drop()


def run(command: str, cluster: Cluster, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**cluster.environment, "TIDELOG_HOME": str(folder / "home"), **more}
    return patience.run(["bash", "-c", command], env=environment, cwd=folder)


@pytest.mark.timeout(1500)
def test_the_commands_of_the_guide(cluster: Cluster, shop: Database, tmp_path: Path) -> None:
    (definition,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "shop.yaml").write_text(definition.replace("/mnt/shared", str(tmp_path / "shared")))
    login = {"PGHOST": shop.host, "PGPORT": str(shop.port), "PGUSER": shop.user, "PGPASSWORD": shop.password}
    by_run, by_submit, verify = commands("pipeline")

    done = run(by_run, cluster, tmp_path, **login)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ROWS:,} events" in done.stdout
    shop.execute("UPDATE orders SET item = 'changed' WHERE id <= 1000")
    shop.execute("DELETE FROM orders WHERE id > 3000")
    done = run(by_submit, cluster, tmp_path, **login)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,000 events" in done.stdout
    applications = set(re.findall(r"Registered app tidelog\S* ?\S*", (cluster.folder / "master.log").read_text()))
    assert len(applications) == 2, "both ran on the cluster"

    done = run(verify, cluster, tmp_path, **login)
    assert done.stdout.splitlines()[-1] == "in sync: 1 table, 3,000 rows, 0 differences", done.stdout + done.stderr
    assert done.returncode == 0


LOOK = """
import sys
from pathlib import Path
from tidelog.engine.home import Home
from tidelog.errors import ConfigError
from tidelog.journal.files import Files
from tidelog.spark.executors import find_missing, require_executors
from tidelog.spark.session import session

spark = session("look", Home.open("look"), {"spark.master": sys.argv[1], "spark.executor.memory": "512m"})
context = spark.sparkContext

def refusal(places, python=context.pythonExec):
    context.pythonExec = python
    try:
        require_executors(spark, places, lambda: None)
    except ConfigError as exc:
        return exc.message

here = Path("here")
here.mkdir()
print("all is there:", refusal({"journal": Files(str(here.absolute()))}))
print("another folder:", refusal({"stage": Files("here")}))
print("another version:", find_missing(context, {}, version="0.0.1")[0].why)
print("no tidelog:", refusal({}, sys.argv[2]))
print("no Python:", refusal({}, "/opt/nowhere/bin/python"))
print("left behind:", list(here.iterdir()))

hanging = Path("hanging").absolute()
(hanging / "tidelog").mkdir(parents=True)
(hanging / "tidelog/__init__.py").write_text("import time; time.sleep(3600)")
python = hanging / "python"
python.write_text(f"#!/bin/sh\\nPYTHONPATH={hanging} exec {sys.executable} \\"$@\\"\\n")
python.chmod(0o755)
context.pythonExec = str(python)
active = context.statusTracker().getActiveJobsIds

def interrupt():
    if active():
        raise KeyboardInterrupt

try:
    require_executors(spark, {}, interrupt)
except KeyboardInterrupt:
    print("interrupted:", list(active()))
try:
    find_missing(context, {}, no_answer_s=0.1)
except ConfigError as exc:
    print("no answer:", exc.message, list(active()))
spark.stop()
"""


@pytest.mark.timeout(900)
def test_what_executors_lack_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    """Executors work in a folder of their own: a relative path stands for storage that they do not share."""
    bare = Path(sys.executable).resolve()  # the venv was made with it, and it has none of the venv's packages
    done = run(f"{sys.executable} -c {shlex.quote(LOOK)} {cluster.master} {bare}", cluster, tmp_path)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told["all is there"] == "None"
    assert re.match(
        r"The executors on \S+ cannot use the stage at here: a file .* is not there", told["another folder"]
    )
    assert re.match(r"\S+python\S* has version \S+", told["another version"])
    assert re.match(rf"The executors on \S+ lack tidelog .*: {bare} cannot import it", told["no tidelog"])
    assert told["no Python"] == "Python does not run on the executors: there is no /opt/nowhere/bin/python."
    assert told["left behind"] == "[]"
    assert told["interrupted"] == "[]"
    assert told["no answer"] == f"The executors of {cluster.master} have not answered within 0 s. []"
