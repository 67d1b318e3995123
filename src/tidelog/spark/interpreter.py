"""Which Python Spark's workers run.

Spark takes PYSPARK_PYTHON, or else whatever `python3` is on the PATH. From a virtual environment that is not activated,
as notebooks run, that is another Python, without tidelog.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext

_FIND_TIDELOG = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tidelog') is None)"
_swap = threading.RLock()


@contextmanager
def worker_python(context: SparkContext) -> Iterator[None]:
    """What is registered meanwhile runs in a Python that has tidelog: in ours, unless PYSPARK_PYTHON chooses another.
    Functions of the user's own keep the session's Python. Not for clusters, whose machines may not have ours."""
    with _swap:
        configured = context.pythonExec
        context.pythonExec = _choose(configured)
        try:
            yield
        finally:
            context.pythonExec = configured


def _choose(configured: str) -> str:
    if os.environ.get("PYSPARK_PYTHON") != configured:  # nobody chose it: it is Spark's default
        return sys.executable
    _require_tidelog(configured)
    return configured


_FIND_S = 120.0


@cache
def _require_tidelog(python: str) -> None:
    try:
        command = [python, "-c", _FIND_TIDELOG]
        found = subprocess.run(command, capture_output=True, check=False, timeout=_FIND_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        found = False
    if not found:
        raise ConfigError(
            f"Spark's Python workers run {python} (PYSPARK_PYTHON), where tidelog is not installed.",
            hint=f"Install it there, or set PYSPARK_PYTHON={sys.executable} before Spark starts.",
        )
