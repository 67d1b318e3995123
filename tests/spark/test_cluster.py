"""Executors in processes of their own, the journal on S3, and a ledger that gets lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from tests import patience
from tests.servers import S3, Database
from tests.spark.conftest import source_of
from tidelog import connectors


@pytest.mark.timeout(1500)
def test_a_cluster_reads_the_journal_from_s3_also_after_the_ledger_was_lost(
    database: Database, s3: S3, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    file = define(database, tmp_path, {"path": f"s3://{s3.bucket}/{database.dbname}", "retention.bytes": "1gb"})
    connectors.create(
        "postgres", {k: v for k, v in source_of(database).items() if k != "connector"}, pipeline="cluster"
    ).prepare()
    database.execute("INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 30000) i")
    run(file, tmp_path, s3)
    (tmp_path / "home" / "cluster" / "ledger.sqlite").unlink()
    database.execute("UPDATE t SET name = 'new' WHERE id <= 10000")
    database.execute("DELETE FROM t WHERE id > 20000")
    run(file, tmp_path, s3)
    found = DeltaTable(str(tmp_path / "lake/public/t")).to_pyarrow_table()
    assert found.num_rows == 20000
    assert found.column("name").to_pylist().count("new") == 10000


def define(database: Database, folder: Path, journal: dict[str, str]) -> Path:
    file = folder / "cluster.yaml"
    sink = {"type": "delta", "path": str(folder / "lake")}
    file.write_text(
        yaml.safe_dump({"name": "cluster", "source": source_of(database), "sink": sink, "journal": journal})
    )
    return file


def run(file: Path, folder: Path, s3: S3) -> None:
    environment = {**os.environ, **s3.environment, "TIDELOG_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "tests.spark.driver", "--once", "--cluster", str(file)]
    done = patience.run(command, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
