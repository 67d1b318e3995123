"""A stream of Java objects, read as a graph: of whatever classes, because a stream describes its classes itself.

What is met a second time is written as a reference, so everything that can be referred to is numbered in the order in
which it begins.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidelog.core.snapshot.java_classes import EXTERNAL, IN_BLOCKS, SERIAL, WROTE, JavaClass
from tidelog.errors import CorruptState

HINT = "Remove the attributes that begin with incremental_snapshot_ from the offset, and ask for the snapshot again."
HEADER = b"\xac\xed\x00\x05"
FIRST_HANDLE = 0x7E0000
_DEPTH_MAX = 32

NULL, REFERENCE, CLASS, OBJECT, STRING, ARRAY = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
BLOCK, END, LONG_BLOCK, LONG_STRING, ENUM = 0x77, 0x78, 0x7A, 0x7C, 0x7E

FORMS = {"B": "b", "C": "H", "D": "d", "F": "f", "I": "i", "J": "q", "S": "h", "Z": "?"}
"""Letters of Java's primitive types, as `struct` writes them."""


def corrupt(reason: str) -> CorruptState:
    return CorruptState(f"A key in the offset's snapshot cannot be read: {reason}.", hint=HINT)


@dataclass
class JavaObject:
    cls: JavaClass
    fields: dict[str, Any] = field(default_factory=dict)
    blocks: bytes = b""
    """What the class wrote itself, next to its fields."""


@dataclass
class JavaArray:
    cls: JavaClass
    items: list[Any] | bytes


@dataclass
class JavaConstant:
    """Of an enumeration."""

    cls: JavaClass
    name: str


_ENDED = object()


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0
        self._handles: list[Any] = []

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + max(count, 0)]
        if len(found) != count:
            raise corrupt("it ends too early")
        self._at += count
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def text(self, length_form: str = "H") -> str:
        return from_modified(self.take(self.number(length_form)))

    def content(self) -> Any:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise corrupt("it is nested too deeply")
        tag = self.number("B")
        if tag not in _CONTENTS:
            raise corrupt(f"it has an element of kind {tag:#x}, which no key has")
        found = _CONTENTS[tag](self)
        self._depth -= 1
        return found

    def known(self, item: Any) -> Any:
        self._handles.append(item)
        return item

    def reference(self) -> Any:
        at = self.number("i") - FIRST_HANDLE
        if not 0 <= at < len(self._handles):
            raise corrupt("it refers to an object that is not there")
        return self._handles[at]

    def describe(self) -> JavaClass:
        name, serial = self.text(), self.number("Q")
        at = len(self._handles)
        self.known(None)
        flags = self.number("B")
        fields = tuple(self._field() for _ in range(self.number("H")))
        self._annotations()
        parent = self.content()
        if not isinstance(parent, JavaClass | None):
            raise corrupt("a class has a parent that is no class")
        self._handles[at] = JavaClass(name, serial, flags, fields, parent)
        return self._handles[at]  # type: ignore[no-any-return]

    def _field(self) -> tuple[str, str]:
        letter, name = chr(self.number("B")), self.text()
        return (str(self.content()) if letter in "L[" else letter), name

    def _class(self) -> JavaClass:
        found = self.content()
        if not isinstance(found, JavaClass):
            raise corrupt("an object has no class")
        return found

    def object(self) -> JavaObject:
        found: JavaObject = self.known(JavaObject(self._class()))
        for cls in found.cls.line():
            if cls.flags & SERIAL:
                found.fields |= {name: self._member(letter) for letter, name in cls.fields}
            if cls.flags & EXTERNAL and not cls.flags & IN_BLOCKS:
                raise unknown(cls)
            if cls.flags & (WROTE | EXTERNAL):
                found.blocks += self._annotations()
        return found

    def _member(self, letter: str) -> Any:
        if letter[0] in "L[":
            return self.content()
        if letter not in FORMS:
            raise corrupt(f"a class has a field of the unknown type {letter!r}")
        return self.number(FORMS[letter])

    def _annotations(self) -> bytes:
        found = b""
        while (item := self.content()) is not _ENDED:
            found += item if isinstance(item, bytes) else b""
        return found

    def array(self) -> JavaArray:
        cls = self._class()
        found: JavaArray = self.known(JavaArray(cls, []))
        count, letter = self.number("I"), cls.name[1:]
        if letter == "B":
            found.items = self.take(count)
        else:
            found.items = [self._member(letter or "?") for _ in range(count)]
        return found

    def enum(self) -> JavaConstant:
        found: JavaConstant = self.known(JavaConstant(self._class(), ""))
        found.name = str(self.content())
        return found


_CONTENTS: dict[int, Callable[[Reader], Any]] = {
    NULL: lambda _: None,
    REFERENCE: Reader.reference,
    CLASS: Reader.describe,
    OBJECT: Reader.object,
    STRING: lambda reader: reader.known(reader.text()),
    LONG_STRING: lambda reader: reader.known(reader.text("Q")),
    ARRAY: Reader.array,
    ENUM: Reader.enum,
    BLOCK: lambda reader: reader.take(reader.number("B")),
    LONG_BLOCK: lambda reader: reader.take(reader.number("I")),
    END: lambda _: _ENDED,
}


def unknown(cls: JavaClass) -> CorruptState:
    return corrupt(f"it has a value of the Java class {cls.name}, which we do not know")


def to_modified(text: str) -> bytes:
    """Java's UTF-8: what needs two units of UTF-16 is two characters, and NUL two bytes."""
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2").tolist()
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def from_modified(data: bytes) -> str:
    try:
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise corrupt("a text in it is damaged") from None
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
