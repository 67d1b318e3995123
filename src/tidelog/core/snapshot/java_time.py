"""What Java writes of the values of `java.time`: one byte that names the class, then packed fields.

They are read as the texts that Java shows them as, which databases read too (of a zone only its offset); they are never
written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Packed:
    """The bytes of one value, read from the front. What cannot be read is a `ValueError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        try:
            (found,) = struct.unpack_from(">" + form, self._data, self._at)
        except struct.error:
            raise ValueError("it ends too early") from None
        self._at += struct.calcsize(">" + form)
        return int(found)

    def text(self) -> str:
        length = self.number("H")
        self._at += length
        return self._data[self._at - length : self._at].decode("ascii")


def read(data: bytes) -> tuple[str, str]:
    """The kind of a value, and its text."""
    packed = Packed(data)
    tag = packed.number("B")
    if tag not in _KINDS:
        raise ValueError(f"it is a java.time.{_OTHERS.get(tag, tag)}")
    kind, render = _KINDS[tag]
    return kind, render(packed)


def instant(seconds: int, nanos: int) -> str:
    """`2020-09-22 00:09:37.123456789`, in UTC."""
    try:
        day = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("it is not in the years 1 to 9999") from None
    return f"{day:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + _fraction(nanos)


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


def _shown(nanos: int) -> str:
    """Java shows thousandths, millionths or billionths."""
    digits = next((n for n in (3, 6) if nanos % 10 ** (9 - n) == 0), 9)
    return f".{nanos:09d}"[: digits + 1] if nanos else ""


def _date(packed: Packed) -> str:
    year, month, day = packed.number("i"), packed.number("b"), packed.number("b")
    return f"{year:0{5 if year < 0 else 4}d}-{month:02d}-{day:02d}"


def _time(packed: Packed) -> str:
    """Fields that are zero at the end are left out; then the last one that is there is inverted."""
    fields: list[int] = []
    while len(fields) < 3:
        field = packed.number("b")
        fields.append(field if field >= 0 else ~field)
        if field < 0:
            break
    else:
        return _clock(fields, packed.number("i"))
    return _clock(fields, 0)


def _clock(fields: list[int], nanos: int) -> str:
    """Java shows seconds only where there are any."""
    hour, minute, second = (*fields, 0, 0)[:3]
    return f"{hour:02d}:{minute:02d}" + (f":{second:02d}{_shown(nanos)}" if second or nanos else "")


def _moment(packed: Packed) -> str:
    return f"{_date(packed)}T{_time(packed)}"


def _offset(packed: Packed) -> str:
    quarters = packed.number("b")
    seconds = packed.number("i") if quarters == 127 else quarters * 900
    if seconds == 0:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return text + (f":{rest:02d}" if rest else "")


def _instant(packed: Packed) -> str:
    seconds, nanos = packed.number("q"), packed.number("i")
    return instant(seconds, 0).replace(" ", "T") + _shown(nanos) + "Z"


_KINDS: dict[int, tuple[str, Callable[[Packed], str]]] = {
    2: ("instant", _instant),
    3: ("local_date", _date),
    4: ("local_time", _time),
    5: ("local_date_time", _moment),
    6: ("zoned_date_time", lambda packed: _moment(packed) + _offset(packed)),  # the zone's name adds nothing to it
    9: ("offset_time", lambda packed: _time(packed) + _offset(packed)),
    10: ("offset_date_time", lambda packed: _moment(packed) + _offset(packed)),
}

_OTHERS = {1: "Duration", 7: "ZoneRegion", 8: "ZoneOffset", 11: "Year", 12: "YearMonth", 13: "MonthDay", 14: "Period"}
