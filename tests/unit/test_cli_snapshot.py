"""What people see of snapshots and how they ask for them; a stand-in follows signals with the engine's own parts."""

from __future__ import annotations

import io
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_cli import Terminal, progress, write
from tidelog.cli import asking, display
from tidelog.cli.main import main
from tidelog.core.signals import Execute, Pause, Signal, Stop, matching
from tidelog.core.snapshot import requests
from tidelog.core.snapshot.plan import end
from tidelog.core.snapshot.requests import Wanted
from tidelog.core.snapshot.settings import SnapshotSettings
from tidelog.core.snapshot.state import INCREMENTAL, INITIAL, SIGNAL, Chunk, Entry, News, Snapshot
from tidelog.engine.home import Home
from tidelog.engine.notices import Notices
from tidelog.engine.signals import Channels
from tidelog.engine.snapshots import NO_TABLE
from tidelog.engine.watching import Ended, Told, Walk, Walks, walks
from tidelog.model.offset import Offset
from tidelog.spark.progress import Progress

Follow = Callable[[Snapshot, Signal], Snapshot]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "state"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    assert tmp_path
    return Home.open("shop")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path)


def left(home: Home) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(home.signals.glob("*.json"))]


def commit(home: Home, offset: Offset) -> None:
    """A checkpoint of one batch, as Spark writes it."""
    for folder in ("commits", "offsets"):
        (home.checkpoint / folder).mkdir(parents=True)
    (home.checkpoint / "metadata").write_text('{"id": "q"}')
    (home.checkpoint / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps(offset.to_json())}")
    (home.checkpoint / "commits/0").write_text("v1\n{}")


def tell(home: Home, snapshot: Snapshot) -> None:
    Notices(SnapshotSettings(), home, "shop").tell(snapshot)


@contextmanager
def running(home: Home, follow: Follow, start: Snapshot | None = None) -> Iterator[None]:
    """A run that follows signals, one commit for each state."""
    over = threading.Event()
    channels, notices = Channels(SnapshotSettings(), home.signals), Notices(SnapshotSettings(), home, "shop")

    def work() -> None:
        snapshot = start or Snapshot()
        while not over.wait(0.02):
            snapshot = snapshot.settled()
            for signal in channels.waiting():
                if not requests.handled(snapshot, signal.id):
                    snapshot = follow(requests.handle(snapshot, signal.id), signal)
            notices.tell(snapshot)
            channels.settle(snapshot.handled)
            if snapshot.entries and not snapshot.paused and follow is executed:
                snapshot = end(snapshot.settled(), snapshot.entries[0], "SUCCEEDED")
                notices.tell(snapshot)

    thread = threading.Thread(target=work)
    with home.lock():
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def asked(snapshot: Snapshot, signal: Signal) -> Snapshot:
    assert isinstance(signal, Execute)
    found = [Wanted(name) for name in signal.collections if name.startswith("public.")]
    return requests.ask(snapshot, signal.id, found, signal.kind)


def executed(snapshot: Snapshot, signal: Signal) -> Snapshot:
    """Asked, and then done by and by."""
    return asked(snapshot, signal)


def stopped(snapshot: Snapshot, signal: Signal) -> Snapshot:
    return requests.stop(asked(snapshot, signal), None)


def entry(table: str = "public.orders", rows: int = 500, estimate: int = 2000) -> Entry:
    return Entry("ask", table, INCREMENTAL, rows=rows, estimate=estimate)


