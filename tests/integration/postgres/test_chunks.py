"""Chunks of a real server: every row once whatever the key, values as the stream has them, exact watermarks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from demo.embedded import give_away, unprivileged

from tests.integration.postgres.test_types_roundtrip import COLUMNS, ROWS, Captured
from tests.integration.postgres.world import World, until
from tests.patience import Patience, wall_seconds
from tests.servers import Database, Postgres
from tidelog.connectors import chunk_reader
from tidelog.connectors.postgres import chunks
from tidelog.connectors.postgres.connector import PostgresConnector, create
from tidelog.connectors.postgres.decode import PostgresDecoder
from tidelog.contracts import Key, OpenChunk, Scan, Span
from tidelog.core.snapshot.watermark import Replayed, Visible
from tidelog.errors import ConfigError, TransientError, UnsupportedChange
from tidelog.model.schema import Table

ALL = Span(None, None)


def options(database: Database, **more: str) -> dict[str, str]:
    mine = {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
    }
    return {**mine, **{k.replace("__", "."): v for k, v in more.items()}}


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    yield
    for kept in chunks._idle.values():
        while kept:
            kept.pop().close()


@pytest.fixture
def connector(database: Database) -> Iterator[PostgresConnector]:
    made = create(options(database))
    yield made
    made.close()


def table_of(connector: PostgresConnector, name: str = "t") -> Table:
    return next(table for table in connector.tables() if table.name == name)


def read(chunk: OpenChunk) -> list[dict[str, Any]]:
    try:
        rows = [row for batch in chunk.rows() for row in batch.to_pylist()]
        chunk.end()
        return rows
    finally:
        chunk.close()


def opened(database: Database, scan: Scan, span: Span = ALL, *, texts: bool = False, **more: str) -> OpenChunk:
    return chunk_reader("postgres", options(database, **more)).open(scan, span, attempt="a", texts=texts)


def spans(connector: PostgresConnector, scan: Scan, rows: int, count: int = 3) -> list[Span]:
    """A whole walk, a few ends at a time."""
    maximum = connector.maximum(scan)
    low: Key | None = None
    found: list[Span] = []
    while maximum is not None and low != maximum:
        ends = connector.boundaries(scan, low, maximum, rows, count)
        assert ends
        assert len(ends) <= count
        for high in ends:
            found.append(Span(low, high))
            low = high
    return found


LETTERS = "(ARRAY['a', 'B', 'c', 'Z', 'ä', 'ß'])[1 + i % 6] || i"
ENDS = "('NaN'), ('Infinity'), ('-Infinity')"
KEYS = {
    "int8, negative": ("k int8", "i - 40", ""),
    "int2, int4": ("a int2, b int4", "i % 7 - 3, i", ""),
    "text, C": ('k text COLLATE "C"', "chr(60 + i) || 'x''\\' || i", ""),
    "text, ICU": ("k text COLLATE german", LETTERS, ""),
    "text, blind to case": ("k text COLLATE blind", LETTERS, ""),
    "varchar, bpchar": ("a varchar(9), b char(9)", "'v' || i % 9, 'b' || i", ""),
    "citext": ("k citext", LETTERS, ""),
    "citext elsewhere": ("k far.citext", LETTERS, ""),
    "citext elsewhere, int4": ("k far.citext, b int4", LETTERS + ", i", ""),
    "ltree elsewhere": ("k far.ltree", "('x.y' || i)::far.ltree", ""),
    "uuid": ("k uuid", "md5(i::text)::uuid", ""),
    "numeric": ("k numeric", "(i - 40) * 1.125", ENDS),
    "float8": ("k float8", "(i - 40) / 3.0", ENDS),
    "timestamp": (
        "k timestamp",
        "'2000-01-01'::timestamp + i * interval '1 h 1 us'",
        "('infinity'), ('-infinity'), ('4000-01-01 BC')",
    ),
    "timestamptz, date": (
        "a timestamptz, b date",
        "'2000-01-01'::timestamptz + i % 5 * interval '1 s', '2000-01-01'::date + i",
        "('infinity', '-infinity')",
    ),
    "interval": ("k interval", "i * interval '1 day -3 s'", ""),
    "bytea": ("k bytea", "decode(lpad(to_hex(i * 7), 4, '0'), 'hex')", "('')"),
    "enum, int4": ("a mood, b int4", "(ARRAY['so so', 'happy', 'q\"uote'])[1 + i % 3]::mood, i", ""),
    "bool, int4": ("a bool, b int4", "i % 2 = 0, i", ""),
    "domain": ("k tiny", "i", ""),
    "inet": ("k inet", "'10.0.0.0'::inet + i", ""),
    "oid, name": ("a oid, b name", "i % 4 + 3000000000, 'n' || i", ""),
    "odd names": ('"b""x" int4, k1 int4, "Ä b" int4', "i % 3, i % 5, i", ""),
}
"""Columns of the key, an expression for ninety rows, and rows besides."""

PRELUDE = """
CREATE TYPE mood AS ENUM ('happy', 'so so', 'q"uote');
CREATE DOMAIN tiny AS int2;
"""
OPTIONAL = {
    "german": "CREATE COLLATION german (provider = icu, locale = 'de')",
    "blind": "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "citext": "CREATE EXTENSION citext",
    "far.citext": "CREATE SCHEMA far; CREATE EXTENSION citext SCHEMA far",
    "far.ltree": "CREATE SCHEMA far; CREATE EXTENSION ltree SCHEMA far",
}


def names_of(fields: str) -> list[str]:
    quoted = [field.rsplit('"', 1)[0] + '"' if field[0] == '"' else "" for field in fields.split(", ")]
    return [one or field.split()[0] for one, field in zip(quoted, fields.split(", "), strict=True)]


@pytest.mark.parametrize("kind", KEYS)
def test_a_walk_visits_every_row_once(request: pytest.FixtureRequest, kind: str) -> None:
    fields, expression, more = KEYS[kind]
    special = [OPTIONAL[word] for word in fields.replace(",", "").split() if word in OPTIONAL]
    # Only Debian's build has ICU and the extensions.
    database: Database = request.getfixturevalue("database15" if special else "database")
    for statement in (PRELUDE, *special):
        database.execute(statement)
    names = names_of(fields)
    database.execute(f"CREATE TABLE t ({fields}, n serial, PRIMARY KEY ({', '.join(names)}))")
    database.execute(f"INSERT INTO t SELECT {expression} FROM generate_series(1, 90) i")
    if more:
        database.execute(f"INSERT INTO t VALUES {more}")
    everything = sorted(row[0] for row in database.execute("SELECT n FROM t"))
    connector = create(options(database))
    table = table_of(connector)
    scan = Scan(table, connector.walked(table))
    assert len(scan.key) == len(names)
    for size in (3, 20, 1000):
        visited = [numbers(opened(database, scan, span)) for span in spans(connector, scan, size)]
        assert sorted(n for some in visited for n in some) == everything
        assert max(map(len, visited)) <= size
    connector.close()


def numbers(chunk: OpenChunk) -> list[int]:
    """Of the rows; their keys may be values that Python has not."""
    found = [n for batch in chunk.rows() for n in batch.column("n").to_pylist()]
    chunk.end()
    chunk.close()
    return found


def test_a_nullable_surrogate_with_duplicates_is_walked_whole(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, sk int4)")
    database.execute("INSERT INTO t SELECT i, CASE WHEN i % 4 > 0 THEN i / 10 END FROM generate_series(1, 100) i")
    table = table_of(connector)
    scan = Scan(table, connector.walked(table, "sk"))
    assert connector.maximum(scan) == (None,)
    for size in (1, 9, 30, 1000):
        visited = [row["id"] for span in spans(connector, scan, size) for row in read(opened(database, scan, span))]
        assert sorted(visited) == list(range(1, 101))


def test_a_surrogate_of_nulls_alone_is_one_span(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, sk int4); INSERT INTO t SELECT generate_series(1, 5)")
    scan = Scan(table_of(connector), ("sk",))
    assert spans(connector, scan, 2) == [Span(None, (None,))]
    assert len(read(opened(database, scan, Span(None, (None,))))) == 5


def test_several_nullable_columns_are_ordered_as_the_server_orders_them(
    database: Database, connector: PostgresConnector
) -> None:
    three = "(VALUES (1), (2), (NULL))"
    grid = f"SELECT x.v, y.v, z.v FROM {three} x(v), {three} y(v), {three} z(v)"
    database.execute(f"CREATE TABLE t (a int4, b int4, c int4, n serial); INSERT INTO t {grid}")
    scan = Scan(table_of(connector), ("a", "b", "c"))
    order = [row[0] for row in database.execute("SELECT n FROM t ORDER BY a, b, c")]
    for size in (1, 4, 100):
        walk = [sorted(row["n"] for row in read(opened(database, scan, s))) for s in spans(connector, scan, size)]
        expected = [sorted(order[i : i + size]) for i in range(0, len(order), size)]
        assert walk == expected


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_without_key_is_walked_by_place(
    database: Database, connector: PostgresConnector, partitioned: bool
) -> None:
    database.execute(f"CREATE TABLE t (n int4, filler text) {'PARTITION BY RANGE (n)' if partitioned else ''}")
    if partitioned:
        database.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (900)")
        database.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (900) TO (9999)")
    with pytest.raises(ConfigError, match="REPLICA IDENTITY FULL"):
        connector.walked(table_of(connector))
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert connector.maximum(Scan(table_of(connector), ())) is None
    database.execute("INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 1000) i; ANALYZE t")
    table = table_of(connector)
    scan = Scan(table, connector.walked(table))
    walk = spans(connector, scan, 100)
    assert len(walk) > 5
    visited = [row["n"] for span in walk for row in read(opened(database, scan, span))]
    assert sorted(visited) == list(range(1, 1001))


def test_a_partitioned_root_is_read_whole_and_heirs_are_not(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (50)")
    database.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (50) TO (999)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100); ANALYZE t")
    database.execute("CREATE TABLE parent (id int4 PRIMARY KEY); CREATE TABLE heir () INHERITS (parent)")
    database.execute("INSERT INTO parent VALUES (1); INSERT INTO heir VALUES (2)")
    root, parent = (Scan(table_of(connector, name), ("id",)) for name in ("t", "parent"))
    assert connector.estimate(root) == 100
    assert len([row for span in spans(connector, root, 30) for row in read(opened(database, root, span))]) == 100
    assert connector.maximum(parent) == ("1",)
    assert read(opened(database, parent)) == [{"id": 1}]
    asked = pa.table({"id": pa.array([1, 2], pa.int32())})
    for rows in (
        connector.read(parent.table, ["id"]),
        connector.read_range(parent.table, ["id"], None, None),
        connector.read_keys(parent.table, ["id"], asked),
    ):
        assert [row for batch in rows for row in batch.to_pylist()] == [{"id": 1}]
    assert connector.bounds(parent.table, 1) == ["1"]


def test_a_table_that_nobody_analyzed_is_estimated_as_it_was_written(
    database: Database, connector: PostgresConnector
) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY) WITH (autovacuum_enabled = off)")
    scan = Scan(table_of(connector), ("id",))
    assert connector.estimate(scan) == 0
    database.execute("INSERT INTO t SELECT generate_series(1, 7)")
    patience = Patience()
    while connector.estimate(scan) != 7:  # the server counts now and then
        assert not patience.is_over(), connector.estimate(scan)
        time.sleep(0.2)


def test_the_width_of_rows_is_known_before_they_are_read(database: Database, connector: PostgresConnector) -> None:
    """With the long values that lie beside them."""
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, v bytea)")
    assert connector.row_bytes(table_of(connector)) == 0
    database.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    database.execute(
        "INSERT INTO t SELECT i, decode(repeat('00', 100000), 'hex') FROM generate_series(1, 20) i; ANALYZE t"
    )
    assert 100_000 < connector.row_bytes(table_of(connector)) < 200_000


def test_a_condition_holds_for_walk_and_rows(database: Database, connector: PostgresConnector) -> None:
    database.execute(
        "CREATE TABLE t (id int4 PRIMARY KEY, v int4); INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 100) i"
    )
    scan = Scan(table_of(connector), ("id",), "t.v = 3 OR public.t.v = 4 -- some")
    assert connector.maximum(scan) == ("94",)
    walk = spans(connector, scan, 5)
    assert len(walk) == 4
    assert {row["v"] for span in walk for row in read(opened(database, scan, span))} == {3, 4}


def test_errors_say_what_is_wrong(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    table = table_of(connector)
    with pytest.raises(ConfigError, match=r'Surrogate key "sk" doesn.t exist in table "public\.t"'):
        connector.walked(table, "sk")
    with pytest.raises(ConfigError, match="no_such"):
        read(opened(database, Scan(table, ("id",), "no_such = 1")))
    database.execute("ALTER TABLE t RENAME TO renamed")
    assert opened_table(database, table) == "public.renamed"
    assert connector.present([table.id])[0].name == "renamed"
    database.execute("DROP TABLE renamed")
    with pytest.raises(ConfigError, match=r"public\.t does not exist any more"):
        opened(database, Scan(table, ("id",)))
    with pytest.raises(ConfigError, match="does not exist any more"):
        connector.maximum(Scan(table, ("id",)))
    assert connector.present([table.id]) == []


def test_rows_that_stop_coming(database: Database, connector: PostgresConnector) -> None:
    """A connection that is cut in the middle heals with time, a statement that fails there does not."""
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 60000) i")
    table = table_of(connector)
    for statement in ("terminate", "cancel"):
        rows = (chunk := opened(database, Scan(table, ("id",)))).rows()
        next(rows)
        database.execute(
            f"SELECT pg_{statement}_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'tidelog chunks' AND datname = current_database()"
        )
        with pytest.raises(TransientError):
            list(rows)
        with contextlib.suppress(TransientError):
            chunk.close()
    chunk = opened(database, Scan(table, ("id",), "100 / (id - 59000) < 1000"))
    with pytest.raises(ConfigError, match="division by zero"):
        list(chunk.rows())
    chunk.close()


@pytest.mark.parametrize(
    ("state", "kind"), [("40001", TransientError), ("57014", TransientError), ("22023", ConfigError)]
)
def test_the_state_decides_and_not_the_words(
    database: Database, connector: PostgresConnector, state: str, kind: type[Exception]
) -> None:
    """Servers speak many languages."""
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100000)")
    database.execute(
        "CREATE FUNCTION halt(i int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF i > 99000 THEN "
        f"RAISE EXCEPTION 'canceling statement? Nein.' USING ERRCODE = '{state}'; END IF; RETURN true; END $$"
    )
    chunk = opened(database, Scan(table_of(connector), ("id",), "halt(id)"))
    with pytest.raises(kind, match=r"canceling statement\? Nein"):
        list(chunk.rows())
    chunk.close()


def opened_table(database: Database, table: Table) -> str:
    chunk = opened(database, Scan(table, ("id",)))
    chunk.close()
    return chunk.table.qualified


# -- values ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured(postgres: Postgres) -> Iterator[Captured]:
    database = postgres.create_database("chunk_types")
    found = Captured(database)
    found.database = database  # type: ignore[attr-defined]
    yield found
    found.connection.close()
    database.drop()


def whole(chunk: OpenChunk) -> pa.Table:
    try:
        found = pa.Table.from_batches(list(chunk.rows())).sort_by("id").combine_chunks()
        chunk.end()
        return found
    finally:
        chunk.close()


RULED = {
    "column__mask__hash__SHA-256__with__salt__s": ".*[.]c(6|5|13|16)",  # bool, float8, text, char(10)
    "column__truncate__to__3__chars": ".*[.]c(18|32|41)",
}


@pytest.mark.parametrize(
    "more", [{}, {"decimal__handling__mode": "double"}, {"decimal__handling__mode": "string"}, RULED]
)
def test_values_are_those_of_the_stream(captured: Captured, more: dict[str, str]) -> None:
    database: Database = captured.database  # type: ignore[attr-defined]
    connector = create(options(database, **more))
    table = table_of(connector, "everything")
    selection = connector.selection()
    stream = PostgresDecoder().typed(captured.records, table, selection).rows
    ours = whole(opened(database, Scan(table, ("id",)), **more))
    connector.close()
    delivered = [name for name in stream.schema.names if not name.startswith("_")]
    assert ours.schema == pa.schema([stream.schema.field(name) for name in delivered])
    for name in delivered:
        one, other = (t.column(name) for t in (ours, pa.Table.from_batches([stream])))
        if pa.types.is_floating(one.type):
            one, other = one.cast(pa.string()), other.cast(pa.string())
        assert one.equals(other), name


def test_texts_are_the_servers_own(captured: Captured) -> None:
    database: Database = captured.database  # type: ignore[attr-defined]
    connector = create(options(database))
    table = table_of(connector, "everything")
    connector.close()
    chunk = opened(database, Scan(table, ("id",)), texts=True)
    rows = sorted(read(chunk), key=lambda row: int(row["id"]))
    assert len(rows) == ROWS
    for i, kind in enumerate(COLUMNS):
        assert [row[f"c{i}"] for row in rows] == captured.texts(f"c{i}"), kind


def test_a_composite_of_nulls_is_no_null(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TYPE pair AS (a int4, b text); CREATE TABLE t (id int4 PRIMARY KEY, p pair, u timestamp)")
    database.execute("INSERT INTO t VALUES (1, ROW(NULL, NULL)), (2, NULL)")
    rows = read(opened(database, Scan(table_of(connector), ("id",))))
    assert {row["id"]: row["p"] for row in rows} == {1: "(,)", 2: None}


def test_a_key_that_cannot_be_read_is_not_shown(database: Database, connector: PostgresConnector) -> None:
    """Errors never tell a value that a type does not take; a masked key is told as it is delivered."""
    database.execute("CREATE TABLE t (a text, n numeric(5,2), PRIMARY KEY (a, n))")
    database.execute("INSERT INTO t VALUES ('secret', 'NaN')")
    scan = Scan(table_of(connector), ("a", "n"))
    with pytest.raises(UnsupportedChange, match=r"in the row with a = secret\. "):
        read(opened(database, scan))
    with pytest.raises(UnsupportedChange, match=r"in the row with a = \*\*\*\. "):
        read(opened(database, scan, **{"column.mask.with.3.chars": "public.t.a"}))


def test_what_does_not_fit_stops_or_is_left_out(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, n numeric(5,2), u timestamp)")
    database.execute("INSERT INTO t VALUES (1, 'NaN', NULL), (2, 1.5, 'infinity'), (3, 1, '294276-12-31 23:59:59')")
    scan = Scan(table_of(connector), ("id",))
    with pytest.raises(UnsupportedChange, match=r"^public.t, column n: .*, in the row with id = 1\. "):
        read(opened(database, scan))
    with pytest.raises(UnsupportedChange, match=r"^public.t, column u: .*, in the row with id = 3\. "):
        read(opened(database, scan, Span(("1",), None)))
    chunk = opened(database, scan, event__processing__failure__handling__mode="warn")
    (batch,) = chunk.rows()
    letters = chunk.letters().to_pylist()
    chunk.close()
    assert batch.column("id").to_pylist() == [2]
    assert [(letter["table"], letter["op"]) for letter in letters] == [("public.t", "r")] * 2
    assert json.loads(letters[0]["payload"]) == {"id": "1", "n": "NaN", "u": None}
    assert json.loads(letters[1]["payload"])["id"] == "3"
    assert "column u" in letters[1]["reason"]
    assert batch.column("u").view(pa.int64()).to_pylist() == [2**63 - 1]


def test_a_dead_letter_hides_what_a_rule_hides(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, n numeric(5,2), card text, photo bytea)")
    database.execute("INSERT INTO t VALUES (1, 'NaN', '4711', 'x')")
    rules = {"event__processing__failure__handling__mode": "dead-letter", "column__mask__with__3__chars": ".*card"}
    chunk = opened(database, Scan(table_of(connector), ("id",)), **rules)
    assert read(chunk) == []
    (letter,) = chunk.letters().to_pylist()
    assert json.loads(letter["payload"]) == {"id": "1", "n": "NaN", "card": "***", "photo": "78"}


def test_generated_and_excluded_columns_are_not_read(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, a int4, g int4 GENERATED ALWAYS AS (a + 1) STORED, x text)")
    database.execute("INSERT INTO t VALUES (1, 2)")
    scan = Scan(table_of(connector), ("id",))
    assert read(opened(database, scan, column__exclude__list=".*[.]x")) == [{"id": 1, "a": 2}]


# -- watermarks ------------------------------------------------------------------------------------------------


def covered(chunk: OpenChunk, xid: int) -> bool:
    return bool(chunk.watermark.covers(np.zeros(1, np.int64), np.array([xid], np.int64))[0])


def test_the_watermark_covers_exactly_what_was_committed_before(
    database: Database, connector: PostgresConnector
) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    scan = Scan(table_of(connector), ("id",))
    with database.connect(autocommit=False) as before, database.connect(autocommit=False) as open_:
        (first,) = before.execute("INSERT INTO t VALUES (1) RETURNING pg_current_xact_id()::text::int8").fetchone()
        (second,) = open_.execute("INSERT INTO t VALUES (2) RETURNING pg_current_xact_id()::text::int8").fetchone()
        open_.execute("SAVEPOINT s")
        open_.execute("INSERT INTO t VALUES (3)")
        assert connector.next_xid() > second
        assert not connector.settled(connector.next_xid())
        assert connector.settled(first)
        before.commit()
        chunk = opened(database, scan)
        assert covered(chunk, first)
        assert not covered(chunk, second)
        open_.commit()
        with database.connect() as after:
            (third,) = after.execute("INSERT INTO t VALUES (4) RETURNING pg_current_xact_id()::text::int8").fetchone()
        assert not covered(chunk, second)
        assert not covered(chunk, third)
        assert read(chunk) == [{"id": 1}]
    again = opened(database, scan)
    assert all(covered(again, xid) for xid in (first, second, third))
    assert len(read(again)) == 4
    assert connector.settled(connector.next_xid())
    assert isinstance(connector.horizon(), Visible)
    assert connector.next_xid() == third + 1


def write(database: Database, over: threading.Event) -> None:
    """Transactions with savepoints, some of them long."""
    with database.connect(autocommit=False) as writer:
        turn = 0
        while not over.is_set():
            writer.execute("INSERT INTO t DEFAULT VALUES; SAVEPOINT s; INSERT INTO t DEFAULT VALUES; RELEASE s")
            turn += 1
            if turn % 5 == 0:
                writer.execute("SELECT pg_sleep(0.01)")
            writer.commit()


def test_beside_writers_a_chunk_holds_exactly_what_its_watermark_covers(
    database: Database, connector: PostgresConnector
) -> None:
    database.execute("CREATE TABLE t (id serial PRIMARY KEY, xid int8 DEFAULT pg_current_xact_id()::text::int8)")
    scan, over = Scan(table_of(connector), ("id",)), threading.Event()
    writers = [threading.Thread(target=write, args=(database, over)) for _ in range(4)]
    for thread in writers:
        thread.start()
    taken = []
    for _ in range(40):
        chunk = opened(database, scan)
        taken.append((chunk.watermark, {row["xid"] for row in read(chunk)}))
    over.set()
    for thread in writers:
        thread.join()
    all_xids = np.array(sorted({row[0] for row in database.execute("SELECT xid FROM t")}), np.int64)
    assert any(watermark.running for watermark, _ in taken if isinstance(watermark, Visible))
    for watermark, seen in taken:
        covered_xids = all_xids[watermark.covers(np.zeros(len(all_xids), np.int64), all_xids)]
        assert set(covered_xids.tolist()) == seen


def test_a_prepared_transaction_is_not_covered_until_it_is_committed() -> None:
    server = Postgres.start(18, settings={"max_prepared_transactions": 5})
    try:
        database = server.create_database("prepared")
        database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
        connector = create(options(database))
        scan = Scan(table_of(connector), ("id",))
        with database.connect(autocommit=False) as two:
            (xid,) = two.execute("INSERT INTO t VALUES (1) RETURNING pg_current_xact_id()::text::int8").fetchone()
            two.execute("PREPARE TRANSACTION 'p'")
        chunk = opened(database, scan)
        assert not covered(chunk, xid)
        assert connector.next_xid() == xid + 1
        assert not connector.settled(xid + 1)
        assert read(chunk) == []
        database.execute("COMMIT PREPARED 'p'")
        assert covered(later := opened(database, scan), xid)
        assert read(later) == [{"id": 1}]
        connector.close()
    finally:
        server.stop()


@pytest.mark.parametrize("page_ends", [False, True])
def test_once_the_stream_has_passed_it_has_told_all_that_the_chunk_saw(world: World, page_ends: bool) -> None:
    """Also where nobody writes any more, commits are not flushed at once, and the log ends with a page."""
    database, connector = world.database, world.connector()
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    tail = connector.tail(connector.prepare(), [], 1 << 20)
    with database.connect(options="-c synchronous_commit=off") as writer:
        for i in range(50):
            writer.execute("INSERT INTO t SELECT generate_series(%s::int4, %s::int4)", [i * 100, i * 100 + 99])
        if page_ends:
            fill_page(writer)
    chunk = opened(database, Scan(table_of(connector), ("id",)))
    assert sum(batch.num_rows for batch in chunk.rows()) == 5000
    passed = chunk.end()
    chunk.close()
    told, patience = 0, Patience(10)  # the server itself writes something after 15 seconds
    while tail.seen() < passed:
        assert not patience.is_over(), "the log never came to where the chunk waits for it"
        portion = tail.poll(0.05, True)
        told += sum(portion.transactions.column("events").to_pylist()) if portion is not None else 0
        tail.ping()
    assert told >= 5000  # messages count too
    tail.close()
    connector.close()


def fill_page(writer: psycopg.Connection[Any]) -> None:
    """Write messages until the log ends with a page."""
    where = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 % 8192"
    emit = "SELECT pg_logical_emit_message(false, 'p', repeat('x', %s), true)"
    for _ in range(300):
        at = writer.execute(where).fetchone()[0]
        if at == 24:
            return
        writer.execute(emit, [max(0, 8192 - at - 56) if at < 8000 else 100])
    pytest.fail("the log would not end with a page")


def test_the_table_is_held_from_before_the_snapshot(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    scan = Scan(table_of(connector), ("id",))
    with database.connect(autocommit=False) as changing:
        changing.execute("ALTER TABLE t ADD COLUMN v int4 DEFAULT 7")
        waiting: list[OpenChunk] = []
        thread = threading.Thread(target=lambda: waiting.append(opened(database, scan)))
        thread.start()
        time.sleep(0.3)
        assert not waiting
        changing.commit()
        thread.join(wall_seconds())
    assert [column.name for column in waiting[0].table.columns] == ["id", "v"]
    with database.connect() as impatient:
        impatient.execute("SET lock_timeout = '200ms'")
        with pytest.raises(Exception, match="lock timeout"):
            impatient.execute("TRUNCATE t")
    assert read(waiting[0]) == [{"id": 1, "v": 7}]


def standby_of(primary: Postgres) -> Postgres:
    """A second server that follows the first."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-standby-"))
    made = Postgres(18, folder, owned=True, outlive=False, settings={"hot_standby_feedback": "on"})
    command = primary.command("pg_basebackup", "-D", str(made.data), "-R", "-c", "fast", "-d", primary.dsn)
    give_away(folder)
    subprocess.run([*unprivileged(folder), *command], check=True, capture_output=True, cwd="/")
    made.resume()
    return made


