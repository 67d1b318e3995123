"""The changes that every contender reads: one table of eight columns and a fixed mix of transactions.

Of 1.4 million events, 1 million are inserts in transactions of 1000, 300 thousand are updates in transactions of 1000
scattered over the whole table, and 100 thousand are inserts that are a transaction each. The slots are created before
the load, so each contender replays the same write-ahead log from the same place, as often as there are slots.
"""

from __future__ import annotations

from dataclasses import dataclass

from demo.embedded import Database

ROWS_PER_TRANSACTION = 1_000
EVENTS = 1_400_000
PUBLICATION = "bench"
TABLE = "public.bench"

SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "synchronous_commit": "off",
}

SCHEMA = """
CREATE TABLE bench (
    id bigint PRIMARY KEY,
    customer integer NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    score double precision,
    active boolean NOT NULL,
    changed_at timestamptz NOT NULL
)
"""

ROW = """
    n, (n::bigint * 7919 % 100000)::int, 'customer number ' || n, 'c' || n || '@bench.example', (n % 1000000) / 100.0,
    CASE WHEN n % 10 > 0 THEN n / 7.0 END, n % 3 = 0, timestamptz '2026-01-01' + n * interval '1 second'
"""


@dataclass(frozen=True)
class Load:
    """How many of each kind; `end_lsn` lies past the last of them."""

    inserts: int
    updates: int
    singles: int
    end_lsn: str = ""

    @property
    def events(self) -> int:
        return self.inserts + self.updates + self.singles


def shares(events: int) -> Load:
    """Divide 10 : 3 : 1, in whole transactions of a thousand rows."""
    inserts = max(1, events * 10 // 14 // ROWS_PER_TRANSACTION) * ROWS_PER_TRANSACTION
    updates = events * 3 // 14 // ROWS_PER_TRANSACTION * ROWS_PER_TRANSACTION
    return Load(inserts, updates, max(0, events - inserts - updates))


def prepare(database: Database, slots: list[str]) -> None:
    database.execute(SCHEMA)
    database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}")
    for slot in slots:
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])


def write(database: Database, load: Load) -> Load:
    """Write everything; the load, with the place where it ends."""
    stride = load.inserts // ROWS_PER_TRANSACTION
    with database.connect() as connection:
        for block in (inserts(load), updates(load, stride), singles(load)):
            connection.execute(block.encode())
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        # Something after the end, so that the server moves past it and says so.
        connection.execute("SELECT pg_logical_emit_message(false, 'bench', 'end')")
        connection.execute("SELECT pg_switch_wal()")
    assert row is not None
    return Load(load.inserts, load.updates, load.singles, row[0])


def inserts(load: Load) -> str:
    per = ROWS_PER_TRANSACTION
    body = f"INSERT INTO bench SELECT {ROW} FROM generate_series(t * {per} + 1, t * {per} + {per}) AS n"
    return loop(load.inserts // per, body)


def updates(load: Load, stride: int) -> str:
    """Transaction t touches one row of every stretch of `stride` rows."""
    rows = f"SELECT n * {stride} + t % {stride} + 1 FROM generate_series(0, {ROWS_PER_TRANSACTION - 1}) AS n"
    body = f"UPDATE bench SET amount = amount + 1, changed_at = now() WHERE id IN ({rows})"
    return loop(load.updates // ROWS_PER_TRANSACTION, body)


def singles(load: Load) -> str:
    return loop(load.singles, f"INSERT INTO bench SELECT {ROW} FROM (SELECT {load.inserts} + t + 1 AS n) AS one")


def loop(times: int, body: str) -> str:
    """A transaction per turn."""
    return f"DO $$ BEGIN FOR t IN 0 .. {times - 1} LOOP {body}; COMMIT; END LOOP; END $$"
