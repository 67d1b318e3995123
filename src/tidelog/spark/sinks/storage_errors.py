"""What the errors of a target's storage mean: in a sentence, and whether time may cure them.

Libraries tell them in texts of several lines, with the name of the system call's error in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import ConfigError, TargetAway, TidelogError

FREE_SPACE = "Free some space: the batch is tried again for a while, and otherwise by the next start; nothing is lost."
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_READ_ONLY = re.compile(r"Read-only file system|ReadOnlyFilesystem|Permission denied")
_UNKNOWN_SCHEME = re.compile(
    r"""(?:Unknown scheme: |Unrecognized filesystem type in URI: |No FileSystem for scheme[: "]+)(\w[\w+\-]*)"""
)
_DAMAGED = re.compile(
    r"Truncated record|[Jj]son error|Invalid JSON|EOF while parsing|Invalid Parquet file|[Cc]orrupt footer"
)
_NATIVE_STACK = re.compile(r"\s+0: (?:<unknown>|\S+::).*", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ARROW = re.compile(r"\s*↳\s*")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Raises errors of the operating system as what they mean for the target `where`."""
    try:
        yield
    except OSError as exc:
        raise explain(where, exc) from exc


def explain(target: str, error: BaseException) -> TidelogError:
    text = one_line(error)
    if is_full(text):
        return TargetAway(f"{target} cannot be written: the disk is full.", hint=FREE_SPACE)
    if unknown := find_unknown_scheme(text):
        return unknown
    if found := _READ_ONLY.search(text):
        return ConfigError(
            f"{target} cannot be written: {found[0]}.", hint="Make it writable and start again: nothing is lost."
        )
    if _DAMAGED.search(text):
        return TargetAway(
            f"{target} can't be read, because one of its files is damaged: {text}",
            hint="Restore that file, or move the folder of the table away and start again: the table is then read from "
            "the source.",
        )
    return TargetAway(f"{target} can't be read or written: {text}")


def unknown_scheme(scheme: str) -> ConfigError:
    return ConfigError(
        f"The sink's path has the unknown scheme {scheme}://.",
        hint="Set sink: path to a folder, or to a URI such as s3://, gs://, abfss:// or hdfs://.",
    )


def find_unknown_scheme(text: str) -> ConfigError | None:
    """In the text of an error of delta-rs, pyarrow or Hadoop."""
    found = _UNKNOWN_SCHEME.search(text)
    return unknown_scheme(found[1]) if found else None


def is_full(text: str) -> bool:
    return _FULL.search(text) is not None


def one_line(error: BaseException) -> str:
    text = _ARROW.sub(": ", _COLOURS.sub("", _NATIVE_STACK.sub("", str(error))))
    return " ".join(text.split()) or type(error).__name__
