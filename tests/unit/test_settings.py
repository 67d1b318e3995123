"""Settings answer everything a user can get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.core.settings import (
    Setting,
    boolean,
    count,
    duration,
    nearest,
    parse,
    patterns,
    port,
    resolve,
    size,
)
from tidelog.errors import ConfigError

SETTINGS = (
    Setting("host", "Host of the server.", "localhost"),
    Setting("port", "Port of the server.", "5432", int),
    Setting("user", "Who reads.", None),
    Setting("mode", "How.", "fast", choices=("fast", "slow")),
    Setting("mask.N", "Masked columns.", "", patterns, pattern=r"mask\.\d+"),
    Setting("pin", "A secret number.", "0", count, secret=True),
)


def read(**options: str) -> dict[str, object]:
    return parse(SETTINGS, {"user": "u", **options}, subject="The test")


def test_defaults_are_filled_in_and_typed() -> None:
    assert read(**{"mask.7": "a,b"}) == {
        "host": "localhost",
        "port": 5432,
        "user": "u",
        "mode": "fast",
        "mask.N": {"mask.7": "a,b"},
        "pin": 0,
    }


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"The test has no setting 'hots'\. Did you mean 'host'\?"):
        read(hots="x")


def test_an_unknown_name_far_from_all_lists_them() -> None:
    with pytest.raises(ConfigError, match=r"Known are: host, mask\.N, mode, pin, port, user"):
        read(zzzzzz="x")


@pytest.mark.parametrize("options", [{}, {"user": ""}])
def test_a_required_setting_must_not_be_missing_or_empty(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"The setting user is missing\. Who reads\."):
        parse(SETTINGS, options, subject="The test")


def test_an_empty_text_is_a_value_where_a_default_exists() -> None:
    assert read(host="")["host"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": "five"}, r"port: 'five' is not valid \(write a whole number\). Port of the server."),
        ({"mode": "fats"}, r"mode is 'fats', which is not one of fast, slow. Did you mean 'fast'\?"),
        ({"mode": "x"}, "Choose one of these"),
        ({"mask.7": "a("}, r"mask\.7: 'a\(' is not valid \('a\(' is not a regular expression"),
    ],
)
def test_a_wrong_value_says_what_to_write(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**options)


def test_a_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        read(pin="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("64mb", 64 << 20), ("4 GB", 4 << 30), ("1.5k", 1536), ("7", 7), ("2MiB", 2 << 20), ("1tb", 1 << 40), ("9b", 9)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "mb", "-1", "5i", "4 gigs", "1e3"])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="64mb"):
        size(text)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("1s", 1), ("2 min", 120), ("2m", 120), ("1.5H", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1 day", "-1s"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(ValueError, match="500ms"):
        duration(text)


def test_booleans() -> None:
    assert [boolean(t) for t in ("true", "Yes", "on", "1")] == [True] * 4
    assert [boolean(t) for t in ("false", "No", "off", "0")] == [False] * 4
    with pytest.raises(ValueError, match="true or false"):
        boolean("maybe")


@pytest.mark.parametrize("text", ["0", "-1", "65536", "99999", "1.5", ""])
def test_a_port_is_one_that_can_be_connected_to(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        port(text)
    assert port("65535") == 65535


def test_counts_are_not_negative() -> None:
    assert count("0") == 0
    with pytest.raises(ValueError, match="negative"):
        count("-1")


def test_nearest() -> None:
    assert nearest("table.inclde.list", ["table.include.list", "table.exclude.list"]) == "table.include.list"
    assert nearest("x", ["table.include.list"]) is None


def test_references_are_resolved(tmp_path: Path) -> None:
    secret = tmp_path / "a:b"
    secret.write_text("s3cret\r\n")
    known = {"A": "1", "EMPTY": ""}
    assert resolve("x${A}y${B:-two:2}z${C:-}${EMPTY}", known) == "x1ytwo:2z"
    assert resolve(f"${{file:{secret}}}", known) == "s3cret"
    assert resolve(r"public\..*$, a{1,2}", known) == r"public\..*$, a{1,2}"


def test_a_resolved_value_is_not_resolved_again() -> None:
    assert resolve("${A}", {"A": "${B}"}) == "${B}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NOPE}", r"The environment variable NOPE is not set\. Run: export NOPE=…"),
        ("${file:/no/such}", r"The file /no/such cannot be read \(No such file or directory\)"),
        ("${}", r"\$\{\} cannot be resolved"),
        ("${a b}", "cannot be resolved"),
    ],
)
def test_a_reference_to_nothing(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(text, {})


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        resolve(f"${{file:{tmp_path / 'f'}}}", {})
