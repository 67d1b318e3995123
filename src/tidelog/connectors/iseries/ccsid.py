"""Character sets by their CCSID: whole columns of bytes to UTF-8.

A set of single bytes is a table of 256 characters, so a column is translated by looking each byte up, all at once. The
others (UTF-8, UTF-16, and sets of double bytes) are rarer and go value by value, except UTF-8, which is done already.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Bytes, Ints, Mask, build, checked

UTF8 = 1208
_UTF16 = (1200, 13488, 61952)
_SAME = {
    819: "latin-1",
    850: "cp850",
    923: "iso8859-15",
    1208: "utf-8",
    1250: "cp1250",
    1252: "cp1252",
    367: "ascii",
    437: "cp437",
}
_EURO = {1140: ("cp037", 0x9F), 1141: ("cp273", 0x9F), 1148: ("cp500", 0x9F)}
"""Like another set, but for the euro sign."""


def codec(ccsid: int) -> str | None:
    """Python's name of the set; None when it has none."""
    if ccsid in _UTF16:
        return "utf-16-be"
    if ccsid in _EURO:
        return _EURO[ccsid][0]
    for name in (_SAME.get(ccsid), f"cp{ccsid:03d}", f"cp{ccsid}"):
        if name is not None:
            try:
                return codecs.lookup(name).name
            except LookupError:
                continue
    return None


def known(ccsid: int) -> bool:
    return codec(ccsid) is not None


def texts(data: Bytes, offsets: Ints, ccsid: int, valid: Mask) -> tuple[pa.StringArray, Mask]:
    """The values that stand one after the other in `data`; which of them are not text in their set."""
    if ccsid == UTF8:
        found, failed = checked(_array(data, offsets, valid))
        return found, failed
    if ccsid in _UTF16 or (table := _table(ccsid)) is None:
        return _one_by_one(data, offsets, ccsid, valid)
    letters, lengths = table
    wide = lengths[data]
    ends = np.concatenate(([0], np.cumsum(wide, dtype=np.int64)))
    place = np.arange(letters.shape[1])
    content = letters[data][place < wide[:, None]] if len(data) else data
    failed = np.zeros(len(offsets) - 1, np.bool_)
    if (wide == 0).any():  # a byte that the set leaves out
        failed[np.searchsorted(offsets, np.flatnonzero(wide == 0), "right") - 1] = True
    return _array(content, ends[offsets], valid & ~failed), failed & valid


def _array(data: Bytes, offsets: Ints, valid: Mask) -> pa.StringArray:
    return build(data, offsets, None if valid.all() else pa.array(valid, mask=~valid))


@lru_cache(maxsize=64)
def _table(ccsid: int) -> tuple[Bytes, Ints] | None:
    """The UTF-8 bytes of each of 256 characters, and how many they are; None for a set of double bytes."""
    name = codec(ccsid)
    if name is None:
        return None
    found = [_letter_of(bytes([byte]), name) for byte in range(256)]
    if ccsid in _EURO:
        found[_EURO[ccsid][1]] = "€".encode()
    if any(_leads(byte, name) for byte, letter in enumerate(found) if not letter):
        return None
    letters = np.zeros((256, 4), np.uint8)
    for byte, letter in enumerate(found):
        letters[byte, : len(letter)] = list(letter)
    return letters, np.array([len(letter) for letter in found], np.int64)


def _letter_of(raw: bytes, name: str) -> bytes:
    try:
        return raw.decode(name).encode()
    except UnicodeDecodeError:
        return b""


def _leads(byte: int, name: str) -> bool:
    """Whether a byte that is no character begins one of several bytes."""
    return any(_letter_of(bytes([byte, second]), name) for second in range(0x40, 0x100))


def _one_by_one(data: Bytes, offsets: Ints, ccsid: int, valid: Mask) -> tuple[pa.StringArray, Mask]:
    name, raw, failed = codec(ccsid) or "ascii", data.tobytes(), np.zeros(len(valid), np.bool_)
    found: list[str | None] = [None] * len(valid)
    for row in np.flatnonzero(valid).tolist():
        try:
            found[row] = raw[offsets[row] : offsets[row + 1]].decode(name)
        except UnicodeDecodeError:
            failed[row] = True
    return pa.array(found, pa.string()), failed
