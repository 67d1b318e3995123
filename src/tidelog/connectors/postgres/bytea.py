"""bytea: PostgreSQL's hex text (`bytea_output` hex) as bytes, and as the texts that JSON carries."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import Bytes, Mask, as_mask, build, flat, inner, only, valid_rows

_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def unhex(texts: pa.StringArray) -> tuple[pa.BinaryArray, Mask]:
    """`\\x…` as bytes: two digits of the joined text make one byte. What is no hex is null and marked."""
    lengths = np.diff(flat(texts)[1])
    failed = valid_rows(texts) & (~as_mask(pc.starts_with(texts, "\\x")) | (lengths % 2 == 1))
    digits = inner(only(texts, ~failed), 2)
    data, offsets = flat(digits)
    nibbles = _NIBBLES[data]
    wrong = np.flatnonzero(nibbles > 15)
    failed[np.searchsorted(offsets, wrong, "right") - 1] = True
    whole: Bytes = nibbles[0::2] * np.uint8(16) + nibbles[1::2]
    found = build(whole, offsets // 2, digits, pa.binary())
    return only(found, ~failed) if len(wrong) else found, failed


def coded(values: pa.BinaryArray, style: str) -> pa.StringArray:
    """`hex`, `base64-url-safe` or base64. It goes value by value: such values are few and long, and C does the work."""
    code = binascii.hexlify if style == "hex" else _base64
    texts = pa.array([None if v is None else code(v) for v in values.to_pylist()], pa.binary()).view(pa.string())
    if style == "base64-url-safe":
        texts = pc.replace_substring(pc.replace_substring(texts, "+", "-"), "/", "_")
    return texts


def _base64(value: bytes) -> bytes:
    return binascii.b2a_base64(value, newline=False)
