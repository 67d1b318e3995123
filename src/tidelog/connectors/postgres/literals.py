"""PostgreSQL's array and hstore literals as JSON, for a whole column at once.

All literals stand in one run of bytes. Knowing which bytes are inside quotes, the run falls apart into elements and
what stands between them. The elements, whatever their type, are rendered together as one flat column; between them a
brace becomes a bracket, byte for byte, so nesting of any depth comes out by itself and a row's end is where it was.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.strings import (
    Bytes,
    Ints,
    Mask,
    as_mask,
    build,
    flat,
    gather,
    only,
    spread,
    valid_rows,
)

QUOTE, BACKSLASH = ord('"'), ord("\\")

Renderer = Callable[[pa.StringArray], tuple[pa.StringArray, Mask]]
"""Texts to JSON; nulls stay null."""


def arrays(texts: pa.StringArray, render: Renderer, quote: Renderer, delimiter: str) -> tuple[pa.StringArray, Mask]:
    """Array literals as JSON arrays. One with its own lower bounds (`[0:1]={1,2}`) stays what it is, as a JSON string:
    an array would lose the bounds."""
    valid, broken = valid_rows(texts), torn(texts)
    dense = pc.if_else(pa.array(broken), "{}", texts).drop_null() if broken.any() else texts.drop_null()
    simple = as_mask(pc.and_(pc.starts_with(dense, "{"), pc.ends_with(dense, "}")))
    if simple.all():
        found, failed = _arrays(dense, render, delimiter)
    else:
        found, failed = _arrays(pc.if_else(pa.array(simple), dense, "{}"), render, delimiter)
        found = pc.if_else(pa.array(simple), found, quote(dense)[0])
    broken[valid] |= failed
    return spread(found, valid), broken


def _arrays(texts: pa.StringArray, render: Renderer, delimiter: str) -> tuple[pa.StringArray, Mask]:
    data, rows = flat(texts)
    starts, ends = _elements(data, delimiter)
    tokens, failed = render(_unquoted(data, starts, ends))
    between, gaps = _between(data, starts, ends, delimiter)
    pieces = pa.concat_arrays([between, tokens.fill_null("null")])
    joined, places = flat(pieces.take(pa.array(_zipped(len(starts)))))
    # A row ends inside the gap that follows its last element, as far into it as it did before.
    ahead = np.searchsorted(starts, rows)
    offsets = places[2 * ahead] + rows - gaps[ahead]
    broken = np.zeros(len(texts), np.bool_)
    broken[np.searchsorted(rows, starts[failed], "right") - 1] = True
    return build(joined, offsets), broken


def _elements(data: Bytes, delimiter: str) -> tuple[Ints, Ints]:
    """Where each element stands, with its quotes."""
    structure = (data == ord("{")) | (data == ord("}")) | (data == ord(delimiter))
    token = (inside_quotes(data) | ~structure).astype(np.int8)
    steps = np.diff(token, prepend=0, append=0)
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)


def inside_quotes(data: Bytes) -> Mask:
    """Which bytes stand inside double quotes, the opening one included, the closing one not."""
    inside: Mask = (np.cumsum(_quotes(data), dtype=np.int32) & 1).astype(np.bool_)
    return inside


def torn(texts: pa.StringArray) -> Mask:
    """Values whose quotes do not close: they would reach into the next row. PostgreSQL writes none; damage does."""
    open_end = as_mask(pc.ends_with(texts, "\\"))
    data, rows = flat(only(texts, ~open_end) if open_end.any() else texts)
    counts = np.concatenate(([0], np.cumsum(_quotes(data))))
    odd: Mask = np.diff(counts[rows]) % 2 == 1
    return odd | open_end


def _quotes(data: Bytes) -> Mask:
    quotes: Mask = data == QUOTE
    quotes[_escaped(data)] = False
    return quotes


def _escaped(data: Bytes) -> Ints:
    """The places after a backslash that is not itself escaped: the first, third, … of each run of backslashes."""
    places = np.flatnonzero(data == BACKSLASH)
    if not len(places):
        return places
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    in_run = np.arange(len(places)) - np.repeat(first, np.diff(first, append=len(places)))
    after: Ints = places[in_run % 2 == 0] + 1
    return after[after < len(data)]


def _unquoted(data: Bytes, starts: Ints, ends: Ints) -> pa.StringArray:
    """The elements' values: quotes and escapes gone, a bare NULL is null."""
    quoted = data[starts] == QUOTE
    tokens = gather(pa.py_buffer(data), starts + quoted, ends - quoted, np.ones(len(starts), np.bool_))
    if (data == BACKSLASH).any():
        tokens = pc.replace_substring_regex(tokens, r"(?s)\\(.)", r"\1")
    null = ~quoted & pc.equal(tokens, "NULL").to_numpy(zero_copy_only=False)
    return only(tokens, ~null) if null.any() else tokens


def _between(data: Bytes, starts: Ints, ends: Ints, delimiter: str) -> tuple[pa.StringArray, Ints]:
    """What stands before, between and after the elements, as JSON has it, and where each gap begins."""
    table = np.arange(256, dtype=np.uint8)
    table[[ord("{"), ord("}"), ord(delimiter)]] = np.frombuffer(b"[],", np.uint8)
    gaps = np.concatenate(([0], ends))
    stops = np.concatenate((starts, [len(data)]))
    return gather(pa.py_buffer(table[data]), gaps, stops, np.ones(len(gaps), np.bool_)), gaps


def _zipped(elements: int) -> Ints:
    """Gap, element, gap, …, gap: indices into all gaps followed by all elements."""
    order = np.empty(2 * elements + 1, np.int64)
    order[0::2] = np.arange(elements + 1)
    order[1::2] = np.arange(elements) + elements + 1
    return order


def hstores(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """hstore as the text of a JSON object, control characters still raw: `=>` becomes `: ` and NULL null, in place."""
    broken = torn(texts)
    data, rows = flat(only(texts, ~broken) if broken.any() else texts)
    table = np.arange(256, dtype=np.uint8)
    table[np.frombuffer(b"=>NUL", np.uint8)] = np.frombuffer(b": nul", np.uint8)
    mapped = np.where(inside_quotes(data), data, table[data])
    return pc.binary_join_element_wise("{", build(mapped, rows, texts), "}", ""), broken
