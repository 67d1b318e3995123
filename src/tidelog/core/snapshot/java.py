"""Keys as Java serialises them: an `Object[]`, as lower-case hex.

Offsets that other connectors wrote hold keys in this form, and ours do, so that either side goes on where the other
stopped. The law: what we write is, byte for byte, what Java writes of values that a database driver made. That
includes its back references: an object met again is not written again, and small boxed numbers are the same object.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from tidelog.core.snapshot import java_time
from tidelog.core.snapshot.java_classes import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BOXED,
    BYTES,
    DATES,
    OBJECTS,
    TIMESTAMP,
    UUID,
    JavaClass,
    JavaValue,
    Values,
)
from tidelog.core.snapshot.java_keys import key_texts, key_values
from tidelog.core.snapshot.java_stream import (
    ARRAY,
    BLOCK,
    CLASS,
    END,
    FIRST_HANDLE,
    FORMS,
    HEADER,
    HINT,
    LONG_STRING,
    NULL,
    OBJECT,
    REFERENCE,
    STRING,
    JavaArray,
    JavaConstant,
    JavaObject,
    Reader,
    corrupt,
    to_modified,
    unknown,
)
from tidelog.errors import CorruptState

__all__ = ["JavaValue", "Values", "decode", "encode", "key_texts", "key_values"]


def decode(text: str) -> Values | None:
    """None for an array that is null itself."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise corrupt("it is not hexadecimal") from None
    reader = Reader(data)
    if reader.take(len(HEADER)) != HEADER:
        raise corrupt("it does not begin as a stream of Java objects does")
    found = reader.content()
    if found is None:
        return None
    if not isinstance(found, JavaArray) or not isinstance(found.items, list):
        raise corrupt(f"it is {_describe(found)}, not an array of objects")
    return tuple(_value(item) for item in found.items)


def encode(values: Sequence[JavaValue | None] | None) -> str:
    writer = _Writer()
    writer.array(values)
    return writer.out.hex()


def _describe(found: Any) -> str:
    return f"of the class {found.cls.name}" if isinstance(found, JavaObject | JavaArray | JavaConstant) else "a text"


def _value(found: Any) -> JavaValue | None:
    match found:
        case None:
            return None
        case str():
            return JavaValue("string", found)
        case JavaArray(items=bytes() as items):
            return JavaValue("bytes", items)
        case JavaObject(cls=cls) if cls.name in _READ:
            return _read(found)
        case JavaObject(cls=cls) | JavaArray(cls=cls) | JavaConstant(cls=cls):
            raise unknown(cls)
        case _:
            raise corrupt("it has a member that is no object")


def _read(found: JavaObject) -> JavaValue | None:
    try:
        return _READ[found.cls.name](found)
    except (KeyError, TypeError, AttributeError, ValueError, struct.error) as exc:
        raise corrupt(f"a value of the Java class {found.cls.name} is not one that a key has ({exc})") from exc


def _integer(found: JavaObject) -> int:
    return int.from_bytes(found.fields["magnitude"].items, "big") * int(found.fields["signum"])


def _decimal(found: JavaObject) -> JavaValue:
    sign, digits, _ = Decimal(_integer(found.fields["intVal"])).as_tuple()
    return JavaValue("decimal", Decimal((sign, digits, -found.fields["scale"])))


def _special(found: JavaObject) -> JavaValue:
    """A decimal number that may be infinite or none."""
    if found.fields.get("decimalValue") is not None:
        return _decimal(found.fields["decimalValue"])
    special = found.fields["specialValue"].name
    return JavaValue("double", float({"NAN": "nan", "NEGATIVE_INFINITY": "-inf", "POSITIVE_INFINITY": "inf"}[special]))


def _uuid(found: JavaObject) -> JavaValue:
    mask = (1 << 64) - 1
    most, least = found.fields["mostSigBits"] & mask, found.fields["leastSigBits"] & mask
    return JavaValue("uuid", uuid.UUID(int=most << 64 | least))


def _epoch_ms(found: JavaObject) -> int:
    return int(struct.unpack(">q", found.blocks)[0])


