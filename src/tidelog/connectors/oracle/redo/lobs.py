"""A large object's value out of what the log tells of it: a beginning, and pieces written into it.

Places count characters of UTF-16, as Oracle's do, or bytes. What a piece leaves out between the end and itself is
filled with blanks or zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.connectors.oracle.redo.fragments import Piece, plain
from tidelog.connectors.oracle.redo.literals import hex_digits, is_empty
from tidelog.connectors.oracle.redo.values import UNAVAILABLE, Sql, Value

_UTF16 = "utf-16-le"


def written(initial: Value, pieces: Iterable[Piece]) -> Value:
    """The value after all pieces, as redo SQL would write it: a text, `HEXTORAW('…')`, `EMPTY_CLOB()` or None.

    A piece that does not follow on the one before is put where it belongs. If it was not known what stood there, the
    whole is not known: more may come after the pieces."""
    told = [piece for piece in pieces if piece.data is not None and piece.data is not UNAVAILABLE]
    if not told:
        return initial
    if initial is UNAVAILABLE and any(piece.offset is not None for piece in told):
        return UNAVAILABLE
    binary = any(hex_digits(piece.data) is not None for piece in told if isinstance(piece.data, Sql))
    unit = 1 if binary else 2
    content = bytearray(_bytes(initial, binary))
    for piece in told:
        at = len(content) if piece.offset is None else piece.offset * unit
        content.extend((b"\0" if binary else b" \0") * ((at - len(content)) // unit))
        data = _bytes(piece.data, binary)
        content[at : at + len(data)] = data
    return Sql(f"HEXTORAW('{content.hex()}')") if binary else content.decode(_UTF16, "replace")


def beginning(pieces: Sequence[Piece], count: int) -> Value:
    """What stands in the first `count` places at least, if the pieces alone tell it."""
    end = 0
    for piece in pieces:
        at = end if piece.offset is None else piece.offset
        if at > end:
            return UNAVAILABLE
        end = max(end, at + piece.length)
    return written(None, pieces) if end >= count else UNAVAILABLE


def _bytes(value: Value, binary: bool) -> bytes:
    """What the value holds, as bytes; nothing when it is empty or not known."""
    if value is None or value is UNAVAILABLE or (isinstance(value, Sql) and is_empty(value)):
        return b""
    if binary:
        return bytes.fromhex(hex_digits(value) or "")
    text = plain(value)
    return str(text).encode(_UTF16, "surrogatepass")
