"""The limit of open files: raised as far as it may be, and refused where Spark could not start."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from tests.patience import run

_START = """
import resource, sys
soft, hard, allowed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
setrlimit = resource.setrlimit
def refuse_more(kind, limits):
    if limits[0] > allowed:
        raise ValueError("current limit exceeds maximum limit")
    setrlimit(kind, limits)
resource.setrlimit = refuse_more
from tidelog.engine.home import Home
from tidelog.errors import TidelogError
from tidelog.spark import open_files
from tidelog.spark.session import session
try:
    if hard < 512:
        session("shop", Home.open("shop"))
    open_files.require_enough()
    open_files.warn_if_few()
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except TidelogError as exc:
    print(type(exc).__name__, exc)
"""


@pytest.fixture
def hard() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 65_536 if limit == resource.RLIM_INFINITY else limit


def start(folder: Path, soft: int, hard: int, allowed: int = 1 << 30) -> tuple[str, str]:
    """What a process with these limits prints, and what it warns of. The system refuses more than `allowed`."""
    words = [sys.executable, "-c", _START, str(soft), str(hard), str(allowed)]
    done = run(words, env={**os.environ, "TIDELOG_HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def test_a_low_limit_that_may_be_raised_is_raised(tmp_path: Path, hard: int) -> None:
    said, warned = start(tmp_path, 256, min(hard, 4096))
    assert (int(said), warned) == (min(hard, 4096), "")


@pytest.mark.parametrize(("allowed", "reached"), [(12_000, 10_240), (5000, 4096), (600, 512)])
def test_a_system_that_refuses_the_limit_gets_a_smaller_one(
    tmp_path: Path, hard: int, allowed: int, reached: int
) -> None:
    """As macOS does where kern.maxfilesperproc is below the hard limit."""
    if hard < reached:
        pytest.skip("the limit of this machine is lower")
    said, _ = start(tmp_path, 256, hard, allowed)
    assert int(said) == reached


def test_a_limit_that_is_too_low_is_told_before_spark_starts(tmp_path: Path) -> None:
    said, _ = start(tmp_path, 256, 256)
    assert said.startswith("ConfigError This process may open 256 files at most, and Spark needs 512 or more. Raise it")
    assert "`ulimit -n 4096`" in said
    assert "LimitNOFILE=4096" in said
    assert not (tmp_path / "shop" / "spark.out").exists()


def test_a_limit_that_is_low_is_warned_of(tmp_path: Path) -> None:
    said, warned = start(tmp_path, 600, 600)
    assert (said, "This process may open 600 files at most" in warned) == ("600", True)
