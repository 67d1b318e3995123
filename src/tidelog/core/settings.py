"""Settings: declared once, with their meaning; everything a user can get wrong is answered here.

A room lists its `Setting`s; `parse` turns a mapping of texts into typed values. An unknown name is an error that
names the nearest known one, so that a typing mistake never becomes a silently ignored option.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidelog.core import debezium_settings
from tidelog.errors import ConfigError


@dataclass(frozen=True)
class Setting:
    name: str
    meaning: str
    default: str | None = ""
    """The default as a user would write it; None when the setting is required."""
    kind: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    secret: bool = False
    pattern: str = ""
    """A regular expression instead of one fixed name, such as `column\\.mask\\.with\\.(\\d+)\\.chars`."""

    def accepts(self, name: str) -> bool:
        return bool(re.fullmatch(self.pattern, name)) if self.pattern else self.name == name

    def read(self, text: str, name: str = "") -> Any:
        """The typed value; `name` is what the user wrote where the setting has a pattern."""
        if self.choices and text not in self.choices:
            near = nearest(text, self.choices)
            raise ConfigError(
                f"{self.name} is {text!r}, which is not one of {', '.join(self.choices)}.",
                hint=f"Did you mean {near!r}?" if near else "Choose one of these.",
            )
        try:
            return whole(text) if self.kind is int else self.kind(text)
        except ValueError as exc:
            shown = "its value" if self.secret else repr(text)
            raise ConfigError(f"{name or self.name}: {shown} is not valid ({exc}).", hint=self.meaning) from exc


def parse(settings: Sequence[Setting], options: Mapping[str, str], *, subject: str) -> dict[str, Any]:
    """Typed values by name, defaults filled in. Settings with a pattern yield a dict of their matches."""
    for name in options:
        if not any(s.accepts(name) for s in settings):
            raise unknown(name, [s.name for s in settings], subject=subject)
    return {s.name: _value(s, options) for s in settings}


def _value(setting: Setting, options: Mapping[str, str]) -> Any:
    if setting.pattern:
        return {name: setting.read(str(text), name) for name, text in options.items() if setting.accepts(name)}
    text = str(options.get(setting.name, ""))
    if text or (setting.name in options and setting.default is not None):
        return setting.read(text)
    if setting.default is None:
        raise ConfigError(f"The setting {setting.name} is missing.", hint=setting.meaning)
    return setting.read(setting.default)


def unknown(name: str, known: Sequence[str], *, subject: str) -> ConfigError:
    if replacement := debezium_settings.answer(name):
        return ConfigError(f"{subject} has no setting {name!r}, which is one of Debezium's.", hint=replacement)
    near = nearest(name, known)
    hint = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(known))}."
    return ConfigError(f"{subject} has no setting {name!r}.", hint=hint)


def nearest(name: str, known: Sequence[str]) -> str | None:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError("write true or false")


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("write a whole number") from None


def count(text: str) -> int:
    number = whole(text)
    if number < 0:
        raise ValueError("it must not be negative")
    return number


def port(text: str) -> int:
    number = whole(text)
    if not 1 <= number <= 65535:
        raise ValueError("a port is a number from 1 to 65535")
    return number


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """Bytes: `64mb`, `4 GB`, `1073741824`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])i?)?b?\s*", text.lower())
    if not found:
        raise ValueError("write a number of bytes such as 64mb or 4gb")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def counted(number: int, thing: str) -> str:
    """`1 row`, `1,000 rows`"""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def utc_text(us: int) -> str:
    """A moment in microseconds since 1970, as people read it."""
    return f"{datetime.fromtimestamp(us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def size_text(count: int) -> str:
    """The other way round, for people: `1.5 GB`."""
    amount, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Seconds: `500ms`, `1s`, `2 min`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)\s*", text.lower())
    if not found:
        raise ValueError("write a duration such as 500ms, 1s or 2m")
    return float(found[1]) * _SECONDS[found[2]]


def patterns(text: str) -> str:
    """Comma-separated regular expressions, checked here so that a broken one fails at the start."""
    from tidelog.model.pattern import compiled
    from tidelog.model.selection import split_patterns

    for pattern in split_patterns(text):
        try:
            compiled(pattern)
        except re.error as exc:
            raise ValueError(f"{pattern!r} is not a regular expression: {exc}") from exc
    return text


REFERENCE = re.compile(r"\$\{([^}\n]*)\}")
_NAMED = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?")


def resolve(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Replace `${NAME}`, `${NAME:-default}` and `${file:/path}`."""
    known = os.environ if environment is None else environment
    return REFERENCE.sub(lambda found: _referred(found[1], known), text)


def _referred(reference: str, environment: Mapping[str, str]) -> str:
    if reference.startswith("file:"):
        return _file(reference.removeprefix("file:"))
    found = _NAMED.fullmatch(reference)
    if not found:
        raise ConfigError(
            f"${{{reference}}} cannot be resolved.", hint="Write ${NAME}, ${NAME:-default} or ${file:/path}."
        )
    name, default = found.groups()
    if name in environment:
        return environment[name]
    if default is not None:
        return default
    raise ConfigError(f"The environment variable {name} is not set.", hint=f"Run: export {name}=…")


_FILE_BYTES_MAX = 64 << 10


def _file(name: str) -> str:
    path = Path(name)
    if path.exists() and not (path.is_file() and path.stat().st_size <= _FILE_BYTES_MAX):
        raise ConfigError(f"The file {name} is no file of a setting's size.", hint="Name a text file of up to 64 kB.")
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigError(f"The file {name} cannot be read ({reason}).", hint="Check path and rights.") from exc