def _timestamp(found: JavaObject) -> JavaValue:
    nanos = found.fields["nanos"]
    return JavaValue("timestamp", (_epoch_ms(found) + nanos // 1_000_000, nanos))


def _text(found: JavaObject) -> JavaValue | None:
    """A value that the driver knows by its text only."""
    text = found.fields["value"]
    if not isinstance(text, str | None):
        raise TypeError("its value is no text")
    return None if text is None else JavaValue("string", text)


def _plain(kind: str) -> Callable[[JavaObject], JavaValue]:
    return lambda found: JavaValue(kind, _number(found.fields["value"]))


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError("its value is no number")
    return value


def _dated(kind: str) -> Callable[[JavaObject], JavaValue]:
    return lambda found: JavaValue(kind, _epoch_ms(found))


_READ: dict[str, Callable[[JavaObject], JavaValue | None]] = {
    **{cls.name: _plain(kind) for kind, cls in BOXED.items()},
    **{cls.name: _dated(kind) for kind, cls in DATES.items()},
    "java.lang.Character": lambda found: JavaValue("string", chr(found.fields["value"])),
    BIG_INTEGER.name: lambda found: JavaValue("bigint", _integer(found)),
    BIG_DECIMAL.name: _decimal,
    UUID.name: _uuid,
    TIMESTAMP.name: _timestamp,
    "java.time.Ser": lambda found: JavaValue(*java_time.read(found.blocks)),
    "io.debezium.data.SpecialValueDecimal": _special,
    "org.postgresql.util.PGobject": _text,
}


# writing: only the classes above, in the order and with the references that Java uses


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(HEADER)
        self._next = FIRST_HANDLE
        self._classes: dict[str, int] = {}
        self._shared: dict[tuple[str, Any], int] = {}
        """Values that Java keeps one object of."""

    def number(self, form: str, *numbers: Any) -> None:
        self.out += struct.pack(">" + form, *numbers)

    def _handle(self) -> int:
        self._next += 1
        return self._next - 1

    def _refer(self, handle: int) -> None:
        self.number("BI", REFERENCE, handle)

    def _name(self, text: str) -> None:
        data = to_modified(text)
        self.number("H", len(data))
        self.out += data

    def text(self, text: str) -> None:
        data = to_modified(text)
        self._handle()
        self.number(*(("BH", STRING) if len(data) <= 0xFFFF else ("BQ", LONG_STRING)), len(data))
        self.out += data

    def _describe(self, cls: JavaClass | None) -> None:
        if cls is None:
            self.number("B", NULL)
        elif cls.name in self._classes:
            self._refer(self._classes[cls.name])
        else:
            self._describe_anew(cls)

    def _describe_anew(self, cls: JavaClass) -> None:
        self.number("B", CLASS)
        self._name(cls.name)
        self.number("Q", cls.serial)
        self._classes[cls.name] = self._handle()
        self.number("BH", cls.flags, len(cls.fields))
        for signature, name in cls.fields:
            self.number("B", ord(signature[0]))
            self._name(name)
            if len(signature) > 1:
                self.text(signature)
        self.number("B", END)
        self._describe(cls.parent)

    def _begin(self, tag: int, cls: JavaClass) -> int:
        self.number("B", tag)
        self._describe(cls)
        return self._handle()

    def array(self, values: Sequence[JavaValue | None] | None) -> None:
        if values is None:
            self.number("B", NULL)
            return
        self._begin(ARRAY, OBJECTS)
        self.number("I", len(values))
        for value in values:
            self._member(value)

    def _member(self, value: JavaValue | None) -> None:
        match value:
            case None:
                self.number("B", NULL)
            case JavaValue(kind, plain) if kind in BOXED:
                self._plain(kind, plain)
            case JavaValue(kind, plain) if kind in DATES:
                self._begin(OBJECT, DATES[kind])
                self._epoch_ms(plain)
            case JavaValue(kind, plain) if kind in _WRITE:
                _WRITE[kind](self, plain)
            case JavaValue(kind):
                raise CorruptState(f"A key with a value of the kind {kind} cannot be written.", hint=HINT)

    def _plain(self, kind: str, value: Any) -> None:
        cls = BOXED[kind]
        if kind == "boolean" or (kind in ("int", "long", "short", "byte") and -128 <= value <= 127):
            if self._met(kind, value):
                return
            self._shared[kind, value] = self._begin(OBJECT, cls)
        else:
            self._begin(OBJECT, cls)
        try:
            self.number(FORMS[cls.fields[0][0]], value)
        except struct.error as exc:
            raise CorruptState(f"A key with {value} cannot be written: that is no {kind}.", hint=HINT) from exc

    def _met(self, kind: str, value: Any) -> bool:
        handle = self._shared.get((kind, value))
        if handle is not None:
            self._refer(handle)
        return handle is not None

    def _epoch_ms(self, value: int) -> None:
        self.number("BBqB", BLOCK, 8, value, END)

    def bytes(self, value: bytes) -> None:
        self._begin(ARRAY, BYTES)
        self.number("I", len(value))
        self.out += value

    def integer(self, value: int, *, shared: bool = False) -> None:
        """`shared` where Java takes it from the few that it keeps."""
        if shared and self._met("bigint", value):
            return
        handle = self._begin(OBJECT, BIG_INTEGER)
        if shared:
            self._shared["bigint", value] = handle
        self.number("iiiii", -1, -1, -2, -2, (value > 0) - (value < 0))
        self.bytes(abs(value).to_bytes((abs(value).bit_length() + 7) // 8, "big"))
        self.number("B", END)

    def decimal(self, value: Decimal) -> None:
        if not value.is_finite():
            raise CorruptState(f"A key with the decimal number {value} cannot be written.", hint=HINT)
        sign, digits, exponent = value.as_tuple()
        whole = int(Decimal((sign, digits, 0)))
        self._begin(OBJECT, BIG_DECIMAL)
        self.number("i", -int(exponent))
        self.integer(whole, shared=abs(whole) <= 16)
        self.number("B", END)

    def uuid(self, value: uuid.UUID) -> None:
        self._begin(OBJECT, UUID)
        self.number("QQ", value.int & ((1 << 64) - 1), value.int >> 64)

    def timestamp(self, value: tuple[int, int]) -> None:
        epoch_ms, nanos = value
        self._begin(OBJECT, TIMESTAMP)
        self._epoch_ms(epoch_ms // 1000 * 1000)
        self.number("i", nanos)


_WRITE: dict[str, Callable[[_Writer, Any], None]] = {
    "string": _Writer.text,
    "bytes": _Writer.bytes,
    "bigint": _Writer.integer,
    "decimal": _Writer.decimal,
    "uuid": _Writer.uuid,
    "timestamp": _Writer.timestamp,
}