# -- asking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["shop", "file"])
def test_a_snapshot_is_asked_for(by: str, home: Home, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    subject = file if by == "file" else "shop"
    more = ["--where", "total > 100", "--surrogate-key", "ref", "--blocking", "--id", "mine"]
    assert main(["snapshot", subject, "public.orders", r"crm\..*", *more]) == 0
    (signal,) = left(home)
    condition = "total > 100"
    assert signal == {
        "id": "mine",
        "type": "execute-snapshot",
        "data": {
            "type": "blocking",
            "data-collections": ["public.orders", r"crm\..*"],
            "additional-conditions": [
                {"data-collection": "public.orders", "filter": condition},
                {"data-collection": r"crm\..*", "filter": condition},
            ],
            "surrogate-key": "ref",
        },
    }
    assert capsys.readouterr().out == (
        "shop: asked for a snapshot of public.orders, crm\\..* (id mine)\n"
        "shop: no run is alive, so the next one follows\n"
    )


def test_a_file_may_be_asked_before_its_first_run(file: str) -> None:
    assert main(["snapshot", file, "public.orders"]) == 0
    assert left(Home.at("shop"))[0]["data"] == {"type": "incremental", "data-collections": ["public.orders"]}


@pytest.mark.parametrize("command", ["snapshot", "pause", "resume", "stop"])
def test_an_unknown_name(command: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    tables = ["public.orders"] if command == "snapshot" else []
    assert main([command, "shpo", *tables]) == 2
    told = capsys.readouterr().err
    assert told.startswith("tidelog: There is no pipeline 'shpo': ")
    assert told.endswith("  Did you mean 'shop'?\n")
    assert not left(home)


def test_an_id_is_used_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "shop", "public.orders", "--id", "waits"]) == 0
    commit(home, Offset(1, snapshot={"handled": ["followed"]}))
    for used in ("waits", "followed"):
        assert main(["snapshot", "shop", "public.orders", "--id", used]) == 2
        assert f"The id {used!r} was used before" in capsys.readouterr().err
    assert len(left(home)) == 1


def test_what_cannot_be_understood_is_refused(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "shop", "public.(orders"]) == 2
    assert "'public.(orders' is not a regular expression" in capsys.readouterr().err
    assert main(["pause", write(tmp_path, source="signal.enabled.channels: file")]) == 2
    assert "signal.enabled.channels leaves out in-process" in capsys.readouterr().err
    assert not left(home)


