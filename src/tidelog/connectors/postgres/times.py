"""PostgreSQL's dates and times (DateStyle ISO, TimeZone UTC) as numbers and as ISO 8601 texts.

Arrow parses the ordinary ones, years 1 to 9999, at full speed. The others are rare and go one by one: years before
Christ and after 9999, `24:00:00`, and the infinities, which become the largest and smallest number of the type as
they are in PostgreSQL itself.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import Ints, Mask, Places, as_mask, build, cast, flat, inner, only, values

DATE = pa.date32()
LOCAL = pa.timestamp("us")
UTC = pa.timestamp("us", "UTC")

_ORDINARY = r"^\d{4}-\d\d-\d\d( [01]\d:\d\d:\d\d(\.\d+)?| 2[0-3]:\d\d:\d\d(\.\d+)?)?([+-]\d\d(:\d\d)?)?$"
_ORDINARY_UTC = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$"
_ANY = re.compile(
    r"(?P<date>(\d{4,})-(\d\d)-(\d\d))"
    r"(?: (?P<time>(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)(?P<zone>([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?)?(?P<bc> BC)?"
)
_DAY_S = 86_400


def instants(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Dates as days, timestamps as microseconds since 1970; what does not fit is null and marked."""
    if not _has_letters(texts):
        try:
            return texts.cast(kind), np.zeros(len(texts), np.bool_)
        except pa.ArrowInvalid:
            pass
    ordinary = as_mask(pc.match_substring_regex(texts, _ORDINARY))
    numbers, failed = cast(only(texts, ordinary), kind)
    rare = np.flatnonzero(~ordinary & as_mask(texts.is_valid()))
    coded, is_date = texts.take(pa.array(rare)).dictionary_encode(), kind == DATE
    found = [_rare(text or "", is_date) for text in values(coded.dictionary)]
    return _fill(numbers, failed, rare, found, coded.indices.to_numpy())


def _has_letters(texts: pa.StringArray) -> bool:
    """Whether there are infinities or years BC: trying in vain costs a microsecond for each."""
    return bool((flat(texts)[0] > ord(":")).any())


def _fill(known: pa.Array, failed: Mask, rows: Ints, found: list[int | None], which: Places) -> tuple[pa.Array, Mask]:
    """Put `found[which]` at `rows`: each distinct text is parsed once, for infinities come by the thousand."""
    whole = pa.int32() if known.type == DATE else pa.int64()
    nulls = as_mask(known.is_null()).copy()
    numbers = known.view(whole).fill_null(0).to_numpy(zero_copy_only=False).copy()
    nulls[rows] = failed[rows] = np.array([number is None for number in found], np.bool_)[which]
    numbers[rows] = np.array([number or 0 for number in found], np.int64)[which]
    return pa.array(numbers, whole, mask=nulls).view(known.type), failed


def _rare(text: str, is_date: bool) -> int | None:
    """One value of the rare kinds as days or microseconds; None if it is none or does not fit."""
    limits = np.iinfo(np.int32 if is_date else np.int64)
    if text in ("infinity", "-infinity"):
        return int(limits.max if text == "infinity" else limits.min)
    match = _ANY.fullmatch(text)
    days = _days(_year(match), int(match[3]), int(match[4])) if match else None
    if match is None or days is None:
        return None
    number = days if is_date else (days * _DAY_S + _seconds(match)) * 1_000_000 + int((match[9] or "").ljust(6, "0"))
    # The extremes themselves mean infinity.
    return number if limits.min < number < limits.max else None


def _year(match: re.Match[str]) -> int:
    """The astronomical year: 1 BC is 0."""
    return 1 - int(match[2]) if match["bc"] else int(match[2])


def _seconds(match: re.Match[str]) -> int:
    """Seconds of the day in UTC."""
    hours, minutes, seconds = (int(match[i] or 0) for i in (6, 7, 8))
    ahead = sum(int(match[i] or 0) * unit for i, unit in ((12, 3600), (13, 60), (14, 1)))
    return hours * 3600 + minutes * 60 + seconds - (-ahead if match[11] == "-" else ahead)


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year: 400 years always have 146,097 days."""
    shift = year // 400 - 4
    try:
        return (date(year - shift * 400, month, day) - date(1970, 1, 1)).days + shift * 146_097
    except ValueError:
        return None


def micros(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Times of day as microseconds; `24:00:00` is one too."""
    moments, failed = instants(pc.binary_join_element_wise("1970-01-01", texts, " "), LOCAL)
    return moments.view(pa.int64()), failed


def iso(texts: pa.StringArray) -> pa.StringArray:
    """Timestamps as ISO 8601; the zone is UTC, or there is none. Infinities keep their PostgreSQL name."""
    ordinary = as_mask(pc.match_substring_regex(texts, _ORDINARY_UTC))
    if ordinary.sum() == len(texts) - texts.null_count:
        data, offsets = flat(texts)
        data = data.copy()
        data[offsets[:-1][ordinary] + 10] = ord("T")
        return pc.binary_join_element_wise(inner(build(data, offsets, texts), 0, tail=3), "Z", "")
    return pa.array([None if text is None else _iso(text) for text in values(texts)], pa.string())


def iso_local(texts: pa.StringArray) -> pa.StringArray:
    """Dates, and timestamps without a zone, as ISO 8601."""
    if not as_mask(pc.match_substring_regex(texts, r"^(\d{5}|[^\d])|BC$")).any():
        return pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pa.array([None if text is None else _iso(text) for text in values(texts)], pa.string())


@lru_cache(maxsize=1024)
def _iso(text: str) -> str:
    match = _ANY.fullmatch(text)
    if match is None:
        return text
    year = _year(match)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    day = f"{sign}{abs(year):04d}-{match[3]}-{match[4]}"
    zone = match["zone"] or ""
    zone = "Z" if zone == "+00" else f"{zone}:00" if len(zone) == 3 else zone
    return day + (f"T{match['time']}{zone}" if match["time"] else "")


def iso_zoned_time(texts: pa.StringArray) -> pa.StringArray:
    """Times with a zone: `+02` becomes `+02:00`, and UTC is `Z`."""
    full = pc.replace_substring_regex(texts, r"([+-]\d\d)$", r"\1:00")
    return pc.replace_substring_regex(full, r"\+00:00$", "Z")
