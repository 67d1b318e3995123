"""Values of every type through a real server's own pgoutput: what is decoded is what the table holds.

The server itself is the oracle: its output functions for texts, `extract(epoch …)` for instants, `to_jsonb` for
arrays, and psycopg's own reading for the rest.
"""

from __future__ import annotations

import json
import os
import random
import string
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.servers import Database
from tests.unit.postgres.pgoutput import block
from tidelog.connectors.postgres import types
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.core import metadata
from tidelog.model.schema import Column, Table
from tidelog.model.selection import Selection

SEED = int(os.environ.get("TIDELOG_SEED", "1"))
ROWS = 250
SETTINGS = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c bytea_output=hex -c extra_float_digits=3 "
    "-c client_encoding=UTF8"
)
Make = Callable[[random.Random], str]


def integer(bits: int) -> Make:
    return lambda r: str(r.choice([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, r.randrange(-(10**4), 10**4)]))


def number(whole: int, fraction: int, *special: str) -> Make:
    def make(r: random.Random) -> str:
        if special and r.random() < 0.1:
            return r.choice(special)
        digits = str(r.randrange(10 ** r.randint(0, whole) if whole else 1))
        return r.choice("- ").strip() + digits + (f".{r.randrange(10**fraction):0{fraction}d}" if fraction else "")

    return make


def double(r: random.Random) -> str:
    return r.choice(["NaN", "Infinity", "-Infinity", "0", "-0", "1e300", repr(r.uniform(-1e6, 1e6)), repr(r.random())])


def single(r: random.Random) -> str:
    return r.choice(["NaN", "Infinity", "-Infinity", "1e-30", repr(r.uniform(-1e6, 1e6))])


def text(r: random.Random) -> str:
    alphabet = string.printable + "\"\\{}'`,;äß€😀\x01\x7f\u2028" + '"\\{},' * 4
    return r.choice(["", "NULL", "null", " ", "\\", '"', "".join(r.choices(alphabet, k=r.randint(0, 12)))])


def word(r: random.Random) -> str:
    return "".join(r.choices(string.ascii_letters + " äß", k=r.randint(1, 8)))


def raw(r: random.Random) -> str:
    return "\\x" + r.randbytes(r.choice([0, 1, 2, 3, 40])).hex()


def day(r: random.Random) -> str:
    year = r.choice([r.randint(1970, 2030), r.randint(1, 9999), r.randint(10_000, 200_000)])
    era = " BC" if r.random() < 0.1 and year < 4000 else ""
    return f"{year:04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}{era}"


def date(r: random.Random) -> str:
    return r.choice(
        ["infinity", "-infinity", "5874897-12-31", "4713-01-01 BC", "0001-12-31 BC", day(r), day(r), day(r)]
    )


def clock(r: random.Random) -> str:
    fraction = r.choice(["", ".5", ".000001", f".{r.randrange(10**6):06d}"])
    return f"{r.randrange(24):02d}:{r.randrange(60):02d}:{r.randrange(60):02d}{fraction}"


def time(r: random.Random) -> str:
    return r.choice(["24:00:00", "00:00:00", clock(r), clock(r)])


def moment(r: random.Random) -> str:
    if r.random() < 0.1:
        return r.choice(["infinity", "-infinity", "294246-12-31 23:59:59.999999", "4713-01-01 00:00:00 BC"])
    days, era = day(r).partition(" BC")[:2]
    return f"{days} {clock(r)}{era}"


def moment_zoned(r: random.Random) -> str:
    found = moment(r)
    return found if "infinity" in found or "BC" in found else found + r.choice(["+00", "-05:30", "+14"])


def several(make: Make, delimiter: str = ",") -> Make:
    """An array literal of any number of dimensions, sometimes with bounds of its own."""

    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def nested(r: random.Random, shape: list[int]) -> str:
        if not shape:
            return "NULL" if r.random() < 0.15 else quoted(make(r))
        return "{" + delimiter.join(nested(r, shape[1:]) for _ in range(shape[0])) + "}"

    def whole(r: random.Random) -> str:
        shape = [r.randint(1, 3) for _ in range(r.choice([0, 1, 1, 1, 2, 3]))]
        literal = nested(r, shape) if shape else "{}"
        return f"[0:{shape[0] - 1}]={literal}" if len(shape) == 1 and r.random() < 0.1 else literal

    return whole


