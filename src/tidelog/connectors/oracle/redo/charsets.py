"""Oracle's names of character sets, as Python knows them."""

from __future__ import annotations

import codecs
import re

from tidelog.errors import ConfigError

_NAMES = {
    "AL32UTF8": "utf-8",
    "UTF8": "utf-8",
    "AL16UTF16": "utf-16-be",
    "AL16UTF16LE": "utf-16-le",
    "US7ASCII": "ascii",
    "JA16SJIS": "cp932",
    "JA16SJISTILDE": "cp932",
    "JA16EUC": "euc-jp",
    "KO16KSC5601": "euc-kr",
    "KO16MSWIN949": "cp949",
    "ZHS16CGB231280": "gb2312",
    "ZHS16GBK": "gbk",
    "ZHS32GB18030": "gb18030",
    "ZHT16BIG5": "big5",
    "ZHT16MSWIN950": "cp950",
    "ZHT16HKSCS": "big5hkscs",
    "TH8TISASCII": "tis-620",
    "CL8KOI8R": "koi8-r",
    "CL8KOI8U": "koi8-u",
}
_PATTERNS = ((re.compile(r"\w+?8ISO8859P(\d+)"), "iso8859-{}"), (re.compile(r"\w+?8MSWIN(\d+)"), "cp{}"))


def codec(charset: str) -> str:
    """Python's name of the character set."""
    if charset in _NAMES:
        return _NAMES[charset]
    for pattern, name in _PATTERNS:
        found = pattern.fullmatch(charset)
        if found is not None:
            return codecs.lookup(name.format(found[1])).name
    raise ConfigError(
        f"The database's character set {charset} is not known here.", hint="Leave its XML columns out of the capture."
    )


def decode(data: bytes, charset: str) -> str:
    return data.decode(codec(charset), "replace")
