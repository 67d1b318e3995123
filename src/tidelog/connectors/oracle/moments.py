"""Dates, times and intervals as Oracle writes them, to the one form that the decoder reads.

    2024-02-29 12:30:00.5            dates and timestamps, the fraction without trailing zeros
    2024-02-29 12:30:00.5+01:00      those with a time zone
    P1DT2H, P1Y2M                    intervals, ISO 8601

Texts in the session's own format are dealt with column by column; one by one go those with a format of their own, and
years before Christ.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import Bytes, Ints, flat, gather, valid_rows, values

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ELEMENTS = {
    "SYYYY": r"(?P<year>[- ]?\d{4})",
    "YYYY": r"(?P<year>\d{4})",
    "RRRR": r"(?P<year>\d{4})",
    "RR": r"(?P<short>\d{2})",
    "YY": r"(?P<short>\d{2})",
    "MONTH": r"(?P<name>[A-Za-z]+)\s*",
    "MON": r"(?P<name>[A-Za-z]{3})",
    "MM": r"(?P<month>\d{1,2})",
    "DD": r"(?P<day>\d{1,2})",
    "HH24": r"(?P<hour>\d{1,2})",
    "HH12": r"(?P<hour>\d{1,2})",
    "HH": r"(?P<hour>\d{1,2})",
    "MI": r"(?P<minute>\d{1,2})",
    "SS": r"(?P<second>\d{1,2})",
    "TZH": r"(?P<zone>[+-]\d{2})",
    "TZM": r"(?P<zone_minute>\d{2})",
    "AM": r"(?P<half>[AP]\.?M\.?)",
    "PM": r"(?P<half>[AP]\.?M\.?)",
    "BC": r"(?P<era>[AB]\.?[DC]\.?)",
    "AD": r"(?P<era>[AB]\.?[DC]\.?)",
}
_TOKEN = re.compile(r"[.,]?\s*X?FF\d?|" + "|".join(_ELEMENTS) + r"|\W", re.I)
_FRACTION = r"(?:[.,](?P<fraction>\d*))?"
_DAYS = re.compile(r"([+-]?)(\d+) (\d{1,2}):(\d{2}):(\d{2})(?:\.(\d*))?")
_YEARS = re.compile(r"([+-]?)(\d+)-(\d{1,2})")
_ANY = "SYYYY-MM-DD HH24:MI:SS.FF"
_ZONED = f"{_ANY} TZH:TZM"
_SECONDS = 19
"""Characters up to the second."""


def local(texts: pa.StringArray) -> pa.StringArray:
    """Texts without a zone: trailing zeros of the fraction go, and a point with nothing behind it."""
    data, offsets = flat(texts)
    starts, ends = offsets[:-1], offsets[1:]
    if len(data) and np.isin(data[starts[ends > starts]], (ord("-"), ord(" "))).any():
        return _each(texts, _ANY)
    places = starts + _SECONDS
    pointed = (ends > places) & (data[np.minimum(places, len(data) - 1)] == ord(".")) if len(data) else ends > places
    if not pointed.any():
        return texts
    return gather(pa.py_buffer(data), starts, _trimmed(data, places, ends, np.flatnonzero(pointed)), valid_rows(texts))


def _trimmed(data: Bytes, points: Ints, ends: Ints, rows: Ints) -> Ints:
    """The ends without zeros, of `rows` only: all of them step back together, as long as there is a zero."""
    found = ends.copy()
    while len(rows):
        last = data[found[rows] - 1]
        found[rows[(last == ord(".")) & (found[rows] - 1 == points[rows])]] -= 1
        rows = rows[last == ord("0")]
        found[rows] -= 1
    return found


def zoned(texts: pa.StringArray) -> pa.StringArray:
    """Texts with a zone, `+01:00` behind a blank or nothing; without one they are in UTC, the session's."""
    joined = pc.replace_substring_regex(texts, r" ?([+-]\d\d:\d\d)$", r"\1")
    full = pc.replace_substring_regex(joined, r"^([^+]{19}[^+-]*)$", r"\1+00:00")
    short = pc.replace_substring_regex(full, r"(\.\d*[1-9])0+([+-])", r"\1\2")
    return pc.replace_substring_regex(short, r"\.0*([+-])", r"\1")


