"""A disk that is full, in a sentence that names the folder."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

from tidelog.errors import ConfigError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "database or disk is full")
_NEARLY_NOTHING = 1 << 20


def is_full(error: BaseException | None) -> bool:
    """Whether an error says so, also one of Spark or SQLite, which say it in words only."""
    if error is None:
        return False
    return getattr(error, "errno", None) in _FULL or any(text in str(error) for text in _FULL_TEXTS)


def full_error(folders: Iterable[Path]) -> ConfigError:
    """The error for the first of the folders whose disk is full, or for all of them where none is any more."""
    asked = list(dict.fromkeys(folders))
    full = [folder for folder in asked if _free(folder) < _NEARLY_NOTHING][:1] or asked
    return ConfigError(
        f"The disk is full: {' or '.join(map(str, full))} cannot be written.",
        hint="Free some space there, then start again: nothing is lost.",
    )


def _free(folder: Path) -> int:
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(there).free
