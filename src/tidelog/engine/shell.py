"""Commands that messages print for copying into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_PLAIN_NAME = re.compile(r"[\w.]+")


def command(*words: str) -> str:
    """`tidelog WORDS…`, quoted for a shell."""
    return shlex.join(("tidelog", *words))


def snapshot_command(pipeline: str, tables: Iterable[str]) -> str:
    """The command that reads these tables again. It takes regular expressions, so other characters are escaped."""
    patterns = (name if _PLAIN_NAME.fullmatch(name) else re.escape(name) for name in tables)
    return command("snapshot", pipeline, *patterns)
