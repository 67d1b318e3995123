"""The rules of offsets, on a real store: who may change what, what is told before, and what can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.engine.control import Control, Subject, alone
from tidelog.engine.home import Home
from tidelog.errors import ConfigError, Conflict, NotFound, Refused
from tidelog.model.control import PAUSED, RUNNING, STOPPED, Change, Committed
from tidelog.stores import open_store

MYSQL = {"file": "mysql-bin.000003", "pos": 154}


def body(offset: dict[str, Any] | None, **partition: str) -> dict[str, Any]:
    return {"offsets": [{"partition": partition or {"server": "s1"}, "offset": offset}]}


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """Of a connector whose source is nowhere: its offsets can be handled all the same."""
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    store = open_store(None)
    yield Control(store, lambda name: Subject(name, "sqlserver" if name == "many" else "mysql"))
    store.close()


def change(control: Control, offset: dict[str, Any] | None, **more: Any) -> Change:
    (made,) = control.alter("shop", body(offset), who="me", **more)
    return made


def offset_of(control: Control) -> dict[str, Any] | None:
    found = control.offsets("shop")
    return found[0]["offset"] if found else None


def test_a_change_stands_at_once_and_is_remembered(control: Control) -> None:
    assert control.offsets("shop") == []
    change(control, MYSQL, why="moved here")
    assert offset_of(control) == MYSQL
    change(control, {**MYSQL, "pos": 500})
    newest, oldest = control.history("shop")
    assert (oldest.before, oldest.after, oldest.who, oldest.why) == (None, MYSQL, "me", "moved here")
    assert newest.before == MYSQL
    assert control.kept("shop")[0].pending


@pytest.mark.parametrize("state", [RUNNING, PAUSED, "FAILED", "UNASSIGNED"])
def test_only_what_is_stopped_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    control = Control(open_store(None), lambda name: Subject(name, "mysql", state=state))
    for edit in (
        lambda: control.alter("shop", body(MYSQL), who="me"),
        lambda: control.delete("shop", who="me"),
        lambda: control.undo("shop", who="me"),
    ):
        with pytest.raises(Refused, match=f"STOPPED; it is {state}"):
            edit()
    assert control.offsets("shop") == []
    assert control.preview("shop", body(MYSQL)).possible


def test_a_pipeline_on_its_own_runs_while_somebody_holds_its_name(control: Control) -> None:
    assert alone("shop").state == STOPPED
    with Home.open("shop").lock("run"):
        assert alone("shop").state == RUNNING
        with pytest.raises(Refused, match="RUNNING"):
            change(control, MYSQL)


def test_nobody_starts_while_a_change_is_written(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []
    write = control._store.change

    def watched(new: Change, *, expected: int) -> Change:
        seen.append(Home.at("shop").holder("run"))
        return write(new, expected=expected)

    monkeypatch.setattr(control._store, "change", watched)
    change(control, MYSQL)
    assert seen[0] is not None
    assert Home.at("shop").holder("run") is None


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([], "object"),
        ({}, "offsets"),
        ({"offsets": []}, "empty"),
        ({"offset": []}, "'offsets'"),
        (body({**MYSQL, "poss": 1}), "'pos'"),
        (body({**MYSQL, "pos": "154"}), "without quotes"),
        (body({**MYSQL, "pos": -1}), "negative"),
        (body(MYSQL, sever="x"), "server"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(control: Control, wrong: Any, told: str) -> None:
    assert not control.preview("shop", wrong).possible
    with pytest.raises(ConfigError, match=told):
        control.alter("shop", wrong, who="me")
    assert control.offsets("shop") == []
    assert control.history("shop") == []


def test_what_it_does_is_told_before(control: Control) -> None:
    def direction(offset: dict[str, Any] | None) -> str:
        return control.preview("shop", body(offset)).parts[0].direction

    control._store.mirror("shop", {"server": "s1"}, Committed("q", 1, MYSQL, 1))
    assert direction(MYSQL) == "same"
    assert direction({**MYSQL, "pos": 4}) == "rewind"
    assert direction({**MYSQL, "file": "mysql-bin.000004", "pos": 4}) == "skip"
    assert direction(None) == "anew"
    assert "first" in control.preview("shop", body(None)).parts[0].consequence


def test_edits_that_wait_have_moved_nothing(control: Control) -> None:
    """The consequence counts from what was delivered."""
    control._store.mirror("shop", {"server": "s1"}, Committed("q", 1, MYSQL, 1))
    change(control, {**MYSQL, "pos": 900})
    change(control, {**MYSQL, "pos": 800})
    part = control.preview("shop", body(MYSQL)).parts[0]
    assert (part.before, part.direction) == ({**MYSQL, "pos": 800}, "same")


def test_undo_brings_back_what_stood(control: Control) -> None:
    with pytest.raises(NotFound):
        control.undo("shop", who="me")
    change(control, MYSQL)
    change(control, {**MYSQL, "pos": 500})
    control.undo("shop", who="you", why="too far")
    assert offset_of(control) == MYSQL
    control.undo("shop", who="you")
    assert offset_of(control) is None
    with pytest.raises(NotFound):
        control.undo("shop", who="you")
    assert [c.action for c in control.history("shop")] == ["undo", "undo", "set", "set"]


def test_undo_of_a_delete_of_all_partitions(control: Control) -> None:
    """One edit, several partitions: it is taken back as one."""
    lsn = {"commit_lsn": "0000002a:00000170:0001", "change_lsn": "0000002a:00000168:0002", "event_serial_no": 1}
    both = {"offsets": [{"partition": {"server": "s", "database": d}, "offset": lsn} for d in ("a", "b")]}
    control.alter("many", both, who="me")
    control.delete("many", who="me")
    assert control.offsets("many") == []
    assert len(control.undo("many", who="me")) == 2
    assert len(control.offsets("many")) == 2


def test_delete_of_nothing(control: Control) -> None:
    assert control.delete("shop", who="me") == []


def test_one_partition_is_removed(control: Control) -> None:
    change(control, MYSQL)
    change(control, None)
    assert control.offsets("shop") == []


def test_export_and_import(control: Control, tmp_path: Path) -> None:
    change(control, MYSQL)
    exported = control.export("shop")
    other = Control(open_store(str(tmp_path / "other.sqlite")), lambda name: Subject(name, "mysql"))
    other.load("shop", exported, who="me", why="moved")
    assert other.export("shop") == exported
    assert other.history("shop")[0].action == "import"


def test_the_keys_of_our_own_are_not_shown(control: Control) -> None:
    control._store.mirror("shop", {"server": "s1"}, Committed("q", 1, {**MYSQL, "tidelog_version": 1}, 1))
    assert offset_of(control) == MYSQL


def test_a_name_alone_is_not_enough_to_change(control: Control) -> None:
    with pytest.raises(ConfigError, match="not known here"):
        Control(control._store).alter("shop", body(MYSQL), who="me")


def test_two_at_once(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody on another machine was faster."""
    change(control, MYSQL)
    stale = control.kept("shop")
    change(control, {**MYSQL, "pos": 200})
    monkeypatch.setattr(control, "kept", lambda _: stale)
    with pytest.raises(Conflict):
        change(control, {**MYSQL, "pos": 300})
