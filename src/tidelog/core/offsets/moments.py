"""Moments of offset documents, for people: `2020-09-22 00:09:37 UTC`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidelog.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(
    r"(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))T((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?Z",
    re.ASCII,
)


def utc(microseconds: int) -> str:
    """To the second; a number beyond all calendars is shown as it is."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} µs after 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def instant(text: str) -> tuple[datetime, int]:
    """`2023-01-01T00:00:00.000000001Z` as second and nanosecond, which compare."""
    found = _INSTANT.fullmatch(text)
    try:
        if found:
            second = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00")
            return second, int((found[3] or "0").ljust(9, "0"))
    except ValueError:
        pass  # such as 30 February: no moment either
    raise ConfigError(f"{text[:60]!r} is no moment in UTC.", hint="Write it like 2023-01-01T00:00:00.000000000Z.")
