r"""Regular expressions as users write them: Python's, and what others know from Java and Python writes otherwise.

`\Q…\E` takes what stands between literally, `(?<name>…)` names a group and `\k<name>` means it again, and `\p{…}` is a
class of characters: a general category of Unicode (`\p{L}`, `\p{Lu}`), or one of ASCII that has a name (`\p{Alpha}`).
What neither knows is a `re.error`, as ever.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

_TOKEN = re.compile(
    r"\\Q(?P<literal>.*?)(?:\\E|\Z)"
    r"|\\(?P<sign>[pP])(?:\{(?P<name>\w+)\}|(?P<letter>[A-Z]))"
    r"|\(\?<(?P<group>[A-Za-z]\w*)>"
    r"|\\k<(?P<again>[A-Za-z]\w*)>"
    r"|(?P<open>\[\^?\]?)|(?P<close>\])|\\.|.",
    re.DOTALL,
)
_ASCII = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Space": " \\t\\n\\x0b\\f\\r",
}


@lru_cache(maxsize=256)
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(translated(pattern), flags)
    except OverflowError as exc:
        raise re.error("a number in it is too large", pattern) from exc
    except RecursionError as exc:
        raise re.error("it is nested too deeply", pattern) from exc


def translated(pattern: str) -> str:
    """The same in Python's words."""
    return "".join(_parts(pattern))


def _parts(pattern: str) -> Iterator[str]:
    inside = False  # of brackets, where only classes of characters and quotes mean something
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "literal":
                yield re.escape(token["literal"])
            case "name" | "letter":
                yield _class(token, inside)
            case "group" if not inside:
                yield f"(?P<{token['group']}>"
            case "again" if not inside:
                yield f"(?P={token['again']})"
            case other:
                inside = other == "open" or (inside and other != "close")
                yield token[0]


def _class(token: re.Match[str], inside: bool) -> str:
    ranges = _ranges(token["name"] or token["letter"], negative=token["sign"] == "P")
    if not ranges:
        return token[0]  # which Python refuses in its own words
    return ranges if inside else f"[{ranges}]"


@lru_cache(maxsize=32)
def _ranges(name: str, *, negative: bool) -> str:
    """The characters of a class, as brackets list them; empty if there is no such class."""
    named = re.compile(f"[{_ASCII[name]}]") if name in _ASCII else None
    numbers = range(sys.maxunicode + 1)
    members = [bool(named.match(chr(n))) if named else unicodedata.category(chr(n)).startswith(name) for n in numbers]
    if not any(members):
        return ""
    runs = [list(run) for taken, run in groupby(numbers, lambda n: members[n] != negative) if taken]
    return "".join(f"\\U{run[0]:08x}-\\U{run[-1]:08x}" for run in runs)
