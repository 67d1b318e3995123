"""`tidelog offsets`, on the store of this machine: what it prints, what it asks, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.main import main
from tidelog.engine.home import Home
from tidelog.model.control import Committed
from tidelog.stores import open_store

HERE = {"server": "shop"}
OFFSET = {"lsn": 23876608, "lsn_proc": 23876608, "lsn_commit": 23876608, "txId": 560, "ts_usec": 1600733377000000}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Its database is nowhere, so an edit is judged by the offsets alone."""
    path = tmp_path / "shop.yaml"
    source = (
        "connector: postgres, database.user: u, database.dbname: shop, database.hostname: 127.0.0.1, database.port: 1"
    )
    path.write_text(f"name: shop\nsource: {{{source}}}\nsink: {{type: delta, path: ./lake}}\n")
    return str(path)


@pytest.fixture
def committed() -> None:
    open_store(None).mirror("shop", HERE, Committed("q", 4, {**OFFSET, "tidelog_version": 1}, 1))


def offset() -> dict[str, Any] | None:
    (kept,) = open_store(None).offsets("shop")
    return dict(kept.offset) if kept.offset is not None else None


def test_nothing_yet(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "get", file]) == 0
    assert capsys.readouterr().out == "shop: no offset yet; the next start is a first one\n"
    assert main(["offsets", "history", "shop"]) == 0
    assert "never changed" in capsys.readouterr().out


@pytest.mark.usefixtures("committed")
def test_get(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "get", file]) == 0
    text = capsys.readouterr().out
    assert "LSN 0/16C5400" in text
    assert "lsn                      23876608" in text
    assert "tidelog_" not in text
    assert main(["offsets", "get", "shop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"offsets": [{"partition": HERE, "offset": OFFSET}]}


@pytest.mark.usefixtures("committed")
def test_set_tells_what_it_does_and_who_did_it(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One name of the place is enough: the others follow, and the transaction there is another one."""
    assert main(["offsets", "set", file, "lsn=23876000", "--yes", "--why", "once more"]) == 0
    text = capsys.readouterr().out
    assert "23876608 -> 23876000" in text
    assert "It lies before the present offset" in text
    assert "The source could not be asked" in text
    assert offset() == {"lsn": 23876000, "lsn_proc": 23876000, "lsn_commit": 23876000}
    assert main(["offsets", "history", "shop"]) == 0
    assert "once more" in capsys.readouterr().out


@pytest.mark.usefixtures("committed")
def test_nobody_to_ask_changes_nothing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["set", file, "lsn=1"], ["delete", file], ["undo", file]):
        assert main(["offsets", *command]) == 2
        assert "--yes" in capsys.readouterr().err
    assert offset() == {**OFFSET, "tidelog_version": 1}


@pytest.mark.usefixtures("committed")
def test_a_typo(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "set", file, "lns=5", "--yes"]) == 2
    assert "Did you mean 'lsn'?" in capsys.readouterr().err
    assert main(["offsets", "set", file, "lsn=0/16C5400", "--yes"]) == 2
    assert "23876608" in capsys.readouterr().err


@pytest.mark.usefixtures("committed")
def test_refused_while_it_runs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Home.open("shop").lock("run"):
        assert main(["offsets", "get", file]) == 0
        assert main(["offsets", "delete", file, "--yes"]) == 2
    assert "it is RUNNING" in capsys.readouterr().err


@pytest.mark.usefixtures("committed")
def test_delete_and_undo(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "delete", file, "--yes"]) == 0
    assert offset() is None
    assert main(["offsets", "undo", "shop", "--yes"]) == 0
    assert offset() == {**OFFSET, "tidelog_version": 1}
    assert main(["offsets", "undo", "shop", "--yes"]) == 2
    assert "nothing to undo" in capsys.readouterr().err


@pytest.mark.usefixtures("committed")
def test_export_and_import(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offsets", "export", "shop"]) == 0
    text = capsys.readouterr().out
    exported = tmp_path / "offsets.json"
    exported.write_text(text)
    assert main(["offsets", "delete", file, "--yes"]) == 0
    assert main(["offsets", "import", file, str(exported), "--yes"]) == 0
    assert offset() == OFFSET
    exported.write_text(text.replace('"shop"', '"other"'))
    assert main(["offsets", "import", file, str(exported), "--yes"]) == 2
    assert "no such partition" in capsys.readouterr().err
    assert main(["offsets", "import", file, "missing.json", "--yes"]) == 2
    assert "cannot be read" in capsys.readouterr().err
