"""Resume tokens of change streams.

A token is a small BSON document. Its `_data` is a key in hexadecimal (older servers: bytes) that sorts as the stream
does and begins with the cluster time. An offset holds the whole document in base64, so that `_typeBits` survives; old
offsets hold the bare hexadecimal `_data`, which is read, too.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.core.offsets.fields import clipped
from tidelog.errors import ConfigError

Token = Mapping[str, str | bytes]

_TIMESTAMP = 0x82
"""How a timestamp begins in a key."""
_TEXT, _BINARY = 2, 5


def timestamp(token: Mapping[str, Any]) -> tuple[int, int]:
    """The cluster time: seconds, and the number of the operation in that second."""
    key = data(token)
    if len(key) < 9 or key[0] != _TIMESTAMP:
        raise ConfigError("The resume token does not begin with a cluster time.", hint="Take it from a change stream.")
    seconds, number = struct.unpack(">II", key[1:9])
    return seconds, number


def data(token: Mapping[str, Any]) -> bytes:
    """The key, which sorts as the stream does."""
    found = _plain(token.get("_data"))
    if isinstance(found, str) and re.fullmatch(r"(?:[0-9a-fA-F]{2})+", found):
        return bytes.fromhex(found)
    if isinstance(found, bytes) and found:
        return found
    raise ConfigError("The resume token has no _data in hexadecimal.", hint="Take it from a change stream.")


def encode(token: Mapping[str, Any]) -> str:
    """What an offset holds; binary values may come as extended JSON, `{"$binary": …}`."""
    members = b"".join(_member(name, _plain(value)) for name, value in token.items())
    document = struct.pack("<i", len(members) + 5) + members + b"\0"
    return base64.b64encode(document).decode("ascii")


def decode(text: str) -> dict[str, str | bytes]:
    """What an offset held, in any of its forms."""
    try:
        return dict(_members(base64.b64decode(text, validate=True)))
    except (binascii.Error, struct.error, ValueError, IndexError):
        pass  # not the base64 of a document: one of the older forms
    if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        return {"_data": text}
    raise ConfigError(
        f"{clipped(text)!r} is no resume token.", hint="Write the base64 of its document, or its _data in hexadecimal."
    )


def normal(text: str) -> str:
    """As we write it; a token from which no stream could be resumed is refused."""
    token = decode(text)
    timestamp(token)
    return encode(token)


def shown(token: Token) -> dict[str, Any]:
    """As extended JSON."""
    return {
        name: {"$binary": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value
        for name, value in token.items()
    }


def _plain(value: Any) -> Any:
    match value:
        case {"$binary": {"base64": str(text)}} | {"$binary": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise ConfigError("A binary value of the resume token is no base64.", hint="Correct it.") from None
        case _:
            return value


def _member(name: str, value: Any) -> bytes:
    key = name.encode() + b"\0"
    match value:
        case str():
            content = value.encode() + b"\0"
            return bytes([_TEXT]) + key + struct.pack("<i", len(content)) + content
        case bytes():
            return bytes([_BINARY]) + key + struct.pack("<iB", len(value), 0) + value
        case _:
            raise ConfigError(
                f"The resume token's {name[:60]} is neither a text nor binary.", hint="Take it from a change stream."
            )


def _members(document: bytes) -> Iterator[tuple[str, str | bytes]]:
    """Raises ValueError, IndexError or struct.error when it is no such document."""
    (length,) = struct.unpack_from("<i", document)
    if length != len(document) or document[-1] != 0 or length == 5:
        raise ValueError
    at = 4
    while at < length - 1:
        kind, end = document[at], document.index(0, at + 1)
        name, at = document[at + 1 : end].decode(), end + 1
        (size,) = struct.unpack_from("<i", document, at)
        at += 5 if kind == _BINARY else 4
        content, at = document[at : at + size], at + size
        if size < 0 or len(content) < size or at >= length or kind not in (_TEXT, _BINARY):
            raise ValueError
        yield name, content if kind == _BINARY else _text(content)


def _text(content: bytes) -> str:
    if content[-1] != 0:
        raise ValueError
    return content[:-1].decode()