def intervals(texts: pa.StringArray) -> pa.StringArray:
    coded = texts.dictionary_encode()
    return pa.array([interval(text or "") for text in values(coded.dictionary)], pa.string()).take(coded.indices)


def interval(text: str) -> str:
    """`+01 02:03:04.5` is P1DT2H3M4.5S, `-01-02` is P-1Y-2M; what is neither stays what it is."""
    years, days = _YEARS.fullmatch(text), _DAYS.fullmatch(text)
    if years is not None:
        return _iso(years[1], [(years[2], "Y"), (years[3], "M")], [])
    if days is None:
        return text
    fraction = (days[6] or "").rstrip("0")
    seconds = f"{int(days[5])}.{fraction}" if fraction else days[5]
    return _iso(days[1], [(days[2], "D")], [(days[3], "H"), (days[4], "M"), (seconds, "S")])


def _iso(sign: str, large: list[tuple[str, str]], small: list[tuple[str, str]]) -> str:
    sign = sign.replace("+", "")
    told = ["".join(f"{sign}{_plain(n)}{unit}" for n, unit in part if float(n)) for part in (large, small)]
    return "P" + told[0] + (f"T{told[1]}" if told[1] else "") if any(told) else "PT0S"


def _plain(number: str) -> str:
    return number if "." in number else str(int(number))


def _each(texts: pa.StringArray, form: str) -> pa.StringArray:
    return pa.array([None if text is None else parse(text, form) or text for text in values(texts)], pa.string())


def parse(text: str, form: str | None = None) -> str | None:
    """A text of `TO_DATE` and its like in the format that it names, else in the session's; None if it has another."""
    for candidate in (form,) if form else (_ANY, _ZONED):
        found = _pattern(candidate).fullmatch(text.strip())
        if found is not None:
            return _written(found.groupdict())
    return None


def _written(parts: dict[str, str | None]) -> str | None:
    def whole(name: str, default: int = 0) -> int:
        return int(parts.get(name) or default)

    month = whole("month", 1)
    name = (parts.get("name") or "").upper()[:3]
    if name:
        month = _MONTHS.index(name) + 1 if name in _MONTHS else 0
    year = whole("year") if parts.get("year") else _century(whole("short"))
    hour, half = whole("hour"), (parts.get("half") or "").upper()[:1]
    hour = hour % 12 + 12 * (half == "P") if half else hour
    if not month:
        return None
    day = f"{abs(year):04d}-{month:02d}-{whole('day', 1):02d}"
    fraction = (parts.get("fraction") or "").rstrip("0")
    zone = f"{parts['zone']}:{parts.get('zone_minute') or '00'}" if parts.get("zone") else ""
    before = year < 0 or (parts.get("era") or "").upper()[:1] == "B"
    clock = f"{hour:02d}:{whole('minute'):02d}:{whole('second'):02d}"
    return f"{day} {clock}" + (f".{fraction}" if fraction else "") + zone + (" BC" if before else "")


def _century(short: int) -> int:
    """Two digits as Oracle's RR reads them in the first half of a century."""
    return short + (2000 if short < 50 else 1900)


@lru_cache(maxsize=64)
def _pattern(form: str) -> re.Pattern[str]:
    """A format of Oracle's as a regular expression; the time may be left out."""
    found, seen = "", set()
    for token in _TOKEN.finditer(form):
        name = token[0].upper()
        if "FF" in name:
            found += _FRACTION
        elif name in _ELEMENTS:
            group = re.search(r"\?P<(\w+)>", _ELEMENTS[name])
            found += _ELEMENTS[name] if group is None or group[1] not in seen else r"\w+"
            seen |= {group[1]} if group else set()
        else:
            found += r"\s+" if name.isspace() else re.escape(name)
    return re.compile(found, re.A)
