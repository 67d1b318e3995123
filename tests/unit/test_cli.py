"""The command line without servers: helps, errors, exit codes, and what is printed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidelog import __version__, connectors
from tidelog.cli import display, verify
from tidelog.cli.main import COMMANDS, main
from tidelog.contracts import FAILURES, Finding, Lag, Status
from tidelog.core.compare import Comparison, Difference, compare
from tidelog.core.metadata import UNDECODABLE
from tidelog.core.requirements import Obstacle
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.engine.verify import TableReport
from tidelog.errors import ConfigError, TransientError
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection
from tidelog.spark.progress import mark_stopped

MORE = {"snapshot": ["public.t"]}
"""What a command needs besides the pipeline."""
OF_A_PIPELINE = [name for name, command in COMMANDS.items() if not getattr(command, "ALONE", False)]


class Stub:
    """A connector with one table and canned answers."""

    table = Table(1, "public", "t", (Column("id", "int4", nullable=False), Column("v", "text")), ("id",))
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]})
    findings: Sequence[Finding] = ()
    unreachable = False

    def check(self) -> list[Finding]:
        return list(self.findings)

    def lag(self) -> Lag:
        if self.unreachable:
            raise TransientError("PostgreSQL at nowhere:1 says: connection refused.")
        return Lag(1 << 20, 3 << 20, None)

    def tables(self) -> list[Table]:
        return [self.table]

    def selection(self) -> Selection:
        return Selection()

    def bounds(self, _: Table, __: int) -> list[str]:
        return []

    def read_range(self, _: Table, columns: Sequence[str], *__: object) -> Iterator[pa.RecordBatch]:
        yield from self.rows.select(columns).to_batches()

    def close(self) -> None:
        pass


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    found = Stub()
    monkeypatch.setattr(connectors, "create", lambda *_, **__: found)
    return found


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path)


def write(folder: Path, source: str = "", sink: str = "type: delta, path: ./lake", more: str = "") -> str:
    path = folder / "shop.yaml"
    settings = "connector: postgres, database.user: u, database.dbname: shop" + (f", {source}" if source else "")
    path.write_text(f"name: shop\nsource: {{{settings}}}\nsink: {{{sink}}}\n{more}")
    return str(path)


def error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err


# -- helps and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"tidelog {command}{' shop.yaml' if command in OF_A_PIPELINE else ''}" in text.partition("example")[2]
    assert all(len(line) <= 100 for line in text.splitlines())


def test_the_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"    {name}" in text for name in COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"tidelog {__version__}\n"


@pytest.mark.parametrize("command", OF_A_PIPELINE)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "database.hostnam: x"}, ["no setting 'database.hostnam'", "Did you mean 'database.hostname'?"]),
        ({"source": "database.port: many"}, ["database.port: 'many' is not valid", "Port of the server."]),
        ({"sink": "type: dleta"}, ["There is no sink 'dleta'", "Did you mean 'delta'?"]),
        ({"sink": "type: delta, pth: x"}, ["The sink delta has no setting 'pth'", "Did you mean 'path'?"]),
        ({"sink": "type: delta"}, ["The setting path is missing"]),
        ({"more": "steam: {}\n"}, ["no setting 'steam'", "Did you mean 'stream'?"]),
        ({"source": "database.password: '${NOT_SET_ANYWHERE}'"}, ["NOT_SET_ANYWHERE is not set"]),
    ],
)
def test_a_mistake_is_one_sentence_and_its_cure(
    command: str, change: dict[str, str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, write(tmp_path, **change), *MORE.get(command, ())]) == 2
    told = error(capsys)
    assert all(word in told for word in words)
    assert len(told.splitlines()) <= 2


def test_a_connector_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(write(tmp_path))
    path.write_text(path.read_text().replace("connector: postgres", "connector: postgre"))
    assert main(["check", str(path)]) == 2
    assert "Did you mean 'postgres'?" in error(capsys)


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.yaml"]) == 2
    assert "The file nowhere.yaml cannot be read" in error(capsys)


def test_an_unwritable_sink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lake").write_text("a file")
    assert main(["run", write(tmp_path, sink=f"type: delta, path: {tmp_path / 'lake' / 'x'}")]) == 2
    assert "cannot be a folder" in error(capsys)


def test_a_second_run_is_refused_before_spark_starts(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    with Home.open("shop").lock():
        assert main(["run", file]) == 2
    assert f"A run of 'shop' is alive already (process {os.getpid()}" in error(capsys)


def test_debug_shows_the_stack(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no sink"):
        main(["check", "--debug", write(tmp_path, sink="type: dleta")])
    with pytest.raises(Exception, match="no sink"):
        main(["--debug", "check", write(tmp_path, sink="type: dleta")])


def test_what_nobody_expected_is_still_a_sentence(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Finding]:
        raise ZeroDivisionError("by zero\nand more")

    monkeypatch.setattr(stub, "check", broken)
    assert main(["check", file]) == 2
    assert error(capsys) == "tidelog: Unexpected ZeroDivisionError: by zero\n  Run again with --debug to see where.\n"


def test_an_interrupt_is_one_line(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> list[Finding]:
        raise KeyboardInterrupt

    monkeypatch.setattr(stub, "check", interrupted)
    assert main(["check", file]) == 130
    assert error(capsys) == "tidelog: interrupted\n"


@pytest.mark.parametrize("command", ["status", "snapshot", "pause", "resume", "stop"])
def test_commands_without_spark_do_not_import_it(command: str, file: str) -> None:
    code = "import sys\nfrom tidelog.cli.main import main\nmain(sys.argv[1:])\nprint('pyspark' in sys.modules)"
    words = [command, file, *MORE.get(command, ())]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# -- check -----------------------------------------------------------------------------------------------------------


def test_check_prints_findings_and_cures(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.findings = [
        Finding("ok", "version", "PostgreSQL 18 is supported."),
        Finding("warning", "slot s", "It holds back 9.0 GB.", "Start the pipeline."),
        Finding("error", "wal_level", "wal_level is replica.", "ALTER SYSTEM SET wal_level = 'logical';"),
    ]
    assert main(["check", file]) == 2
    out = capsys.readouterr().out
    assert out.startswith(
        textwrap.dedent("""\
        ✓ version: PostgreSQL 18 is supported.
        ! slot s: It holds back 9.0 GB.
            Start the pipeline.
        ✗ wal_level: wal_level is replica.
            ALTER SYSTEM SET wal_level = 'logical';
        ✓ sink: """)
    )
    assert out.endswith("not ready: 1 error, 1 warning\n")


def test_check_is_content_with_warnings(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.findings = [Finding("warning", "x", "y.", "z")]
    assert main(["check", file]) == 0
    assert capsys.readouterr().out.endswith("ready: 0 errors, 1 warning\n")


def test_check_looks_at_the_folders(tmp_path: Path, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    (tmp_path / "state").write_text("a file where the folder should be")
    assert main(["check", write(tmp_path, sink=f"type: delta, path: {tmp_path / 'state'}")]) == 2
    out = capsys.readouterr().out
    assert "✗ sink: The sink's path" in out
    assert "✗ state folder: The state folder" in out


def test_check_names_the_tables_that_the_sink_cannot_take(
    file: str, stub: Stub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keyless = replace(Stub.table, id=2, name="notes", key=())
    twins = replace(Stub.table, id=3, name="twins", columns=(*Stub.table.columns, Column("V", "text")))
    monkeypatch.setattr(stub, "tables", lambda: [Stub.table, keyless, twins])
    assert main(["check", file]) == 0
    out = capsys.readouterr().out
    assert "! public.notes: public.notes has no key" in out
    assert "It will be set aside; the other tables are not affected.\n    Give it a primary key" in out
    assert "! public.twins: public.twins has the columns v and V" in out
    assert out.endswith("ready: 0 errors, 2 warnings\n")
    monkeypatch.setattr(stub, "tables", lambda: [keyless])
    assert main(["check", file]) == 2
    assert "✗ public.notes: public.notes has no key" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("sink", "journal"),
    [("path: /proc/lake", ""), ("path: ./lake, stage: /proc/stage", ""), ("path: ./lake", "journal: {path: /proc/j}")],
)
def test_what_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, stub: Stub, capsys: pytest.CaptureFixture[str], command: str, sink: str, journal: str
) -> None:
    assert stub
    assert main([command, write(tmp_path, sink=f"type: delta, {sink}", more=journal)]) == 2
    told = capsys.readouterr()
    assert "/proc" in told.out + told.err
    assert "cannot be written" in told.out + told.err


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("sink", ["type: delta", "type: history, format: delta"])
def test_a_sink_whose_package_is_missing(
    tmp_path: Path,
    stub: Stub,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    sink: str,
) -> None:
    assert stub
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert main([command, write(tmp_path, sink=f"{sink}, path: ./lake")]) == 2
    told = capsys.readouterr()
    assert "pip install 'tidelog[delta]'" in told.out + told.err


# -- status ----------------------------------------------------------------------------------------------------------


def test_status_of_what_never_ran(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.unreachable = True
    assert main(["status", file]) == 0
    out = capsys.readouterr().out
    assert out.startswith("shop: never ran here\n")
    assert "connection refused" in out


def test_status_of_a_run(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    home = Home.open("shop")
    status = Status("running", events={"c": 1000, "u": 5}, lag_ms=230, journal_bytes=2048, updated_us=1, warning="Hm.")
    home.status.write_text(json.dumps(vars(status)))
    with home.lock():
        assert main(["status", file]) == 0
        out = capsys.readouterr().out
        assert main(["status", file, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
    assert f"shop: running (run by process {os.getpid()})" in out
    assert "1,005 events (c 1,000, u 5)" in out
    assert "keeps 3.0 MB of log for us, without limit" in out
    assert "warning   Hm." in out
    assert (report["run_pid"], report["capture"]["events"]["c"], report["source"]["kept_bytes"]) == (
        os.getpid(),
        1000,
        3 << 20,
    )
    assert main(["status", file]) == 0
    assert "shop: not running" in capsys.readouterr().out


def test_status_of_a_run_whose_database_is_away(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    since_us = 1_700_000_000_000_000
    status = Status("reconnecting", updated_us=since_us, unreachable_since_us=since_us, warning="cut")
    Home.open("shop").status.write_text(json.dumps(vars(status)))
    assert main(["status", file]) == 0
    assert "not known: the database has not answered since 2023-11-14 22:13:20 UTC (" in capsys.readouterr().out


def test_status_of_a_run_that_waits_for_its_slot(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    status = Status("reconnecting", waits_for="the replication slot", warning="busy")
    Home.open("shop").status.write_text(json.dumps(vars(status)))
    assert main(["status", file]) == 0
    assert "lag       not known: waiting for the replication slot\n" in capsys.readouterr().out


def test_status_of_a_run_that_failed_shows_no_lag(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    Home.open("shop").status.write_text(json.dumps(vars(Status("failed", warning="The slot is gone."))))
    assert main(["status", file]) == 0
    assert "lag       not known: the log is not read any more\n" in capsys.readouterr().out


def test_status_of_a_run_that_wrote_none_yet_has_no_age(
    file: str, stub: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stub
    mark_stopped(Home.open("shop"))
    assert main(["status", file]) == 0
    assert "as of" not in capsys.readouterr().out


def test_a_damaged_status_is_told(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    Home.open("shop").status.write_text("{")
    assert main(["status", file]) == 2
    assert "is not JSON" in error(capsys)


# -- verify ----------------------------------------------------------------------------------------------------------


def give(monkeypatch: pytest.MonkeyPatch, rows: pa.Table | None) -> None:
    monkeypatch.setattr(verify, "target_of", lambda _: lambda *_: rows)


def test_verify_in_sync(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, stub.rows)
    assert main(["verify", file]) == 0
    assert capsys.readouterr().out == "✓ public.t: 3 rows\nin sync: 1 table, 3 rows, 0 differences\n"


def test_verify_names_the_differences_and_hides_values(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stub
    give(monkeypatch, pa.table({"id": [1, 2, 9], "v": ["a", "private", "z"]}))
    assert main(["verify", file]) == 1
    assert capsys.readouterr().out == textwrap.dedent("""\
        ✗ public.t: 1 missing, 1 extra, 1 different; the source has 3 rows
            missing: id=3
            extra: id=9
            different: id=2: v
        not in sync: 1 table, 3 rows, 3 differences
        """)
    assert main(["verify", file, "--values", "--examples", "10"]) == 1
    assert "different: id=2: v is 'b', target has 'private'" in capsys.readouterr().out
    assert main(["verify", file, "--examples", "1"]) == 1
    assert "… and 2 more" in capsys.readouterr().out


def test_status_and_verify_name_what_is_not_delivered(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home.open("shop")
    SetAside(home).add(Stub.table, Obstacle("public.t has no key.", "Give it a primary key."))
    letters = pa.Table.from_pylist([{"table": "public.t", "reason": "column v: no number"}], FAILURES)
    DeadLetters(home).count("q", 1, letters, kept=True)
    assert main(["status", file]) == 0
    out = capsys.readouterr().out
    assert "  set aside public.t: public.t has no key. Give it a primary key.\n" in out
    assert (
        "  undecoded public.t: 1 record could not be decoded (1 kept as dead letters); the last: column v: no number\n"
        in out
    )
    give(monkeypatch, stub.rows.slice(1))
    assert main(["verify", file]) == 1
    out = capsys.readouterr().out
    assert "    It is set aside: public.t has no key. Give it a primary key.\n" in out
    assert (
        "    Records of public.t could not be decoded: 1 kept as dead letters. Last reason: column v: no number.\n"
        in out
    )


def test_verify_lists_rows_that_do_not_fit_their_types(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target may lack such a row, or have what it was before."""
    marked = stub.rows.append_column(UNDECODABLE, pa.array([False, True, True]))
    monkeypatch.setattr(stub, "read_range", lambda *_: marked.to_batches())
    give(monkeypatch, pa.table({"id": [1, 2], "v": ["a", "as it was"]}))
    assert main(["verify", file]) == 0
    assert capsys.readouterr().out == textwrap.dedent("""\
        ! public.t: 3 rows
            2 rows are set aside: a value does not fit its type in the target
            set aside: id=2
            set aside: id=3
        in sync: 1 table, 3 rows, 0 differences, 2 rows set aside
        """)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2020, 1, 2, 3, 4, tzinfo=UTC), "2020-01-02 03:04:00+00:00"),
        (datetime(2020, 1, 2, 3, 4, 5, 600), "2020-01-02 03:04:05.000600"),
        (date(2020, 1, 2), "2020-01-02"),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "\\x00ff"),
        ("it's", '"it\'s"'),
        (None, "NULL"),
        (7, "7"),
    ],
)
def test_values_are_written_as_people_do(value: object, text: str) -> None:
    assert verify._described(Difference("missing", (("id", value),)), False) == f"missing: id={text}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    said = capsys.readouterr().out.split("\n\n")[1]
    assert said[0].isupper()
    assert "`tidelog" not in said.splitlines()[0]
    assert said.splitlines()[0][-1] in ".?"


