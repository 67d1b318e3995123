"""The README's examples with every supported Python and Spark, installed as a user would: by plain pip, from the wheel.

What these tests run is the table of docs/guide/versions.md. They take minutes each, to build and unpack pyspark.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.docs.test_readme import DEFINITION, PIPELINE, REPO, not_activated, notebook, run, shop
from tests.patience import wall_seconds
from tests.servers import Database
from tidelog.spark.versions import DELTA_PACKAGES, SUPPORTED

__all__ = ["shop"]

PYTHONS = ("3.11", "3.12", "3.13")
SPARKS = {"4.2": "4.2.0", "4.3": "4.3.0"}
UNSUPPORTED = "4.1.2"
PAGE = (REPO / "docs/guide/versions.md").read_text(encoding="utf-8")
DELTA_ON_SPARK = """
import tidelog
from pyspark.sql import SparkSession

session = SparkSession.builder.config("spark.jars.packages", "{package}")
session = session.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
session = session.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = session.getOrCreate()
{example}
"""


def test_the_page_names_every_combination_and_its_test() -> None:
    for python in PYTHONS:
        (row,) = re.findall(rf"^\| {python} \|.*$", PAGE, flags=re.MULTILINE)
        assert row.count("test_the_readme_runs") == len(SPARKS)
    assert tuple(SPARKS) == SUPPORTED
    for package in DELTA_PACKAGES.values():
        assert package in PAGE


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(REPO)]
    subprocess.run(pip, check=True, timeout=wall_seconds(600))
    (built,) = folder.glob("tidelog-*.whl")
    return str(built)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    """A folder for a virtual environment, which takes more than a gigabyte."""
    folder = tmp_path / "venv"
    yield folder
    shutil.rmtree(folder)


def find_python(version: str) -> str:
    """An interpreter on the PATH, or one that pyenv installed."""
    of_pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    for candidate in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        if candidate is not None and is_version(candidate, version):
            return candidate
    pytest.skip(f"Python {version} is not installed")


def is_version(python: str, version: str) -> bool:
    told = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return told.returncode == 0 and told.stdout.startswith(f"Python {version}.")


def install(environment: Path, python: str, *packages: str) -> str:
    if not environment.exists():
        subprocess.run([find_python(python), "-m", "venv", str(environment)], check=True, timeout=wall_seconds())
    own = str(environment / "bin/python")
    subprocess.run([own, "-m", "pip", "install", "--quiet", *packages], check=True, timeout=wall_seconds(1700))
    return own


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_readme_runs(
    python: str, spark: str, wheel: str, environment: Path, shop: Database, tmp_path: Path
) -> None:
    own = install(environment, python, f"{wheel}[postgres,delta]", f"pyspark=={SPARKS[spark]}")
    env = not_activated(shop)
    plain = run([own, "-c", notebook()], tmp_path, shop, env)
    assert plain.returncode == 0, plain.stderr
    assert "2 rows" in plain.stdout
    done = run([own, "-c", PIPELINE], tmp_path, shop, env)
    assert done.returncode == 0, done.stderr
    assert DeltaTable(str(tmp_path / "lake/public/orders")).to_pyarrow_table().num_rows == 2
    (tmp_path / "shop.yaml").write_text(DEFINITION)
    shop.execute("UPDATE orders SET total = 7 WHERE id = 2")
    for command in (["check"], ["run", "--once"], ["status"], ["verify"]):
        done = run([str(environment / "bin/tidelog"), *command, "shop.yaml"], tmp_path, shop, env)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert done.stdout.splitlines()[-1] == "in sync: 1 table, 2 rows, 0 differences"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_another_spark_is_refused_in_one_sentence(
    wheel: str, environment: Path, shop: Database, tmp_path: Path
) -> None:
    install(environment, "3.11", f"{wheel}[postgres,delta]", "pyspark==4.2.0")
    own = install(environment, "3.11", "--no-deps", f"pyspark=={UNSUPPORTED}")
    (tmp_path / "shop.yaml").write_text(DEFINITION)
    done = run([str(environment / "bin/tidelog"), "run", "--once", "shop.yaml"], tmp_path, shop, not_activated(shop))
    assert done.returncode == 2
    assert f"tidelog runs on Spark 4.2 and 4.3, and this is Spark {UNSUPPORTED}." in done.stderr
    plain = run([own, "-c", notebook()], tmp_path, shop, not_activated(shop))
    assert f"ConfigError: tidelog runs on Spark 4.2 and 4.3, and this is Spark {UNSUPPORTED}." in plain.stderr


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spark", SPARKS)
def test_the_readme_runs_with_delta_on_spark(
    spark: str, wheel: str, environment: Path, shop: Database, tmp_path: Path
) -> None:
    """Where Delta has no release for a Spark, it is said before anything is written."""
    own = install(environment, "3.11", f"{wheel}[postgres,delta]", f"pyspark=={SPARKS[spark]}")
    package = DELTA_PACKAGES.get(spark, DELTA_PACKAGES["4.2"])
    example = PIPELINE.replace('"type": "delta",', '"type": "delta", "engine": "spark",').replace("run(", "run(spark, ")
    script = DELTA_ON_SPARK.format(package=package, example=example)
    done = run([own, "-c", script], tmp_path, shop, not_activated(shop))
    if spark in DELTA_PACKAGES:
        assert done.returncode == 0, done.stderr
        assert DeltaTable(str(tmp_path / "lake/public/orders")).to_pyarrow_table().num_rows == 2
    else:
        assert f"is built for Spark 4.2, and this is Spark {SPARKS[spark]}." in done.stderr
        assert not (tmp_path / "lake").exists()
