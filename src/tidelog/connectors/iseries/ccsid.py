"""Character sets by their CCSID: whole columns of bytes to UTF-8.

A set of single bytes is a table of 256 characters, so a column is translated by looking each byte up, all at once. The
others (UTF-8, UTF-16, and sets of double bytes) are rarer and go value by value, except UTF-8, which is done already.

Python has few of the national EBCDIC sets. Each of the others is a permutation of Latin-1 that differs from CCSID 37
in a few places; the differences below are those on which the tables of ICU and of OpenJDK agree.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidelog.core.strings import Bytes, Ints, Mask, build, checked

UTF8 = 1208
_UTF16 = (1200, 13488, 61952)
_SUBSTITUTE = 0x3F
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
_NATIONAL = {
    273: ("cp273", "bc", "¯"),
    277: ("cp037", "474a4f5a5b5f676a707b7c809c9e9fa1b0babbc0d0dc", "}#!¤Å^$ø¦ÆØ@{[]ü¢¬|æå~"),
    278: ("cp037", "43474a4f515a5b5f63676a71797b7c9fa1b0b5babbc0ccd0dce0ec", "{}§!`¤Å^#$ö\\éÄÖ]ü¢[¬|ä¦å~É@"),
    280: ("cp037", "44484a4f5154585a5f6a797b7c90a1b0b1b5babbc0cdd0dde0", "{\\°!]}~é^òù£§[ì¢#@¬|à¦è`ç"),
    284: ("cp037", "494a5a696a7ba1b0babbbd", "¦[]#ñÑ¨¢^!~"),
    285: ("cp037", "4a5ba1b0b1babc", "$£¯¢[^~"),
    297: ("cp037", "44484a4f51545a5f6a797b7c90a0a1b0b1b5babbbdc0d0dde0", "@\\°!{}§^ùµ£à[`¨¢#]¬|~éè¦ç"),
    871: ("cp037", "4a4f5a5f797c8c8e9c9ea1acaeb0babbbec0ccd0e0ec", "Þ!ÆÖðÐ`{}]ö@[¢¬|\\þ~æ´^"),  # noqa: RUF001
}
"""Python's nearest set, the bytes in which the set differs from it, and what they are. (Python's own table of 273 has
an overline, which Latin-1 has not, for the macron.)"""
_EURO = {1140: 37, 1141: 273, 1142: 277, 1143: 278, 1144: 280, 1145: 284, 1146: 285, 1147: 297, 1148: 500, 1149: 871}
"""Like another set, but the euro sign stands where that has its currency sign."""


def codec(ccsid: int) -> str | None:
    """Python's name of the set, or of the one that `letters_of` changes a little; None when there is neither."""
    ccsid = _EURO.get(ccsid, ccsid)
    if ccsid in _UTF16:
        return "utf-16-be"
    if ccsid in _NATIONAL:
        return _NATIONAL[ccsid][0]
    for name in (_SAME.get(ccsid), f"cp{ccsid:03d}", f"cp{ccsid}"):
        if name is not None:
            try:
                return codecs.lookup(name).name
            except LookupError:
                continue
    return None


def known(ccsid: int) -> bool:
    return codec(ccsid) is not None


def encode(text: str, ccsid: int) -> bytes:
    """The other way round, for one value. A character that the set lacks becomes its substitute, which no text has."""
    name = codec(ccsid) or "ascii"
    if ccsid == UTF8 or ccsid in _UTF16 or _table(ccsid) is None:
        return text.encode(name, "replace")
    places = {letter.decode(): byte for byte, letter in enumerate(letters_of(ccsid, name)) if letter}
    return bytes(places.get(letter, _SUBSTITUTE) for letter in text)


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
    found = letters_of(ccsid, name)
    if any(_leads(byte, name) for byte, letter in enumerate(found) if not letter):
        return None
    letters = np.zeros((256, 4), np.uint8)
    for byte, letter in enumerate(found):
        letters[byte, : len(letter)] = list(letter)
    return letters, np.array([len(letter) for letter in found], np.int64)


def letters_of(ccsid: int, name: str) -> list[bytes]:
    """Each byte alone, as UTF-8; nothing where it is no character."""
    found = [_letter_of(bytes([byte]), name) for byte in range(256)]
    _, places, letters = _NATIONAL.get(_EURO.get(ccsid, ccsid), (name, "", ""))
    for byte, letter in zip(bytes.fromhex(places), letters, strict=True):
        found[byte] = letter.encode()
    return ["€".encode() if letter == "¤".encode() else letter for letter in found] if ccsid in _EURO else found


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
