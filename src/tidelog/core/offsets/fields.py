"""The vocabulary of offset documents: a field, what it means, and what may stand in it.

A kind reads one value: it gives the value in the form that we write, or says in a sentence what is expected and what
came. Nothing is guessed: a number in quotes is taken only where every reader of these documents takes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidelog.errors import ConfigError

LONG = (1 << 63) - 1
_SHOWN = 60


class Null(Enum):
    """What a `null` says."""

    ABSENT = "the same as if the field were not there"
    KEPT = "it is written, too"
    REFUSED = "it is a mistake"


@dataclass(frozen=True)
class Kind:
    title: str
    """What is expected, to be read after "is": `a whole number`."""
    read: Callable[[Any], Any]
    """The value as we write it; None when it says nothing. Raises ConfigError."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """The same as JSON Schema, as far as that can tell."""


@dataclass(frozen=True)
class Field:
    name: str
    meaning: str
    kind: Kind
    example: Any
    required: bool = False
    null: Null = Null.ABSENT
    silent: tuple[Any, ...] = ()
    """Values that say nothing, and are left out."""
    keys: str = ""
    """A regular expression when `name` stands for a family of keys, such as `transaction_…_<table>`."""

    def accepts(self, key: str) -> bool:
        return bool(re.fullmatch(self.keys, key)) if self.keys else key == self.name

    def read(self, value: Any) -> Any:
        if value is None:
            return self._null()
        if isinstance(value, str) and not storable(value):
            raise ConfigError("It has characters that are no Unicode text.", hint="Correct the value.")
        found = self.kind.read(value)
        return None if any(type(found) is type(s) and found == s for s in self.silent) else found

    def _null(self) -> None:
        if self.null is Null.REFUSED or (self.required and self.null is not Null.KEPT):
            raise ConfigError(f"It is null, but {self.kind.title} is expected.", hint=self.meaning)

    def writes(self, value: Any) -> bool:
        return value is not None or self.null is Null.KEPT


@dataclass(frozen=True)
class Alias:
    """Another name under which a field is read, but never written."""

    name: str
    of: str
    meaning: str
    kind: Kind


def whole(lowest: int = 0, highest: int = LONG) -> Kind:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _not_whole(value)
        if value < lowest:
            reason = "it is negative" if lowest == 0 else f"the lowest is {lowest}"
            raise ConfigError(f"{clipped(value)} is no valid value: {reason}.", hint="Correct the number.")
        if value > highest:
            raise ConfigError(f"{clipped(value)} is too large: the highest is {highest}.", hint="Correct the number.")
        return value

    return Kind("a whole number", read, {"type": "integer", "minimum": lowest, "maximum": highest})


def _not_whole(value: Any) -> ConfigError:
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,19}\s*", value):
        return expected("a whole number", value, hint=f"Write it without quotes: {int(value)}.")
    if isinstance(value, float) and value.is_integer() and abs(value) <= LONG:
        return expected("a whole number", value, hint=f"Write it without a fraction: {int(value)}.")
    return expected("a whole number", value)


def text(pattern: str = "", form: str = "", *, shown: str = "a text") -> Kind:
    """`form` tells people what `pattern` tells machines."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise expected(shown, value, hint=_quoted(value))
        if not value or (pattern and not re.fullmatch(pattern, value)):
            raise expected(shown, value, hint=f"Write it like {form}." if form else "")
        return value

    return Kind(shown, read, {"type": "string", "minLength": 1, **({"pattern": f"^(?:{pattern})$"} if pattern else {})})


def parsed(shown: str, parse: Callable[[str], str | None], pattern: str = "") -> Kind:
    """A text with an inner form; `parse` gives it as we write it."""

    def read(value: Any) -> str | None:
        if not isinstance(value, str):
            raise expected(shown, value, hint=_quoted(value))
        return parse(value)

    return Kind(shown, read, {"type": "string", **({"pattern": pattern} if pattern else {})})


def choice(*names: str) -> Kind:
    shown = f"one of {', '.join(names)}"

    def read(value: Any) -> str:
        if value not in names:
            raise expected(shown, value)
        return str(value)

    return Kind(shown, read, {"enum": list(names)})


def flag(*, in_quotes: bool = False) -> Kind:
    """true or false; `in_quotes` where "true" is read as well."""
    texts = {"true": True, "false": False} if in_quotes else {}

    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in texts:
            return texts[value]
        without = isinstance(value, str) and value.lower() in ("true", "false")
        raise expected("true or false", value, hint=f"Write it without quotes: {value.lower()}." if without else "")

    return Kind("true or false", read, {"enum": [True, False, *texts]})


def expected(shown: str, value: Any, *, hint: str = "") -> ConfigError:
    """The one sentence for a value that is not what it should be."""
    return ConfigError(f"Expected is {shown}, but {came(value)} came.", hint=hint or "Correct the value.")


def came(value: Any) -> str:
    """What somebody wrote, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return f"the value {str(value).lower()}"
        case int():
            return f"the number {clipped(value)}"
        case float():
            return f"the number {value}"
        case "":
            return "an empty text"
        case str():
            return f"the text {clipped(value)!r}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a value of type {type(value).__name__}"


def clipped(value: Any) -> str:
    """Long values are shown in part: an error is to be read."""
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"of {value.bit_length()} bits"
    shown = str(value).encode("utf-8", "replace").decode()
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def storable(value: str) -> bool:
    """Half of a surrogate pair can stand in JSON, but in no file."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _quoted(value: Any) -> str:
    plain = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 4 * _SHOWN
    return f'Write it in quotes: "{value}".' if plain else ""