def test_a_run_that_is_alive_follows(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with running(home, asked):
        assert main(["snapshot", "shop", "public.orders", "--id", "a"]) == 0
    assert capsys.readouterr().out.endswith("shop: public.orders waits to be read\n")
    assert not left(home)


def test_who_asks_hears_what_is_read(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """What has begun, what waits its turn, and what nobody knows."""

    def half(snapshot: Snapshot, signal: Signal) -> Snapshot:
        found = requests.miss(
            asked(snapshot, signal), signal.id, ["public.nope"], INCREMENTAL, "no captured table matches"
        )
        first, *others = found.entries
        return replace(found, entries=(replace(first, chunks=(Chunk(0, None, ("9",), 0),), next=1), *others))

    with running(home, half):
        assert main(["snapshot", "shop", "public.orders", "public.items", "public.tags"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "shop: public.nope is not read: no captured table matches",
        "shop: the run reads public.orders; public.items, public.tags wait to be read",
    ]


def test_a_snapshot_asked_for_while_they_are_paused(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with running(home, asked, Snapshot((entry(),), paused=True)):
        assert main(["snapshot", "shop", "public.items"]) == 0
    assert (
        "shop: public.items waits to be read; the snapshots are paused; `tidelog resume shop` continues them\n"
        in capsys.readouterr().out
    )


def test_waiting_for_a_table_that_is_not_captured(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are read, and yet not all was done."""

    def executed_partly(snapshot: Snapshot, signal: Signal) -> Snapshot:
        found = requests.miss(
            asked(snapshot, signal), signal.id, ["public.nope"], INCREMENTAL, "no captured table matches"
        )
        return end(found, found.entries[0], "SUCCEEDED")

    with running(home, executed_partly):
        assert main(["snapshot", "shop", "public.orders", "--wait"]) == 1
    assert (
        "shop: snapshot of public.orders: public.nope was not read: no captured table matches"
        in capsys.readouterr().out
    )


def test_a_table_that_is_not_captured(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing(snapshot: Snapshot, signal: Signal) -> Snapshot:
        return requests.skip(snapshot, signal.id, ["orders"], INCREMENTAL, NO_TABLE)

    with running(home, nothing):
        assert main(["snapshot", "shop", "orders"]) == 2
    assert "No captured table matches orders." in capsys.readouterr().err


def test_a_snapshot_that_is_refused_says_why(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(snapshot: Snapshot, signal: Signal) -> Snapshot:
        return requests.skip(snapshot, signal.id, ["public.late"], INCREMENTAL, "its changes are not in the log yet")

    with running(home, refused):
        assert main(["snapshot", "shop", "public.late", "--wait"]) == 2
    assert "was not taken: its changes are not in the log yet: public.late." in capsys.readouterr().err


def test_a_run_that_is_busy(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)
    with home.lock():
        assert main(["snapshot", "shop", "public.orders"]) == 0
    assert "follows after its current batch" in capsys.readouterr().out


def test_waiting_until_it_is_done(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with running(home, executed):
        assert main(["snapshot", "shop", "public.orders", "public.items", "--wait"]) == 0
    assert "shop: snapshot of 2 tables: 0 rows in " in capsys.readouterr().out


def test_waiting_for_one_that_is_stopped(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with running(home, stopped):
        assert main(["snapshot", "shop", "public.orders", "--wait"]) == 1
    assert "shop: snapshot of public.orders stopped after 0 rows" in capsys.readouterr().out


def test_pause_resume_and_stop(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def follow(snapshot: Snapshot, signal: Signal) -> Snapshot:
        match signal:
            case Pause():
                return requests.pause(snapshot)
            case Stop():
                return requests.stop(snapshot, signal.collections)
            case _:
                return requests.resume(snapshot)

    start = Snapshot((entry("public.orders"), entry("public.items")))
    tell(home, start)
    with running(home, follow, start):
        told = [
            (main([*words.split()]), capsys.readouterr().out)
            for words in (
                "pause shop",
                "resume shop",
                "stop shop public.orders",
                "stop shop",
                "stop shop",
                "pause shop",
                "resume shop",
            )
        ]
    assert [code for code, _ in told] == [0] * 7
    assert [text for _, text in told] == [
        "shop: paused with 2 tables left; the stream goes on\n",
        "shop: the snapshots go on\n",
        "shop: stopped the snapshots of public.orders\n",
        "shop: stopped the snapshots of public.items\n",
        "shop: no such snapshot runs, nothing to stop\n",
        "shop: no snapshot runs, nothing to pause\n",
        "shop: no snapshot was paused\n",
    ]


def test_stopping_what_nobody_asked_for(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows of the initial snapshot do not come by themselves any more."""
    tell(home, Snapshot((replace(entry(), kind=INITIAL), entry("public.items"))))
    assert main(["stop", "shop", "public.items"]) == 0
    assert "initial" not in capsys.readouterr().out
    assert main(["stop", "shop"]) == 0
    warning = "rows of the initial snapshot are not read; `tidelog snapshot shop public.orders` reads them\n"
    assert capsys.readouterr().out.endswith(warning)
    tell(home, Snapshot((replace(entry("public.it's $new"), kind=INITIAL),)))
    assert main(["stop", "shop"]) == 0
    printed = capsys.readouterr().out.partition("`")[2].rpartition("`")[0]
    *_, pattern = shlex.split(printed)
    assert matching([pattern], ["public.it's $new", "public.its new"]) == ["public.it's $new"]


def test_pause_without_a_run(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "shop"]) == 0
    assert capsys.readouterr().out == "shop: asked; no run is alive, so the next one follows\n"
    assert left(home)[0]["type"] == "pause-snapshot"


# -- watching --------------------------------------------------------------------------------------------------------


def test_walks_are_what_was_told(home: Home) -> None:
    assert walks(home) == Walks()
    tell(home, Snapshot((entry(),), paused=True))
    found = walks(home)
    assert found == Walks((Walk("ask", "public.orders", INCREMENTAL, 500, 2000, 0, None),), paused=True)
    home.snapshot.write_text("{")
    assert walks(home) == Walks()


def test_what_somebody_should_know(home: Home) -> None:
    """Of what came since one looks: bounded, and none of it an end."""
    first = News("MALFORMED", "old", SIGNAL, reason="it has no id")
    tell(home, Snapshot(news=(first,)))
    told = Told(home)
    news = [
        News("MALFORMED", "m", SIGNAL, reason="it has no message"),
        News("TABLE_SCAN_COMPLETED", "a", INCREMENTAL, "s.t", status="SKIPPED", reason="no captured table matches"),
        News("TABLE_SCAN_COMPLETED", "initial", INITIAL, "s.u", status="STOPPED", reason="rows were not read"),
        News("TABLE_SCAN_COMPLETED", "initial", INITIAL, "s.w", status="STOPPED", reason="rows were not read"),
        News("TABLE_SCAN_COMPLETED", "initial", INITIAL, "s.a (old)", status="STOPPED", reason="rows were not read"),
        News("TABLE_SCAN_COMPLETED", "a", INCREMENTAL, "s.v", status="STOPPED"),
    ]
    tell(home, Snapshot(news=tuple(news)))
    assert told.new() == []
    assert list(told.remarks) == [
        "The signal 'm' was skipped: it has no message",
        "The signal 'a': no captured table matches: s.t",
        "s.u, s.w, s.a (old): rows were not read; `tidelog snapshot shop s.u s.w 's\\.a\\ \\(old\\)'` reads them",
    ]
    tell(home, Snapshot(news=tuple(News("MALFORMED", str(n), SIGNAL, reason="no") for n in range(50))))
    told.new()
    assert len(told.remarks) == 20


def test_the_end_of_a_file_that_gave_way_is_read(home: Home) -> None:
    told = Told(home)
    tell(home, Snapshot(news=(News("STARTED", "a", INCREMENTAL, "t"),)))
    assert told.new() == []
    tell(home, Snapshot(news=(News("COMPLETED", "a", INCREMENTAL, "t"),)))
    home.notifications.replace(home.notifications.with_suffix(".old.jsonl"))
    tell(home, Snapshot(news=(News("COMPLETED", "b", INCREMENTAL, "t"),)))
    assert [ended.id for ended in told.new()] == ["a", "b"]


def test_each_end_is_new_once(home: Home) -> None:
    told = Told(home)
    news = [
        News("STARTED", "a", INCREMENTAL, "t", ("t", "u")),
        News("TABLE_SCAN_COMPLETED", "a", INCREMENTAL, "t", status="SUCCEEDED", rows=7),
        News("TABLE_SCAN_COMPLETED", "a", INCREMENTAL, "u", status="SQL_EXCEPTION", reason="no right"),
        News("COMPLETED", "a", INCREMENTAL, "u"),
    ]
    tell(home, Snapshot(news=tuple(news[:2])))
    assert told.new() == []
    tell(home, Snapshot(news=tuple(news[2:])))
    tell(home, Snapshot(news=tuple(news[2:])))  # a restart tells the last batch again
    (ended,) = told.new()
    assert (ended.rows, ended.failures, ended.good) == (7, {"u": "no right"}, False)
    assert ended.ms is not None
    assert Told(home).new() == []


def test_a_file_that_was_torn_or_replaced_is_read_on(home: Home) -> None:
    told = Told(home)
    with home.notifications.open("a") as file:
        file.write('{"id": "torn\n{"id": "half')
    assert told.new() == []
    home.notifications.replace(home.notifications.with_suffix(".old.jsonl"))
    tell(home, Snapshot(news=(News("SKIPPED", "b", INCREMENTAL),)))
    assert [(e.id, e.how, e.good) for e in told.new()] == [("b", "SKIPPED", False)]


def test_status_shows_snapshots(home: Home, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(home, Snapshot((entry(), entry("public.items", 0, 0))))
    assert main(["status", file]) == 0
    out = capsys.readouterr().out
    assert "  snapshot  public.orders: 25% · 500 of ~2,000 rows · goes on with the next run\n" in out
    assert "  waiting   public.items\n" in out
    with home.lock():
        assert main(["status", file, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["snapshots"]["tables"][0]["rows"] == 500
        assert main(["status", file]) == 0
        assert "500 of ~2,000 rows · 0/s\n" in capsys.readouterr().out


# -- the display -----------------------------------------------------------------------------------------------------


def walk(table: str, rows: int, estimate: int, rate: int = 0, seconds_left: int | None = None) -> Walk:
    return Walk("a", table, INCREMENTAL, rows, estimate, rate, seconds_left)


def screen(written: str) -> list[str]:
    """What a terminal shows after all this."""
    lines, row = [""], 0
    for part in written.replace("\x1b[", "\0\x1b[").replace("\r", "\0\r").replace("\n", "\0\n\0").split("\0"):
        if part.startswith("\x1b[1A"):
            row -= 1
        elif part.startswith("\x1b[2K"):
            lines[row] = part.removeprefix("\x1b[2K")
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] += part.lstrip("\r")
    return [line for line in lines if line]


def test_a_bar_for_each_table() -> None:
    tables = (walk("public.orders", 500, 2000, 250, 6), walk("a.b", 10, 10, 5, 0), walk("c.d", 0, 0), walk("e.f", 0, 0))
    assert display.walk_lines(Walks(tables)) == [
        "  public.orders ██░░░░░░░░  25% · 500 of ~2,000 rows · 250/s · 6 s left",
        "  a.b           █████████░  99% · 10 rows · 5/s",
        "  2 tables wait to be read",
    ]
    assert display.walk_lines(Walks(tables[:1], paused=True))[0].endswith("500 of ~2,000 rows · paused")
    assert len(display.walk_lines(Walks(tuple(walk(f"s.t{n}", 1, 2) for n in range(300))))) == display.BARS_MAX + 1
    assert display.walk_lines(Walks()) == []
    unknown = replace(walk("a.b", 500, 0, 250), emitted=2)
    assert display.walk_lines(Walks((unknown,))) == ["  a.b ░░░░░░░░░░    ? · 500 rows · 250/s"]


def test_the_guide_shows_what_is_shown() -> None:
    page = (Path(__file__).parents[2] / "docs/guide/snapshots.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    tables = (walk("public.orders", 1080, 1800, 540, 2), walk("s.t", 0, 0), walk("s.u", 0, 0))
    numbers = {"events_total": 5318, "events_per_s": 1063.0, "lag_ms": 180, "lag_bytes": 12288}
    now = progress(**numbers, batch_id=9, batch_events=1021, batch_ms=410)
    assert shown.splitlines() == [*display.walk_lines(Walks(tables)), f"shop: {display.progress_text(now)}"]


def test_bars_are_drawn_over_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "5")
    out = Terminal()
    line = display.Line("shop", out)
    line.show("one", ["bar a", "bar b"])
    line.show("two", ["bar a", "bar b", "x" * 100])
    assert screen(out.getvalue()) == ["bar a", "bar b", "x" * 59, "shop: two"]
    line.say("snapshot done")
    line.warn(["careful"])
    line.show("three", ["bar b"])
    assert screen(out.getvalue())[0] == "shop: snapshot done"
    assert screen(out.getvalue())[-2:] == ["bar b", "shop: three"]
    line.show("four", [f"bar {n}" for n in range(9)])  # more than the terminal is high
    assert screen(out.getvalue())[-4:] == ["bar 6", "bar 7", "bar 8", "shop: four"]
    line.end("done")
    assert screen(out.getvalue())[-1] == "shop: done"
    assert not any("bar" in text for text in screen(out.getvalue()))


def test_elsewhere_they_are_written() -> None:
    out = io.StringIO()
    line = display.Line("shop", out)
    line.show("one", ["bar a"])
    line.show("too soon", ["bar a"])
    line.say("snapshot done")
    assert out.getvalue() == "bar a\nshop: one\nshop: snapshot done\n"


def test_each_snapshot_that_ended_is_told_once() -> None:
    out = io.StringIO()
    board = display.Board(display.Line("shop", out))
    ended = (Ended("initial", "COMPLETED", {"a": 1000, "b": 2000}, ms=4000),)
    for known in ((), ended, ended):
        board.show(Progress(events_total=1, ended=known))
    assert out.getvalue().count("shop: snapshot of 2 tables: 3,000 rows in 4.0 s\n") == 1


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (Ended("i", "COMPLETED", {"s.t": 5}), "snapshot of s.t: 5 rows"),
        (Ended("i", "ABORTED", {"s.t": 5, "s.u": 1}, ms=90), "snapshot of 2 tables stopped after 6 rows in 90 ms"),
        (Ended("i", "SKIPPED"), "snapshot i was not taken"),
        (Ended("i", "SKIPPED", {}, {"s.t": "no such"}), "snapshot i was not taken: no such: s.t"),
        (Ended("i", "SKIPPED", {}, {"": "nothing there"}), "snapshot i was not taken: nothing there"),
        (
            Ended("i", "COMPLETED", {"s.t": 5}, {"s.t": "no right."}),
            "snapshot of s.t: 5 rows; s.t was not read to its end: no right",
        ),
        (Ended("i", "COMPLETED", {"s.t": 0}, {"s.t": "no right."}, 0), "snapshot of s.t: s.t was not read: no right"),
    ],
)
def test_an_end_in_words(ended: Ended, text: str) -> None:
    assert display.ended_text(ended) == text
