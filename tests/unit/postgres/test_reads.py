"""A row that was read says what the stream says of it, byte for byte; a window of texts fits a chunk of texts."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.postgres.pgoutput import UNCHANGED, block, delete, heartbeat, insert, table, truncate, update

from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.contracts import ENVELOPE, Decoded
from tidelog.core.fold import Run
from tidelog.core.snapshot.window import reconcile, stamp
from tidelog.errors import UnsupportedChange
from tidelog.model.schema import Column, Table
from tidelog.model.selection import ColumnRule, Selection

NOW = 1_704_200_000_111_222
DECODER = PostgresDecoder(lambda: NOW)
SHOP = Selection(topic_prefix="shop", database="store", connector="postgresql")
VALUES = {
    "int8": "-9223372036854775808",
    "float8": "1e+20",
    "float4": "NaN",
    "bool": "t",
    "numeric": "0.1000000000000000000000001",
    "text": 'a"\\\n\x01ä',
    "jsonb": '{"a": "b"}',
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "interval": "P1Y2M",
    "hstore": '"a"=>"x"',
    "bytea": "\\xfbff",
    "date": "2024-01-02",
    "time": "03:04:05.1234",
    "timestamp": "2024-01-02 03:04:05.1234",
    "timestamptz": "2024-01-02 03:04:05.1234+00",
    "int4[]": "{1,NULL,{2}}",
    "text[]": '{a,"b c",NULL}',
    "mood": "happy",
}
WIDE = table("id int8", *(Column(f'{kind} "x"', kind) for kind in VALUES))
ROWS = [("1", *VALUES.values()), ("2", *(None for _ in VALUES)), ("3", *VALUES.values())]
STYLES = [
    SHOP,
    Selection(topic_prefix="p", decimals="string", times="isostring", binaries="hex"),
    Selection(topic_prefix="p", decimals="double", times="connect", exclude_columns=r".*\.(text|date).*"),
    Selection(message_keys='public.orders:uuid "x",id'),
    Selection(
        rules=(
            ColumnRule("mask", r".*\.text.*", 4),
            ColumnRule("hash", r".*\.int8.*", algorithm="SHA-256", salt="s"),
            ColumnRule("truncate", r".*\.id", 1),
        )
    ),
]


def texts(of: Table, rows: list[tuple[str | None, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(of.columns)
    return pa.table({c.name: pa.array(v, pa.string()) for c, v in zip(of.columns, columns, strict=True)})


def read(of: Table, rows: Any, under: Selection = SHOP, **more: Any) -> Decoded:
    place = {"snapshot": "incremental", "position": 0x1007, "ts_us": 1_704_164_645_123_456} | more
    found = DECODER.read_envelope(rows, of, under, **place)
    assert found.rows.schema == ENVELOPE
    found.rows.validate(full=True)
    return found


@pytest.mark.parametrize("under", STYLES)
def test_a_row_reads_as_the_stream_tells_it(under: Selection) -> None:
    told = DECODER.envelope(block(*(insert(*row) for row in ROWS)), WIDE, under).rows
    rows = texts(WIDE, ROWS)
    for form in (rows, rows.to_batches()[0], pa.concat_tables([rows[:1], rows[1:]])):
        found = read(WIDE, form, under).rows
        for name in ("topic", "key", "after", "ts_us"):
            assert found.column(name).equals(told.column(name)), name


def test_what_else_an_event_says() -> None:
    of = table("id int8", "name text")
    [event] = read(of, texts(of, [("1", "a")]), snapshot="last").rows.to_pylist()
    assert (event["op"], event["before"], event["transaction"], event["ts_us"]) == ("r", None, None, NOW)
    source = json.loads(event["source"])
    [streamed] = DECODER.envelope(block(insert("1", "a")), of, SHOP).rows.to_pylist()
    assert list(source) == list(json.loads(streamed["source"]))
    own = {
        "snapshot": "last",
        "lsn": 0x1000,
        "txId": None,
        "sequence": '["4096","4096"]',
        "ts_us": 1_704_164_645_123_456,
    }
    assert source == json.loads(streamed["source"]) | own


def test_no_key_and_no_rows() -> None:
    bare = table("id int8", "name text", key=())
    assert read(bare, texts(bare, [("1", None)])).rows.to_pylist()[0]["key"] is None
    assert read(bare, texts(bare, [])).rows.num_rows == 0


def test_a_value_that_cannot_be_told() -> None:
    of = table("id int8", "n float8")
    rows = texts(of, [("1", "1.5"), ("2", "x"), ("3", "2")])
    with pytest.raises(UnsupportedChange, match=r"public\.orders.*column n"):
        read(of, rows)
    aside = read(of, rows, Selection(failures="dead-letter"))
    assert [json.loads(key) for key in aside.rows.column("key").to_pylist()] == [{"id": 1}, {"id": 3}]
    assert aside.failures is not None
    (letter,) = aside.failures.to_pylist()
    assert (letter["ordinal"], letter["op"], json.loads(letter["payload"])) == (1, "r", {"id": "2", "n": "x"})


def test_a_window_of_texts() -> None:
    of = table("id int8", "at timestamp", "note text", Column("secret", "text"))
    under = Selection(skipped=("d",), exclude_columns=".*secret", rules=(ColumnRule("mask", ".*note", 3),))
    moment = "2024-01-02 00:00:00"
    events = block(
        update("1", moment, UNCHANGED, "s"),
        heartbeat(),
        delete(key=("2", None, None, None)),
        update("9", moment, UNCHANGED, "s", key=("3", None, None, None)),
    )
    window = pa.Table.from_batches([DECODER.texts(events, of, under).rows])
    rows = stamp(texts(of, [(str(i), None, f"note {i}", "?") for i in range(1, 5)]), position=1, ts_us=1)
    assert window.schema.equals(rows.schema)
    left = reconcile(rows, [Run(window)], of.key)
    shown = [json.loads(text) for text in read(of, left, under).rows.column("after").to_pylist()]
    at = 1_704_153_600_000_000
    assert shown == [
        {"id": 4, "at": None, "note": "***"},
        {"id": 1, "at": at, "note": "***"},
        {"id": 9, "at": at, "note": "***"},
    ]
    assert left["note"].to_pylist() == ["note 4", "note 1", "note 3"]
    gone = pa.Table.from_batches([DECODER.texts(block(truncate()), of, under).rows])
    assert reconcile(rows, [Run(gone)], of.key).num_rows == 0