def choice(*values: str) -> Make:
    return lambda r: r.choice(values)


def document(r: random.Random) -> str:
    return json.dumps({word(r): r.choice([1, None, True, text(r).replace("\x01", ""), [1.5, {}]])})


COLUMNS: dict[str, Make] = {
    "int2": integer(16),
    "int4": integer(32),
    "int8": integer(64),
    "oid": choice("0", "4294967295", "17"),
    "float4": single,
    "float8": double,
    "bool": choice("t", "f"),
    "numeric": number(45, 12, "NaN", "Infinity", "-Infinity"),
    "numeric(12,2)": number(10, 2),
    "numeric(38,10)": number(28, 10),
    "numeric(60,10)": number(40, 10, "NaN"),
    "numeric(3,5)": choice("0.00123", "-0.00999", "0"),
    "numeric(2,-3)": choice("99000", "-1000", "12345"),
    "text": text,
    "varchar(20)": text,
    "bpchar": word,
    "char(10)": word,
    "name": word,
    '"char"': choice("a", "Z"),
    "bytea": raw,
    "date": date,
    "time": time,
    "time(2)": time,
    "timetz": lambda r: clock(r) + r.choice(["+00", "-03:30", "+13", "+02:03:04"]),
    "timestamp": moment,
    "timestamp(3)": moment,
    "timestamptz": moment_zoned,
    "interval": choice("1 year 2 mons -3 days 04:05:06.789", "-1 mon +1 day", "0", "P1Y2M10DT2H30M", "100 hours"),
    "uuid": lambda r: f"{r.getrandbits(128):032x}",
    "json": document,
    "jsonb": document,
    "mood": choice("happy", "so so", 'q"uote'),
    "pair": choice('(1,"a b")', "(,)", '(2,"""x\\\\")'),
    "int4range": choice("[1,5)", "empty", "(,3]"),
    "tstzrange": choice('["2024-01-01 00:00:00+00",)', "empty"),
    "int4multirange": choice("{[1,3),[5,8)}", "{}"),
    "inet": choice("192.168.0.1", "10.0.0.0/8", "::1"),
    "cidr": choice("10.0.0.0/8", "2001:db8::/32"),
    "macaddr": choice("08:00:2b:01:02:03"),
    "macaddr8": choice("08:00:2b:01:02:03:04:05"),
    "bit(3)": choice("101", "000"),
    "varbit": choice("1", "10101010101"),
    "money": choice("12.34", "-1000000.05"),
    "tsvector": choice("'a':1 'b c':2", ""),
    "tsquery": choice("'a' & 'b'", "!'x'"),
    "point": choice("(1,2.5)", "(-1e10,3)"),
    "line": choice("{1,2,3}"),
    "lseg": choice("[(0,0),(1,1)]"),
    "box": choice("(2,2),(0,0)"),
    "path": choice("((0,0),(1,1))", "[(0,0),(1,2)]"),
    "polygon": choice("((0,0),(1,1),(1,0))"),
    "circle": choice("<(0,0),5>"),
    "pg_lsn": choice("16/B374D848", "0/0"),
    "posint": integer(8),
    "int4[]": several(integer(32)),
    "int8[]": several(integer(64)),
    "float8[]": several(double),
    "numeric[]": several(number(20, 5, "NaN")),
    "numeric(12,2)[]": several(number(10, 2)),
    "bool[]": several(choice("t", "f")),
    "text[]": several(text),
    "varchar(9)[]": several(word),
    "uuid[]": several(choice("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    "jsonb[]": several(choice('{"a": "b\\"c"}', "[1, 2]")),
    "mood[]": several(choice("happy", "so so", 'q"uote')),
    "bytea[]": several(raw),
    "date[]": several(lambda r: f"{r.randint(1, 9999):04d}-02-{r.randint(1, 28):02d}"),
    "timestamp[]": several(lambda r: f"2024-0{r.randint(1, 9)}-11 {clock(r)}"),
    "timestamptz[]": several(lambda r: f"2024-0{r.randint(1, 9)}-11 {clock(r)}+00"),
    "box[]": several(choice("(2,2),(0,0)", "(3,3),(1,1)"), ";"),
}
"""Declared types; the columns are c0, c1, … in this order."""

PRELUDE = """
CREATE TYPE mood AS ENUM ('happy', 'so so', 'q"uote');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int4;
"""
CATALOG = """
SELECT a.attname, a.attnum, a.atttypmod, t.typname, t.typtype, b.typname
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype
 WHERE a.attrelid = 'everything'::regclass AND a.attnum > 0 ORDER BY a.attnum
"""


def described(connection: psycopg.Connection[Any]) -> Table:
    """The table with resolved types, as the catalog names them."""
    columns = []
    for name, number, modifier, kind, letter, base in connection.execute(CATALOG):
        resolved = f"{kind[1:]}[]" if kind.startswith("_") else base or kind
        resolved = {"e": "enum", "c": "composite", "r": "range", "m": "multirange"}.get(letter, resolved)
        columns.append(Column(name, resolved, modifier, number=number))
    return Table(1, "public", "everything", tuple(columns), key=("id",))


class Captured:
    """A table of random values, what pgoutput said of it, and how the server itself tells it."""

    def __init__(self, database: Database) -> None:
        self.connection = database.connect(options=SETTINGS)
        fields = ", ".join(f"c{i} {kind}" for i, kind in enumerate(COLUMNS))
        self.connection.execute(PRELUDE)
        self.connection.execute(f"CREATE TABLE everything (id int8 PRIMARY KEY, {fields})")
        self.connection.execute("CREATE PUBLICATION p FOR TABLE everything")
        self.connection.execute("SELECT pg_create_logical_replication_slot('roundtrip', 'pgoutput')")
        self._insert(random.Random(SEED))
        self.table = described(self.connection)
        self.records = self._records()

    def _insert(self, chance: random.Random) -> None:
        casts = ", ".join(f"%s::{kind}" for kind in COLUMNS)
        rows = [
            (i, *(None if chance.random() < 0.1 else make(chance) for make in COLUMNS.values())) for i in range(ROWS)
        ]
        with self.connection.cursor() as cursor, self.connection.transaction():
            cursor.executemany(f"INSERT INTO everything VALUES (%s, {casts})", rows)

    def _records(self) -> pa.RecordBatch:
        changes = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes("
            "'roundtrip', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        )
        return block(*[("c", bytes(row[0])) for row in changes if bytes(row[0])[:1] == b"I"])

    def told(self, expression: str) -> list[Any]:
        return [row[0] for row in self.connection.execute(f"SELECT {expression} FROM everything ORDER BY id")]

    def texts(self, column: str) -> list[str | None]:
        """As the type's output function writes it."""
        result = self.connection.execute(f"SELECT {column} FROM everything ORDER BY id").pgresult
        assert result is not None
        found = [result.get_value(row, 0) for row in range(result.ntuples)]
        return [None if value is None else value.decode() for value in found]


@pytest.fixture(scope="module")
def captured(postgres: Any) -> Any:
    database = postgres.create_database("roundtrip")
    yield (found := Captured(database))
    found.connection.close()
    database.drop()


@pytest.fixture(scope="module")
def typed(captured: Captured) -> pa.RecordBatch:
    rows = PostgresDecoder().typed(captured.records, captured.table, Selection()).rows
    rows.validate(full=True)
    assert rows.num_rows == ROWS
    return rows


NAMES = {kind: f"c{i}" for i, kind in enumerate(COLUMNS)}
ARRAYS = [kind for kind in COLUMNS if kind.endswith("[]")]
NATIVE = ["int2", "int4", "int8", "oid", "float4", "float8", "bool", "bytea", "posint", "numeric(12,2)"]
NATIVE += ["numeric(38,10)", "numeric(3,5)", "numeric(2,-3)"]
INSTANTS = ["date", "timestamp", "timestamp(3)", "timestamptz"]
TEXTS = [kind for kind in COLUMNS if kind not in {*ARRAYS, *NATIVE, *INSTANTS}]


def same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


@pytest.mark.parametrize("kind", NATIVE)
def test_native_values_are_what_psycopg_reads(captured: Captured, typed: pa.RecordBatch, kind: str) -> None:
    found = typed.column(NAMES[kind])
    assert not pa.types.is_string(found.type)
    expected = captured.told(NAMES[kind])
    if kind == "float4":
        expected = pa.array(expected, pa.float32()).to_pylist()
    for ours, theirs in zip(found.to_pylist(), expected, strict=True):
        assert same(ours, theirs)


@pytest.mark.parametrize("kind", INSTANTS)
def test_instants_are_the_servers_own_arithmetic(captured: Captured, typed: pa.RecordBatch, kind: str) -> None:
    name = NAMES[kind]
    whole = pa.int32() if kind == "date" else pa.int64()
    ours = typed.column(name).view(whole).to_pylist()
    scale = 86_400 if kind == "date" else Decimal("0.000001")
    edges = {"infinity": 2 ** (whole.bit_width - 1) - 1, "-infinity": -(2 ** (whole.bit_width - 1))}
    for number, text_, epoch in zip(
        ours, captured.texts(name), captured.told(f"extract(epoch from {name})"), strict=True
    ):
        assert number == (edges[text_] if text_ in edges else None if epoch is None else epoch / scale)


@pytest.mark.parametrize("kind", TEXTS)
def test_other_types_keep_their_exact_text(captured: Captured, typed: pa.RecordBatch, kind: str) -> None:
    found = typed.column(NAMES[kind])
    assert found.type == pa.string()
    assert found.to_pylist() == captured.texts(NAMES[kind])


def settled(value: Any, kind: str) -> Any:
    """The server's JSON of an element, as ours says it."""
    if isinstance(value, list):
        return [settled(element, kind) for element in value]
    if value is None or isinstance(value, bool | int | Decimal):
        return value
    if kind == "bytea[]":
        return b64encode(bytes.fromhex(value[2:])).decode()
    if kind == "timestamptz[]":
        return value.replace("+00:00", "Z")
    return json.dumps(value) if isinstance(value, dict) else value


def precise(text_: str) -> Any:
    return json.loads(text_, parse_float=Decimal)


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_are_the_servers_own_json(captured: Captured, typed: pa.RecordBatch, kind: str) -> None:
    name = NAMES[kind]
    expression = f"to_jsonb({name}::text[])" if kind == "jsonb[]" else f"to_json({name})"
    found, texts = typed.column(name).to_pylist(), captured.texts(name)
    for ours, text_, theirs in zip(found, texts, captured.told(f"{expression}::text"), strict=True):
        if text_ is None:
            assert ours is None
        elif text_.startswith("["):
            assert json.loads(ours) == text_
        else:
            assert precise(ours) == settled(precise(theirs), kind), text_


@pytest.mark.parametrize("kind", COLUMNS)
def test_texts_alone_parse_to_the_same(captured: Captured, typed: pa.RecordBatch, kind: str) -> None:
    """What a read of the table gives is what the stream gives."""
    column = captured.table.column(NAMES[kind])
    texts = pa.array(captured.texts(NAMES[kind]), pa.string())
    for form in (texts, texts.cast(pa.binary()), texts.cast(pa.large_string())):
        found, failed = types.parse(form, column, Selection())
        assert not failed.any()
        both = (found, typed.column(column.name))
        # NaN is not equal to itself, so floats are compared as they are written.
        ours, theirs = (a.cast(pa.string()) for a in both) if kind in ("float4", "float8") else both
        assert ours.equals(theirs)


@pytest.mark.parametrize("style", ["adaptive", "connect", "isostring"])
def test_envelope_is_json_of_the_same_values(captured: Captured, style: str) -> None:
    rows = PostgresDecoder().envelope(captured.records, captured.table, Selection(times=style)).rows
    after = [precise(row) for row in rows.column("after").to_pylist()]
    assert [row["id"] for row in after] == list(range(ROWS))
    for kind in TEXTS:
        if kind not in {"time", "time(2)", "timetz"} and not kind.startswith("numeric"):
            assert [row[NAMES[kind]] for row in after] == captured.texts(NAMES[kind])
    for kind in ("numeric", "numeric(12,2)", "numeric(60,10)"):
        texts = [None if row[NAMES[kind]] is None else Decimal(row[NAMES[kind]]) for row in after]
        assert all(map(same, texts, captured.told(NAMES[kind])))
    unit = {"adaptive": 1, "connect": 1000, "isostring": 0}[style]
    for kind in ("time", "timestamp"):
        name = NAMES[kind]
        sums = captured.told(f"extract(epoch from {name})")
        for row, total in zip(after, sums, strict=True):
            if unit and total is not None and total.is_finite():
                assert row[name] == total * 1_000_000 // unit - (total * 1_000_000 % unit < 0)


@pytest.mark.parametrize("style", ["double", "string"])
def test_decimals_as_asked(captured: Captured, style: str) -> None:
    rows = PostgresDecoder().typed(captured.records, captured.table, Selection(decimals=style)).rows
    for kind in ("numeric", "numeric(12,2)", "numeric(60,10)"):
        ours, theirs = rows.column(NAMES[kind]).to_pylist(), captured.texts(NAMES[kind])
        expected = theirs if style == "string" else [None if t is None else float(t) for t in theirs]
        assert all(map(same, ours, expected))


OPS = {"I": "c", "U": "u", "D": "d"}
LONG = "convert_from(decode(repeat(md5('x'), 4000), 'escape'), 'UTF8')"


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_old_images_and_toast_as_the_server_sends_them(database: Database, identity: str) -> None:
    with database.connect(options=SETTINGS) as connection:
        connection.execute("CREATE TABLE everything (id int8 PRIMARY KEY, n int4, doc text)")
        connection.execute("ALTER TABLE everything ALTER doc SET STORAGE EXTERNAL")
        connection.execute(f"ALTER TABLE everything REPLICA IDENTITY {identity}")
        connection.execute("CREATE PUBLICATION p FOR TABLE everything")
        connection.execute("SELECT pg_create_logical_replication_slot('images', 'pgoutput')")
        connection.execute(f"INSERT INTO everything VALUES (1, 1, {LONG})")
        connection.execute("UPDATE everything SET n = 2")
        connection.execute("UPDATE everything SET id = 9")
        connection.execute("DELETE FROM everything")
        found = connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes("
            "'images', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        )
        payloads = [bytes(row[0]) for row in found]
        records = block(*[(OPS[chr(p[0])], p) for p in payloads if chr(p[0]) in OPS])
        table = described(connection)
    rows = PostgresDecoder().typed(records, table, Selection()).rows.to_pylist()
    full = identity == "FULL"
    assert [(r[metadata.OP], r["id"], r["n"]) for r in rows] == [
        ("c", 1, 1),
        ("u", 1, 2),
        ("u", 9, 2),
        ("d", 9, 2 if full else None),
    ]
    assert [r[metadata.UNCHANGED] for r in rows] == [[], [] if full else ["doc"], [] if full else ["doc"], []]
    assert [r[metadata.BEFORE] and r[metadata.BEFORE]["id"] for r in rows] == [None, 1 if full else None, 1, 9]
    assert [r["doc"] == rows[0]["doc"] for r in rows] == [True, full, full, full]
    events = PostgresDecoder().envelope(records, table, Selection()).rows.to_pylist()
    assert [(e["op"], e["key"]) for e in events] == [
        ("c", '{"id":1}'),
        ("u", '{"id":1}'),
        ("d", '{"id":1}'),
        ("c", '{"id":9}'),
        ("d", '{"id":9}'),
    ]