def test_on_a_standby_replay_is_the_watermark(private_postgres: Postgres) -> None:
    primary = private_postgres.create_database("source")
    primary.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    second = standby_of(private_postgres)
    try:
        replica = Database(second, "source")
        connector = create(options(replica))
        until_replayed(primary, replica)
        chunk = opened(replica, Scan(table_of(connector), ("id",)))
        assert isinstance(chunk.watermark, Replayed)
        (written,) = primary.execute("INSERT INTO t VALUES (2) RETURNING pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[
            0
        ]
        commit = int(written)  # the commit's record begins here or later
        until_replayed(primary, replica)
        assert not chunk.watermark.covers(np.array([commit | 7]), np.array([1]))[0]
        assert [row for batch in chunk.rows() for row in batch.to_pylist()] == [{"id": 1}]
        assert chunk.end() > commit
        chunk.close()
        later = opened(replica, Scan(table_of(connector), ("id",)))
        end = int(replica.execute("SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn")[0][0])
        assert later.watermark.covers(np.array([commit | 7]), np.array([1]))[0]
        assert later.watermark.covers(np.array([(end - 8) | 7]), np.array([1]))[0]
        assert not later.watermark.covers(np.array([end | 7]), np.array([1]))[0]
        assert len(read(later)) == 2
        assert connector.settled(10**9)
        assert isinstance(connector.horizon(), Replayed)
        assert connector.next_xid() > 700
        connector.close()
    finally:
        second.stop()


