"""Arrow without pandas, in processes that run nothing but tidelog.

Arrow imports pandas (0.65 CPU-s, 340 modules) with the first array that it makes from Python or numpy values, to
recognise pandas objects among them. tidelog has none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder

import pyarrow as pa

_ONLY_TIDELOG = "TIDELOG_ONLY"
"""An environment variable: neither this process nor its children run code of the user's own."""


class _PandasHidden(MetaPathFinder):
    """Answers that pandas is not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def skip_pandas() -> None:
    """Let Arrow look for pandas once, in vain: it does not look again before `to_pandas` needs it.

    Other imports of pandas work as before, but until `to_pandas` was called, Arrow takes a Series for any sequence. So
    this is not for processes where code of the user's own may run.
    """
    if "pandas" in sys.modules:
        return
    hidden = _PandasHidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(hidden)


def skip_pandas_here_and_below() -> None:
    """In this process, and in the Python workers of the session that it starts."""
    os.environ[_ONLY_TIDELOG] = "1"
    skip_pandas()


def skip_pandas_in_worker() -> None:
    """In a Python worker, if its session was started by a command of tidelog."""
    if _ONLY_TIDELOG in os.environ:
        skip_pandas()
