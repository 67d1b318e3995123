"""Oracle's internal bytes of values, where LogMiner writes nothing else.

When its dictionary does not know a table's version, columns are numbered and values come as `HEXTORAW('…')` of what
stands in the block.
"""

from __future__ import annotations

import struct
from decimal import Context, Decimal

_EXACT = Context(prec=64)


def number(data: bytes) -> str:
    """A NUMBER: a byte for sign and exponent, then digits of base 100, each one more than it is."""
    if data == b"\x80":
        return "0"
    positive = bool(data[0] & 0x80)
    exponent = ((data[0] if positive else ~data[0]) & 0x7F) - 65
    digits = [d - 1 if positive else 101 - d for d in data[1:] if positive or d != 102]
    if not digits or not all(0 <= d <= 99 for d in digits):
        raise ValueError("no number")
    whole = int("".join(f"{d:02d}" for d in digits))
    found = Decimal(whole if positive else -whole).scaleb(2 * (exponent + 1 - len(digits)), _EXACT)
    text = f"{found:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def moment(data: bytes) -> str:
    """A DATE of 7 bytes, or a TIMESTAMP of 11 with nanoseconds; one with a time zone has two more, and is in UTC."""
    century, year, month, day, hour, minute, second = data[:7]
    years = (century - 100) * 100 + year - 100
    text = f"{abs(years):04d}-{month:02d}-{day:02d} {hour - 1:02d}:{minute - 1:02d}:{second - 1:02d}"
    nanos = int.from_bytes(data[7:11], "big")
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return text + fraction + (" +00:00" if len(data) == 13 else "") + (" BC" if years < 0 else "")


def binary(data: bytes) -> str:
    """A BINARY_FLOAT or BINARY_DOUBLE: IEEE, changed so that bytes sort as the numbers do."""
    plain = bytes([data[0] & 0x7F]) + data[1:] if data[0] & 0x80 else bytes(b ^ 0xFF for b in data)
    return repr(struct.unpack(">f" if len(data) == 4 else ">d", plain)[0])