def until_replayed(primary: Database, replica: Database) -> None:
    (end,) = primary.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0]
    patience = Patience()
    while replica.execute("SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn")[0][0] < end:
        assert not patience.is_over()
        time.sleep(0.05)


# -- connections and roles -------------------------------------------------------------------------------------


def test_a_role_that_may_only_select_is_enough(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    role = f"reader_{database.dbname}"
    database.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'p w'; ALTER ROLE {role} SET default_transaction_read_only = on"
    )
    settings = {"snapshot__database__user": role, "snapshot__database__password": "p w"}
    scan = Scan(table_of(connector), ("id",))
    try:
        with pytest.raises(ConfigError, match="permission denied"):
            opened(database, scan, **settings)
        database.execute(f"GRANT SELECT ON t TO {role}")
        assert read(opened(database, scan, **settings)) == [{"id": 1}]
        planner = create(options(database, **settings))
        assert planner.maximum(scan) == ("1",)
        assert database.execute("SELECT usename FROM pg_stat_activity WHERE usename = %s LIMIT 1", [role])
        planner.close()
        database.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        with pytest.raises(ConfigError, match="row-level security"):
            read(opened(database, scan, **settings))
        with pytest.raises(ConfigError, match="password"):
            opened(database, scan, **{**settings, "snapshot__database__password": "wrong-secret"})
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_connections_are_kept_and_a_cut_one_is_replaced(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    scan = Scan(table_of(connector), ("id",))
    mine = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tidelog chunks' AND datname = current_database()"
    read(opened(database, scan))
    (kept,) = database.execute(mine)
    read(opened(database, scan))
    assert database.execute(mine) == [kept]
    database.execute("SELECT pg_terminate_backend(%s)", [kept[0]])
    until(lambda: kept not in database.execute(mine), "the end of the connection")
    assert read(opened(database, scan)) == []
    assert len(database.execute(mine)) == 1


def test_a_chunk_that_is_given_up_leaves_nothing_behind(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100000) i")
    scan = Scan(table_of(connector), ("id",))
    chunk = opened(database, scan)
    rows = chunk.rows()
    assert next(rows).num_rows < 100_000
    rows.close()
    chunk.close()
    chunk.close()
    with pytest.raises(TransientError, match="closed"):
        chunk.end()
    database.execute("TRUNCATE t")


def test_a_cut_in_the_middle_is_transient(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
    chunk = opened(database, Scan(table_of(connector), ("id",)))
    database.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'tidelog chunks' "
        "AND datname = current_database()"
    )
    with pytest.raises(TransientError):
        list(chunk.rows())
    chunk.close()


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
def test_windows_are_told_in_the_signal_table(database: Database, connector: PostgresConnector, strategy: str) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    database.execute(
        'CREATE SCHEMA "S"; CREATE TABLE "S".sig ("Key" varchar(64) PRIMARY KEY, kind text, body text, x int)'
    )
    scan = Scan(table_of(connector), ("id",))
    settings = {
        "read__only": "false",
        "signal__data__collection": "S.sig",
        "incremental__snapshot__watermarking__strategy": strategy,
    }
    chunk = opened(database, scan, **settings)
    ((key, kind, body, _),) = database.execute('SELECT * FROM "S".sig')
    assert (key, kind) == ("a-open", "snapshot-window-open")
    assert json.loads(body).keys() == {"openWindowTimestamp", "dataCollectionId"}
    assert read(chunk) == [{"id": 1}]
    rows = {row[0]: (row[1], json.loads(row[2])) for row in database.execute('SELECT * FROM "S".sig')}
    if strategy == "insert_delete":
        assert rows == {}
    else:
        assert rows["a-close"][0] == "snapshot-window-close"
        assert "closeWindowTimestamp" in rows["a-close"][1]
        assert len(rows) == 2


def test_an_empty_table_has_no_maximum(database: Database, connector: PostgresConnector) -> None:
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY)")
    scan = Scan(table_of(connector), ("id",))
    assert connector.maximum(scan) is None
    assert read(opened(database, scan)) == []


def test_a_table_on_older_servers(database15: Database) -> None:
    database15.execute("CREATE TABLE t (id int4 PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
    connector = create(options(database15))
    scan = Scan(table_of(connector), ("id",))
    assert len([row for s in spans(connector, scan, 3) for row in read(opened(database15, scan, s))]) == 10
    connector.close()


def test_a_key_that_message_key_columns_name_serves_a_table_without_one(database: Database) -> None:
    database.execute("CREATE TABLE t (a int4, b int4)")
    connector = create(options(database, message__key__columns="public.t:b,a"))
    assert connector.walked(table_of(connector)) == ("b", "a")
    connector.close()
