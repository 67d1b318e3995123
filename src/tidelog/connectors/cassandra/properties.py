"""The files in which Cassandra connectors keep their offsets on each node, in the format of Java's properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

LOGS = "commitlog_offset.properties"
SNAPSHOTS = "snapshot_offset.properties"

_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", re.DOTALL)


def read(text: str) -> dict[str, str]:
    found = (_PAIR.fullmatch(line) for line in _lines(text))
    return {_plain(pair[1]): _plain(pair[2]) for pair in found if pair}


def write(entries: Mapping[str, str]) -> str:
    return "".join(f"{_escaped(key, key=True)}={_escaped(value)}\n" for key, value in sorted(entries.items()))


def _lines(text: str) -> Iterator[str]:
    """Without comments; a backslash at the end continues a line."""
    lines: Iterable[str] = re.split(r"\r\n|\r|\n", text)
    held = ""
    for line in lines:
        line = line.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        if re.search(r"(?<!\\)(?:\\\\)*\\$", line):
            held += line[:-1]
            continue
        yield held + line
        held = ""
    if held:
        yield held


def _plain(text: str) -> str:
    """Characters beyond the first plane come as two escapes, which are joined again."""
    units = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", _character, text, flags=re.DOTALL)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


def _escaped(text: str, *, key: bool = False) -> str:
    special = r"([\\=:#! ])" if key else r"(\\|^[ ]|[:=#!])"
    plain = re.sub(special, r"\\\1", text)
    return "".join(c if " " <= c <= "~" else "".join(f"\\u{unit:04x}" for unit in _units(c)) for c in plain)


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
