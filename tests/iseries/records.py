"""How a file lays out its rows, written down once more and independently of the connector: value by value."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

CODECS = {37: "cp037", 273: "cp273", 500: "cp500", 1140: "cp1140", 1208: "utf-8", 1200: "utf-16-be"}


@dataclass(frozen=True)
class Field:
    """A column as QSYS2.SYSCOLUMNS describes it."""

    name: str
    type: str
    length: int = 0
    scale: int | None = None
    nullable: bool = False
    ccsid: int | None = None
    fraction: int | None = None

    def described(self) -> list[Any]:
        nullable = "Y" if self.nullable else "N"
        return [self.name, self.type, self.length, self.scale, nullable, self.ccsid, self.fraction]

    def encode(self, value: Any) -> bytes:
        """NULL leaves a default, whose bytes nobody may look at."""
        return self._encode(self.default() if value is None else value)

    def default(self) -> Any:
        match self.type:
            case "DATE":
                return date(1, 1, 1)
            case "TIME":
                return time(0, 0)
            case "TIMESTMP":
                return datetime(1, 1, 1)
            case "CHAR" | "VARCHAR" | "GRAPHIC" | "VARG":
                return b"" if self.ccsid == 65535 else ""
            case "BINARY" | "VARBIN":
                return b""
            case "FLOAT":
                return 0.0
            case "BOOLEAN":
                return False
        return Decimal(0) if self.type in ("DECIMAL", "NUMERIC") else 0

    def _encode(self, value: Any) -> bytes:
        match self.type:
            case "SMALLINT" | "INTEGER" | "BIGINT":
                return int(value).to_bytes({"SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}[self.type], "big", signed=True)
            case "FLOAT":
                return struct.pack(">f" if self.length == 4 else ">d", value)
            case "BOOLEAN":
                return b"\xf1" if value else b"\xf0"
            case "DECFLOAT":
                return floating(Decimal(value), self.length)
            case "DECIMAL":
                return packed(value, self.length, self.scale or 0)
            case "NUMERIC":
                return zoned(value, self.length, self.scale or 0)
            case "DATE":
                return bytes(value.isoformat().encode("cp037"))
            case "TIME":
                return bytes(value.strftime("%H.%M.%S").encode("cp037"))
            case "TIMESTMP":
                return self._timestamp(value).encode("cp037")
        return self._text(value)

    def _timestamp(self, value: datetime) -> str:
        day = f"{value.year:04d}-{value.month:02d}-{value.day:02d}-"
        digits = 6 if self.fraction is None else self.fraction
        tail = f".{value.microsecond:06d}".ljust(digits + 1, "0")[: digits + 1] if digits else ""
        return day + value.strftime("%H.%M.%S") + tail

    def _text(self, value: str | bytes) -> bytes:
        raw = value if isinstance(value, bytes) else value.encode(CODECS[self.ccsid or 37])
        double = self.type in ("GRAPHIC", "VARG")
        size = self.length * (2 if double else 1)
        if self.type.startswith("VAR"):
            return (len(raw) // (2 if double else 1)).to_bytes(2, "big") + raw.ljust(size, b"\0")
        blank = b"\0" if isinstance(value, bytes) else " ".encode(CODECS[self.ccsid or 37])
        return raw + blank * ((size - len(raw)) // len(blank))


def unscaled(value: Decimal, scale: int) -> int:
    """All digits, however many."""
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
    return -number if sign else number


def packed(value: Decimal, digits: int, scale: int) -> bytes:
    number = unscaled(value, scale)
    text = f"{abs(number):0{digits}d}" + ("D" if number < 0 else "F")
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def zoned(value: Decimal, digits: int, scale: int) -> bytes:
    number = unscaled(value, scale)
    raw = bytearray(0xF0 | int(digit) for digit in f"{abs(number):0{digits}d}")
    if number < 0:
        raw[-1] = 0xD0 | raw[-1] & 15
    return bytes(raw)


def floating(value: Decimal, size: int) -> bytes:
    """Decimal floating point: sign, the head of exponent and coefficient together, the rest of each."""
    count, continued, bias = {8: (16, 8, 398), 16: (34, 12, 6176)}[size]
    sign, found, scale = value.as_tuple()
    digits, exponent = (0,) * (count - len(found)) + found, int(scale) + bias
    high, first = exponent >> continued, digits[0]
    lead = 24 | high << 1 | first & 1 if first > 7 else high << 3 | first
    bits = (sign << 5 | lead) << continued | exponent & (1 << continued) - 1
    for i in range(1, count, 3):
        bits = bits << 10 | _dense(*digits[i : i + 3])
    return bits.to_bytes(size, "big")


def _dense(one: int, two: int, three: int) -> int:
    """Three digits in ten bits, as Cowlishaw's table has them: by which of the digits are 8 or 9."""
    (_, b, c, d), (_, f, g, h), (_, j, k, m) = ([n >> 3, n >> 2 & 1, n >> 1 & 1, n & 1] for n in (one, two, three))
    rows = {
        (0, 0, 0): (b, c, d, f, g, h, 0, j, k, m),
        (0, 0, 1): (b, c, d, f, g, h, 1, 0, 0, m),
        (0, 1, 0): (b, c, d, j, k, h, 1, 0, 1, m),
        (1, 0, 0): (j, k, d, f, g, h, 1, 1, 0, m),
        (1, 1, 0): (j, k, d, 0, 0, h, 1, 1, 1, m),
        (1, 0, 1): (f, g, d, 0, 1, h, 1, 1, 1, m),
        (0, 1, 1): (b, c, d, 1, 0, h, 1, 1, 1, m),
        (1, 1, 1): (0, 0, d, 1, 1, h, 1, 1, 1, m),
    }
    return int("".join(map(str, rows[one >> 3, two >> 3, three >> 3])), 2)


def image(fields: tuple[Field, ...], row: tuple[Any, ...]) -> bytes:
    return b"".join(field.encode(value) for field, value in zip(fields, row, strict=True))


def nulls(fields: tuple[Field, ...], row: tuple[Any, ...]) -> str:
    """Blank for a file without a nullable field."""
    if not any(field.nullable for field in fields):
        return ""
    return "".join("1" if value is None else "0" for value in row)
