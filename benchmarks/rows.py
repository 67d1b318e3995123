"""The rows that every snapshot reads: tables of eight columns, written and analysed before any slot exists.

`big` is what the contenders read, `medium` and `small` the same for those that would take too long. `warm` gets a few
commits while a contender starts, so that its clock begins when it demonstrably streams; `signals` is where Debezium is
asked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from demo.embedded import Database

from benchmarks import load

ROWS = 1_000_000
ROWS_MEDIUM = 500_000
ROWS_SMALL = 100_000
PUBLICATION = "snapshot"
BIG, MEDIUM, SMALL = "public.big", "public.medium", "public.small"
WARM, SIGNALS = "public.warm", "public.signals"
WARM_SECONDS = 0.2
# PostgreSQL's default. A window that is told in the source waits until the log is flushed: else, for a timer.
SETTINGS = {**load.SETTINGS, "synchronous_commit": "on"}

SCHEMA = """
CREATE TABLE {} (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    amount numeric(10, 2) NOT NULL,
    customer integer NOT NULL,
    active boolean NOT NULL,
    changed_at timestamptz NOT NULL,
    score double precision,
    email text NOT NULL
)
"""

ROW = """
    n, 'customer number ' || n, (n % 1000000) / 100.0, (n::bigint * 7919 % 100000)::int, n % 3 = 0,
    timestamptz '2026-01-01' + n * interval '1 second', CASE WHEN n % 10 > 0 THEN n / 7.0 END,
    'c' || n || '@bench.example'
"""


def prepare(database: Database, rows: int) -> None:
    for table, count in ((BIG, rows), (MEDIUM, min(rows, ROWS_MEDIUM)), (SMALL, min(rows, ROWS_SMALL))):
        database.execute(SCHEMA.format(table))
        database.execute(f"INSERT INTO {table} SELECT {ROW} FROM generate_series(1, {count}) AS n")
    database.execute(load.SCHEMA)
    database.execute(f"CREATE TABLE {WARM} (id bigint PRIMARY KEY, turn integer)")
    database.execute(f"CREATE TABLE {SIGNALS} (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))")
    database.execute("VACUUM ANALYZE")
    database.execute("CHECKPOINT")
    database.execute(
        f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {BIG}, {MEDIUM}, {SMALL}, {WARM}, {SIGNALS}, {load.TABLE}"
    )


@contextlib.contextmanager
def slot(database: Database, name: str) -> Iterator[str]:
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    try:
        yield name
    finally:
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        let_go = (
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s AND active"
        )
        database.execute(let_go, [name])
        database.execute(drop, [name])


@contextlib.contextmanager
def committing(database: Database, how: str) -> Iterator[None]:
    """Everybody who connects meanwhile commits so: `on` waits for the log to be flushed, `off` does not."""
    database.execute(f"ALTER DATABASE {database.dbname} SET synchronous_commit = {how}")
    try:
        yield
    finally:
        database.execute(f"ALTER DATABASE {database.dbname} RESET synchronous_commit")


@contextlib.contextmanager
def nudging(database: Database, every_s: float = WARM_SECONDS) -> Iterator[None]:
    """Commit to the table `warm` from time to time: who streams has something to deliver."""
    over = threading.Event()
    thread = threading.Thread(target=_nudge, args=(database, every_s, over), name="nudge", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _nudge(database: Database, every_s: float, over: threading.Event) -> None:
    again = f"INSERT INTO {WARM} VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET turn = warm.turn + 1"
    with database.connect() as connection:
        while not over.wait(every_s):
            connection.execute(again.encode())
