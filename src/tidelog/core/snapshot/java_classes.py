"""The values of keys as Java holds them, and their classes as a stream describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WROTE, SERIAL, EXTERNAL, IN_BLOCKS = 1, 2, 4, 8
"""How objects of a class are written: by a method of its own, field by field, wholly by themselves; in blocks."""


@dataclass(frozen=True)
class JavaValue:
    """`kind` names the class; `value` is the nearest of Python: int, float, bool, str, bytes, `Decimal`, `UUID`.

    A `timestamp` is (milliseconds since 1970, nanoseconds of its second); `date`, `sql_date` and `sql_time` are
    milliseconds since 1970; what is of `java.time` is the text that Java shows it as.
    """

    kind: str
    value: Any


Values = tuple[JavaValue | None, ...]


@dataclass(frozen=True)
class JavaClass:
    name: str
    serial: int
    flags: int
    fields: tuple[tuple[str, str], ...] = ()
    """(type, name): the type is one letter, or the signature of a class."""
    parent: JavaClass | None = None

    def line(self) -> list[JavaClass]:
        """From the root down to this class: the order of the data of an object."""
        return [*(self.parent.line() if self.parent else ()), self]


NUMBER = JavaClass("java.lang.Number", 0x86AC951D0B94E08B, SERIAL)
DATE = JavaClass("java.util.Date", 0x686A81014B597419, SERIAL | WROTE)
OBJECTS = JavaClass("[Ljava.lang.Object;", 0x90CE589F1073296C, SERIAL)
BYTES = JavaClass("[B", 0xACF317F8060854E0, SERIAL)
BIG_INTEGER = JavaClass(
    "java.math.BigInteger",
    0x8CFC9F1FA93BFB1D,
    SERIAL | WROTE,
    (
        ("I", "bitCount"),
        ("I", "bitLength"),
        ("I", "firstNonzeroByteNum"),
        ("I", "lowestSetBit"),
        ("I", "signum"),
        ("[B", "magnitude"),
    ),
    NUMBER,
)
BIG_DECIMAL = JavaClass(
    "java.math.BigDecimal",
    0x54C71557F981284F,
    SERIAL | WROTE,
    (("I", "scale"), ("Ljava/math/BigInteger;", "intVal")),
    NUMBER,
)
UUID = JavaClass("java.util.UUID", 0xBC9903F7986D852F, SERIAL, (("J", "leastSigBits"), ("J", "mostSigBits")))
TIMESTAMP = JavaClass("java.sql.Timestamp", 0x2618D5C80153BF65, SERIAL, (("I", "nanos"),), DATE)


def _boxed(name: str, serial: int, letter: str, parent: JavaClass | None = NUMBER) -> JavaClass:
    return JavaClass(f"java.lang.{name}", serial, SERIAL, ((letter, "value"),), parent)


BOXED = {
    "int": _boxed("Integer", 0x12E2A0A4F7818738, "I"),
    "long": _boxed("Long", 0x3B8BE490CC8F23DF, "J"),
    "short": _boxed("Short", 0x684D37133460DA52, "S"),
    "byte": _boxed("Byte", 0x9C4E6084EE50F51C, "B"),
    "double": _boxed("Double", 0x80B3C24A296BFB04, "D"),
    "float": _boxed("Float", 0xDAEDC9A2DB3CF0EC, "F"),
    "boolean": _boxed("Boolean", 0xCD207280D59CFAEE, "Z", None),
}
DATES = {
    "date": DATE,
    "sql_date": JavaClass("java.sql.Date", 0x14FA46683F356697, SERIAL, (), DATE),
    "sql_time": JavaClass("java.sql.Time", 0x74894A0DD932C471, SERIAL, (), DATE),
}
