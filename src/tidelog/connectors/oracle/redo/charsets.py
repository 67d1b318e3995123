"""Oracle's names of character sets, as Python knows them.

A set for which Python has no codec, or one that reads some bytes as other characters (US8PC437: β and μ; ET8MSWIN923,
which is not cp1257), is refused: a text that is nearly right is wrong.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress

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
    "WE8PC850": "cp850",
    "WE8PC858": "cp858",
    "EE8PC852": "cp852",
    "RU8PC866": "cp866",
}
_PATTERNS = ((re.compile(r"\w+?8ISO8859P(\d+)"), "iso8859-{}"), (re.compile(r"\w+?8MSWIN(\d+)"), "cp{}"))


def codec(charset: str) -> str:
    """Python's name of the character set."""
    if charset in _NAMES:
        return _NAMES[charset]
    for pattern, name in _PATTERNS:
        found = pattern.fullmatch(charset)
        with suppress(LookupError):
            if found is not None:
                return codecs.lookup(name.format(found[1])).name
    raise ConfigError(
        f"The database's character set {charset} is not known here.", hint="Leave its XML columns out of the capture."
    )


def decode(data: bytes, charset: str) -> str:
    return data.decode(codec(charset), "replace")