def test_verify_of_an_absent_table(
    file: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stub
    give(monkeypatch, None)
    assert main(["verify", file]) == 1
    assert "the target has no such table" in capsys.readouterr().out


def test_verify_of_chosen_tables(file: str, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    assert main(["verify", file, "--table", "public.x"]) == 2
    assert "No captured table matches public.x." in error(capsys)
    assert main(["verify", file, "--table", "("]) == 2
    assert "is not a regular expression" in error(capsys)


def test_verify_needs_a_target_with_rows(tmp_path: Path, stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub
    assert main(["verify", write(tmp_path, sink="type: console")]) == 2
    assert "this pipeline's sink is 'console'" in error(capsys)


def test_lines_name_lacking_columns() -> None:
    rows = pa.table({"id": [1]})
    told = list(verify.lines(TableReport("public.t", compare(rows, rows, ["id"]), lacking=("v",)), values=False))
    assert told[1] == "    the target has no column v"


def test_a_table_that_could_not_be_compared_says_why() -> None:
    report = TableReport("public.t", Comparison(), failure=ConfigError("It is locked.", hint="Try again."))
    assert not report.in_sync
    told = list(verify.lines(report, values=False))
    assert told[0].endswith("public.t could not be compared: It is locked.")
    assert told[1].strip() == "Try again."


# -- the status line -------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(**changes: Any) -> Any:
    usual = {
        "events_total": 12345,
        "events_per_s": 4210.4,
        "lag_ms": 230,
        "lag_bytes": 1 << 20,
        "batch_id": 17,
        "batch_events": 1000,
        "batch_ms": 1310,
        "warnings": (),
        "unreachable_since_us": 0,
        "waits_for": "",
    }
    return SimpleNamespace(**{**usual, **changes})


def test_progress_in_words() -> None:
    expected = "12,345 events · 4,210/s · lag 230 ms, 1.0 MB · batch 17: 1,000 in 1.3 s"
    assert display.progress_text(progress()) == expected
    assert "batch" not in display.progress_text(progress(batch_id=-1))


def test_progress_of_a_capture_that_waits() -> None:
    text = display.progress_text(progress(waits_for="the replication slot", batch_id=-1))
    assert text == "12,345 events · 4,210/s · lag not known: waiting for the replication slot"


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    out = Terminal()
    line = display.Line("shop", out)
    line.show("a")
    line.show("b")
    line.end("done")
    line.end("ignored")
    assert out.getvalue() == "\r\x1b[2Kshop: a\r\x1b[2Kshop: b\r\x1b[2Kshop: done\n"


def test_elsewhere_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    out = io.StringIO()
    line = display.Line("shop", out)
    for step in range(12):
        now = 100.0 + step
        line.show(str(step))
    assert out.getvalue() == "shop: 0\nshop: 5\nshop: 10\n"


def test_a_warning_is_shown_once_until_it_comes_back() -> None:
    out = io.StringIO()
    line = display.Line("shop", out)
    for warnings in [("w",), ("w",), (), ("w",)]:
        line.warn(warnings)
    assert out.getvalue() == "! w\n! w\n"


@pytest.mark.parametrize(
    ("ms", "text"), [(5, "5 ms"), (1500, "1.5 s"), (119_000, "119.0 s"), (600_000, "10 min"), (9e6, "2.5 h")]
)
def test_durations(ms: float, text: str) -> None:
    assert display.duration(ms) == text


def test_the_status_of_capture_in_words() -> None:
    status = Status("running", events={"c": 2, "u": 1}, lag_ms=5, lag_bytes=10, journal_bytes=2048)
    assert display.status_text(status) == "running · 3 events captured · lag 5 ms, 10 bytes · journal 2.0 kB"
