"""Changes of rows that the log does not tell: the catalog shows them, and the table is read again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.postgres.snapshot_rig import Rig, rows_of
from tests.integration.postgres.world import until
from tests.servers import Database
from tidelog.connectors.postgres import connector
from tidelog.contracts import UnloggedChange

ROOT = """
CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF root FOR VALUES FROM (0) TO (100);
CREATE TABLE p2 PARTITION OF root FOR VALUES FROM (100) TO (200);
CREATE TABLE p3 PARTITION OF root FOR VALUES FROM (200) TO (300);
INSERT INTO root SELECT i, 'old' FROM generate_series(50, 249) i
"""
FILLED = "CREATE TABLE p4 (LIKE root); INSERT INTO p4 SELECT i, 'came along' FROM generate_series(300, 349) i"
ATTACH = "ALTER TABLE root ATTACH PARTITION p4 FOR VALUES FROM (300) TO (400)"
CHANGES = {
    "attach": f"{FILLED}; {ATTACH}",
    "attach in one transaction": f"BEGIN; {FILLED}; {ATTACH}; COMMIT",
    "attach what was filled under a savepoint": (
        "BEGIN; CREATE TABLE p4 (LIKE root); SAVEPOINT s; INSERT INTO p4 VALUES (310, 'came along');"
        f"RELEASE SAVEPOINT s; {ATTACH}; COMMIT"
    ),
    "attach a tree": (
        "CREATE TABLE p4 (id int NOT NULL, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE p5 PARTITION OF p4 FOR VALUES FROM (300) TO (350);"
        f"INSERT INTO p4 VALUES (310, 'deep'); {ATTACH}"
    ),
    "detach": "ALTER TABLE root DETACH PARTITION p2",
    "detach concurrently": "ALTER TABLE root DETACH PARTITION p2 CONCURRENTLY",
    "drop": "DROP TABLE p2",
    "truncate": "TRUNCATE p2",
    "truncate and fill": "TRUNCATE p2; INSERT INTO root VALUES (150, 'new')",
    "truncate, fill and redefine": (
        "TRUNCATE p2; INSERT INTO root VALUES (150, 'new'); ALTER TABLE p2 SET (fillfactor = 50)"
    ),
    "truncate, fill and vacuum full": "TRUNCATE p2; INSERT INTO root VALUES (150, 'new'); VACUUM FULL p2",
    "truncate, fill and cluster": (
        "BEGIN; TRUNCATE p2; INSERT INTO root VALUES (150, 'new'); COMMIT; CLUSTER p2 USING p2_pkey"
    ),
    "unlogged for a while": (
        "ALTER TABLE p2 SET UNLOGGED; UPDATE root SET v = 'new' WHERE id = 120;"
        "DELETE FROM root WHERE id = 110; ALTER TABLE p2 SET LOGGED"
    ),
    "unlogged": "ALTER TABLE p2 SET UNLOGGED; UPDATE root SET v = 'new' WHERE id = 120",
    "unlogged, and truncated": (
        "ALTER TABLE p2 SET UNLOGGED; TRUNCATE p2; INSERT INTO root VALUES (150, 'new'); ALTER TABLE p2 SET LOGGED"
    ),
    "created unlogged": (
        "CREATE UNLOGGED TABLE p4 PARTITION OF root FOR VALUES FROM (300) TO (400);"
        "INSERT INTO root VALUES (310, 'new'); ALTER TABLE p4 SET LOGGED"
    ),
    "detach and attach again": (
        "ALTER TABLE root DETACH PARTITION p2; DELETE FROM p2 WHERE id = 120; UPDATE p2 SET v = 'apart' WHERE id = 130;"
        "ALTER TABLE root ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)"
    ),
    "replace": f"{FILLED}; DROP TABLE p3; {ATTACH}; UPDATE root SET v = 'changed' WHERE id IN (50, 320)",
}
HARMLESS = {
    "a new partition": (
        "CREATE TABLE p4 PARTITION OF root FOR VALUES FROM (300) TO (400); INSERT INTO root VALUES (310)"
    ),
    "an empty partition": f"CREATE TABLE p4 (LIKE root); {ATTACH}",
    "a new partition that was emptied": (
        "CREATE TABLE p4 PARTITION OF root FOR VALUES FROM (300) TO (400); TRUNCATE p4; INSERT INTO root VALUES (310)"
    ),
    "vacuum full": "VACUUM FULL p1; VACUUM FULL root",
    "cluster": "CLUSTER p1 USING p1_pkey",
    "other definitions": (
        "ALTER TABLE root ADD COLUMN more int; CREATE INDEX ON root (v); ALTER TABLE p1 SET (fillfactor = 50);"
        "GRANT SELECT ON root TO PUBLIC; COMMENT ON TABLE p1 IS 'x'; ANALYZE root"
    ),
}


@pytest.fixture
def rig(database: Database, tmp_path: Path) -> Iterator[Rig]:
    with Rig(database, tmp_path / "pipeline") as made:
        yield made


def execute(database: Database, statements: str) -> None:
    """One connection, and one statement after the other, as psql does it."""
    with database.connect() as connection:
        for statement in statements.split(";"):
            if statement.strip():
                connection.execute(statement)


def follow(rig: Rig, table: str, key: str = "id") -> None:
    """Until the target equals the source."""
    rig.run()
    until(lambda: rig.run() or rig.target[f"public.{table}"] == rows_of(rig.database, table, key), "the source's rows")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "the log does not tell" in r.getMessage()]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_partitions(rig: Rig, change: str, when: str, caplog: pytest.LogCaptureFixture) -> None:
    execute(rig.database, ROOT)
    rig.source["table.include.list"] = "public.root"
    rig.run()
    rig.check("root")
    if when == "stopped":
        rig.crash()
    execute(rig.database, CHANGES[change])
    follow(rig, "root")
    (warning,) = warnings(caplog)
    assert warning.startswith("public.root: ")
    rig.crash()
    rig.run()
    rig.check("root")
    assert len(warnings(caplog)) == 1


def test_a_default_is_written_into_a_new_file(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """VACUUM FULL defines a column anew whose default was not in the rows. They keep their values."""
    execute(
        rig.database, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER TABLE t ADD b int DEFAULT 5"
    )
    rig.source["table.include.list"] = "public.t"
    rig.run()
    before = len(rig.reads)
    execute(rig.database, "VACUUM FULL t")
    rig.run()
    rig.crash()
    rig.run()
    assert len(rig.reads) == before
    assert warnings(caplog) == []


@pytest.mark.parametrize("change", HARMLESS)
def test_partitions_that_keep_their_rows(rig: Rig, change: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is read again."""
    execute(rig.database, ROOT)
    rig.source["table.include.list"] = "public.root"
    rig.run()
    before = len(rig.reads)
    execute(rig.database, HARMLESS[change])
    rig.run()
    rig.crash()
    rig.run()
    rig.check_loosely("root")
    assert len(rig.reads) == before
    assert warnings(caplog) == []


def test_a_locked_partition_is_not_waited_for_by_each_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at it is repeated after a while; until then, the stream and signals go on."""
    monkeypatch.setattr(connector, "_PATIENCE_S", 1)
    execute(rig.database, f"{ROOT}; CREATE TABLE other (id int PRIMARY KEY); {FILLED}; {ATTACH}")
    rig.source["table.include.list"] = "public.root,public.other"
    rig.run()
    looks: list[str] = []
    compare = connector.PostgresConnector.unlogged_change

    def counted(self: connector.PostgresConnector, before: str, now: str) -> UnloggedChange | None:
        looks.append(now)
        return compare(self, before, now)

    monkeypatch.setattr(connector.PostgresConnector, "unlogged_change", counted)
    with rig.database.connect(autocommit=False) as other:
        execute(rig.database, "TRUNCATE p4; INSERT INTO root VALUES (310, 'new'); INSERT INTO other VALUES (1)")
        other.execute("LOCK TABLE p4 IN ACCESS EXCLUSIVE MODE")
        until(lambda: rig.batch() or looks, "a look at the partition")
        for id in range(2, 8):
            execute(rig.database, f"INSERT INTO other VALUES ({id})")
            rig.catch_up()
            rig.batch()
        assert len(looks) == 1
        other.rollback()
    follow(rig, "root")
    follow(rig, "other")


TYPES = {
    "enum": ("CREATE TYPE kind AS ENUM ('a', 'b')", "kind", "'a'", "ALTER TYPE kind RENAME VALUE 'a' TO 'z'"),
    "array": ("CREATE TYPE kind AS ENUM ('a', 'b')", "kind[]", "'{a,b}'", "ALTER TYPE kind RENAME VALUE 'a' TO 'z'"),
    "domain": (
        "CREATE TYPE kind AS ENUM ('a', 'b'); CREATE DOMAIN few AS kind",
        "few",
        "'a'",
        "ALTER TYPE kind RENAME VALUE 'a' TO 'z'",
    ),
    "range": (
        "CREATE TYPE kind AS ENUM ('a', 'b'); CREATE TYPE span AS RANGE (subtype = kind)",
        "span",
        "'[a,b]'",
        "ALTER TYPE kind RENAME VALUE 'a' TO 'z'",
    ),
    "composite": ("CREATE TYPE pair AS (x int, y int)", "pair", "'(1,2)'", "ALTER TYPE pair ADD ATTRIBUTE z int"),
    "nested": (
        "CREATE TYPE kind AS ENUM ('a', 'b'); CREATE TYPE pair AS (x int, y kind)",
        "pair",
        "'(1,a)'",
        "ALTER TYPE kind RENAME VALUE 'a' TO 'z'",
    ),
    "dropped": ("CREATE TYPE pair AS (x int, y int)", "pair", "'(1,2)'", "ALTER TYPE pair DROP ATTRIBUTE y"),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_that_are_written_otherwise(rig: Rig, name: str, caplog: pytest.LogCaptureFixture) -> None:
    create, type, value, change = TYPES[name]
    execute(rig.database, f"{create}; CREATE TABLE t (id int PRIMARY KEY, v {type}); INSERT INTO t VALUES (1, {value})")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    execute(rig.database, change)
    text = "to_json(v)::text" if type.endswith("[]") else "format('%s', v)"
    until(lambda: rig.run() or texts(rig, "t") == dict(rig.database.execute(f"SELECT id, {text} FROM t")), "the text")
    assert len(warnings(caplog)) == 1


def texts(rig: Rig, table: str) -> dict[Any, Any]:
    return {row["id"]: row["v"] for row in rig.target[f"public.{table}"].values()}


def test_a_key_of_an_enum(rig: Rig) -> None:
    """The row of the old text goes. A lagging reader may still hear of it before it reads."""
    execute(rig.database, "CREATE TYPE kind AS ENUM ('a', 'b'); CREATE TABLE t (id kind PRIMARY KEY, v int)")
    execute(rig.database, "INSERT INTO t VALUES ('a', 1), ('b', 2)")
    rig.run()
    rig.crash()
    execute(rig.database, "UPDATE t SET v = 3 WHERE id = 'a'; ALTER TYPE kind RENAME VALUE 'a' TO 'z'")
    execute(rig.database, "UPDATE t SET v = 4 WHERE id = 'b'")
    follow(rig, "t")


def test_labels_that_change_no_row(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    execute(rig.database, "CREATE TYPE kind AS ENUM ('a', 'b'); CREATE TABLE t (id int PRIMARY KEY, v kind)")
    execute(rig.database, "CREATE TYPE pair AS (x int); ALTER TABLE t ADD p pair; INSERT INTO t VALUES (1, 'a', '(1)')")
    rig.run()
    before = len(rig.reads)
    execute(rig.database, "ALTER TYPE kind ADD VALUE 'c' BEFORE 'b'; ALTER TYPE pair RENAME ATTRIBUTE x TO y")
    execute(rig.database, "INSERT INTO t VALUES (2, 'c', NULL)")
    rig.run()
    assert texts(rig, "t") == {1: "a", 2: "c"}
    assert len(rig.reads) == before
    assert warnings(caplog) == []


def test_rows_that_nobody_wants(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A pipeline without snapshots says what was done, and how to read the table."""
    caplog.set_level(logging.WARNING, "tidelog")
    execute(rig.database, ROOT)
    rig.source |= {"table.include.list": "public.root", "snapshot.mode": "no_data"}
    rig.run()
    execute(rig.database, "DROP TABLE p2")
    until(lambda: rig.run() or warnings(caplog), "the warning")
    (warning,) = warnings(caplog)
    assert "a partition was dropped" in warning
    assert "tidelog snapshot" in warning
    assert rig.reads == []


RECREATED = {
    "drop and create": "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'new')",
    "an empty one": "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text)",
    "swap": (
        "CREATE TABLE t_new (LIKE t INCLUDING ALL); INSERT INTO t_new VALUES (1, 'new'), (7, 'more');"
        "BEGIN; ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t; COMMIT; UPDATE t SET v = 'b' WHERE id = 7"
    ),
    "other columns": "DROP TABLE t; CREATE TABLE t (w int, id int PRIMARY KEY); INSERT INTO t VALUES (5, 9)",
}


@pytest.mark.parametrize("change", RECREATED)
@pytest.mark.parametrize("captured", ["public.t", "public\\..*"])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_table_that_takes_the_place_of_another(rig: Rig, change: str, captured: str, when: str) -> None:
    """While the pipeline runs as well as before a start."""
    execute(rig.database, "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY)")
    execute(rig.database, "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 50) i")
    rig.source["table.include.list"] = captured
    rig.run()
    if when == "stopped":
        rig.crash()
    execute(rig.database, RECREATED[change])
    follow(rig, "t")
    execute(rig.database, "INSERT INTO t (id) VALUES (1000); DELETE FROM t WHERE id = 1")
    follow(rig, "t")


def test_a_locked_table_that_takes_the_place_of_another_stops_nothing(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication needs a lock that CREATE INDEX and VACUUM do not leave to it."""
    monkeypatch.setattr(connector, "_PATIENCE_S", 1)
    execute(rig.database, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)")
    execute(rig.database, "INSERT INTO t VALUES (1); INSERT INTO other VALUES (1)")
    rig.run()
    execute(rig.database, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (2)")
    with rig.database.connect(autocommit=False) as indexing:
        indexing.execute("SET idle_in_transaction_session_timeout = '30s'")  # else a failure would hang
        indexing.execute("SET application_name = 'nightly index'")
        indexing.execute("CREATE INDEX ON t (id)")
        pid = indexing.info.backend_pid
        execute(rig.database, "INSERT INTO other VALUES (2)")
        follow(rig, "other")
        until(lambda: rig.run() or "nightly index" in caplog.text, "a warning that names the other session")
        execute(rig.database, "INSERT INTO other VALUES (3)")
        follow(rig, "other")
        indexing.rollback()
    follow(rig, "t")
    said = [r.getMessage() for r in caplog.records if "is not captured yet" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("public.t: another table has this name now, and is not captured yet: Adding public.t to ")
    assert f"waits for 1 session: pid {pid} (application 'nightly index'" in said[0]


STYLES = {
    "TimeZone": "Asia/Tokyo",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-10",
}


@pytest.mark.parametrize("scope", ["DATABASE {database}", "ROLE {user} IN DATABASE {database}"])
def test_values_are_read_as_the_log_tells_them(rig: Rig, scope: str) -> None:
    """Whatever style is set for the role or the database."""
    names = {"database": rig.database.dbname, "user": rig.database.user}
    for style, value in STYLES.items():
        rig.database.execute(f"ALTER {scope.format(**names)} SET {style} = '{value}'")
    columns = "at timestamptz, day date, took interval, raw bytea, f float8, g float4, price money, list float8[]"
    rig.database.execute(f"CREATE TABLE t (id int PRIMARY KEY, touched int, {columns})")
    rig.database.execute(
        "INSERT INTO t VALUES (1, 0, '2024-02-29 23:59:59.123456+00', '2024-02-29', '1 year 2 days 03:04:05', "
        "'\\x00ff', 0.1::float8 + 0.2, 0.1, 1234.5, '{0.30000000000000004}')"
    )
    rig.run()
    (read,) = rig.target["public.t"].values()
    before = {**read, "touched": 1}
    rig.database.execute("UPDATE t SET touched = 1")
    rig.run()
    (told,) = rig.target["public.t"].values()
    assert told == before


QUIET = {
    "domain": "ALTER DOMAIN short ADD CHECK (length(VALUE) < 90); ALTER DOMAIN short SET DEFAULT 'x'",
    "set": "ALTER TABLE t SET (fillfactor = 50); ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
    "vacuum full": "VACUUM FULL t",
    "cluster": "CLUSTER t USING t_pkey",
    "identity": "ALTER TABLE t REPLICA IDENTITY FULL",
    "generated": (
        "ALTER TABLE t ADD COLUMN s int GENERATED ALWAYS AS (id * 2) STORED;"
        "ALTER TABLE t ALTER COLUMN s SET EXPRESSION AS (id * 3)"
    ),
    "virtual": "ALTER TABLE t ADD COLUMN w int GENERATED ALWAYS AS (id * 2) VIRTUAL",
    "inheritance": "CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (77, 'of the child')",
}


@pytest.mark.parametrize("change", QUIET)
def test_changes_that_concern_no_row(rig: Rig, change: str, caplog: pytest.LogCaptureFixture) -> None:
    execute(rig.database, "CREATE DOMAIN short AS text; CREATE TABLE t (id int PRIMARY KEY, v short)")
    execute(rig.database, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    before = len(rig.reads)
    execute(rig.database, QUIET[change])
    rig.database.execute("UPDATE t SET v = 'c' WHERE id = 1")
    rig.run()
    own = {(1,): {"id": 1, "v": "c"}, (2,): {"id": 2, "v": "b"}}
    assert rig.target["public.t"] == own
    assert len(rig.reads) == before
    assert warnings(caplog) == []


@pytest.mark.parametrize("server", ["database16", "database15"])
def test_older_servers(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> None:
    with Rig(request.getfixturevalue(server), tmp_path / "pipeline") as rig:
        execute(rig.database, ROOT)
        rig.source["table.include.list"] = "public.root"
        rig.run()
        execute(rig.database, f"{CHANGES['attach']}; {CHANGES['truncate']}")
        follow(rig, "root")


AMBIGUOUS = {
    "rewritten under the same type": (
        "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t ALTER b TYPE int USING b * 100;UPDATE t SET b = 7 WHERE id = 3"
    ),
    "rewritten and constrained": (
        "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t ALTER b TYPE int USING b * 100, ALTER b SET NOT NULL;"
        "UPDATE t SET b = 7 WHERE id = 3"
    ),
    "rewritten, with a default and moved": (
        "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t ALTER b TYPE int USING b * 100;"
        "ALTER TABLE t ALTER b SET DEFAULT 5; UPDATE t SET b = 7 WHERE id = 3; VACUUM FULL t"
    ),
    "rewritten in the transaction of a change": (
        "BEGIN; UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t ALTER b TYPE text USING 'n' || b;"
        "ALTER TABLE t ALTER b TYPE int USING length(b); COMMIT"
    ),
    "replaced": (
        "UPDATE t SET b = 11 WHERE id = 1; INSERT INTO t VALUES (4, 40); ALTER TABLE t DROP b;"
        "ALTER TABLE t ADD b int DEFAULT 9"
    ),
    "replaced by an empty one": "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t DROP b; ALTER TABLE t ADD b int",
    "added twice": (
        "ALTER TABLE t ADD c int DEFAULT 1; INSERT INTO t VALUES (4, 4, 4); ALTER TABLE t DROP c;"
        "INSERT INTO t VALUES (5, 5); ALTER TABLE t ADD c int DEFAULT 9"
    ),
    "replaced online": (
        "UPDATE t SET id = id + 10; ALTER TABLE t RENAME b TO b2; ALTER TABLE t ADD b int;"
        "UPDATE t SET b = 5 WHERE id = 11; ALTER TABLE t DROP b2"
    ),
    "swapped names": (
        "ALTER TABLE t ADD c int DEFAULT 1; UPDATE t SET c = id; ALTER TABLE t RENAME b TO x;"
        "ALTER TABLE t RENAME c TO b; ALTER TABLE t RENAME x TO c; UPDATE t SET b = 99 WHERE id = 2"
    ),
    "a key that was gone for a while": (
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 77);"
        "DELETE FROM t WHERE b = 77; ALTER TABLE t ADD PRIMARY KEY (id); ALTER TABLE t REPLICA IDENTITY DEFAULT"
    ),
}


LONG = pytest.mark.long


@pytest.mark.parametrize("change", AMBIGUOUS)
@pytest.mark.parametrize(
    ("history", "when"),
    [
        ("only a snapshot", "stopped"),
        pytest.param("only a snapshot", "running", marks=LONG),
        pytest.param("with changes", "running", marks=LONG),
        pytest.param("with changes", "stopped", marks=LONG),
    ],
)
def test_columns_of_which_the_log_names_only_one(rig: Rig, change: str, history: str, when: str) -> None:
    """Rows that changed before the columns did, in one batch."""
    execute(rig.database, "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    if history == "with changes":
        rig.database.execute("UPDATE t SET b = b + 1")
        rig.run()
    if when == "stopped":
        rig.crash()
    execute(rig.database, AMBIGUOUS[change])
    follow(rig, "t")


@pytest.mark.parametrize("statement", ["", "UPDATE t SET v = 'c' WHERE id = 1"])
def test_a_column_that_is_no_longer_generated(rig: Rig, statement: str) -> None:
    columns = "id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED, v text"
    execute(rig.database, f"CREATE TABLE t ({columns}); INSERT INTO t VALUES (1), (2)")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    execute(rig.database, f"ALTER TABLE t ALTER g DROP EXPRESSION; {statement}")
    follow(rig, "t")
    assert [row["g"] for row in rig.target["public.t"].values()] == [2, 4]


NO_DOUBT = {
    "another column": "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t ADD c int DEFAULT 5; UPDATE t SET c = 6",
    "another name": "UPDATE t SET b = 11 WHERE id = 1; ALTER TABLE t RENAME b TO c; UPDATE t SET c = 6 WHERE id = 2",
    "constraints": "ALTER TABLE t ALTER b SET DEFAULT 7; ALTER TABLE t ALTER b SET NOT NULL; INSERT INTO t VALUES (4)",
    "an index": "CREATE INDEX ON t (b); REINDEX TABLE CONCURRENTLY t; UPDATE t SET b = 6 WHERE id = 2",
    "a new default": "ALTER TABLE t ADD c float8 DEFAULT random()",
    "a default, and another file": "ALTER TABLE t ALTER b SET DEFAULT 7; VACUUM FULL t",
    "privileges, statistics and another file": (
        "GRANT SELECT (b) ON t TO PUBLIC; ALTER TABLE t ALTER b SET STATISTICS 5; CLUSTER t USING t_pkey"
    ),
    "reloaded and constrained": "TRUNCATE t; INSERT INTO t VALUES (1, 5); ALTER TABLE t ALTER b SET NOT NULL",
    "another type of the key": "ALTER TABLE t ALTER id TYPE bigint",
    "a column for a moment": "ALTER TABLE t ADD c int; ALTER TABLE t ADD tmp int; ALTER TABLE t DROP tmp",
    "the primary key by its index": "ALTER TABLE t REPLICA IDENTITY USING INDEX t_pkey; UPDATE t SET b = 6",
}


def test_a_partitioned_table_that_gets_a_partition_and_a_default(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A new partition is a new file, and none of the rows that are there has moved."""
    execute(rig.database, ROOT)
    rig.source["table.include.list"] = "public.root"
    rig.run()
    rig.crash()
    before = len(rig.reads)
    execute(rig.database, "CREATE TABLE p4 PARTITION OF root FOR VALUES FROM (300) TO (400)")
    execute(rig.database, "ALTER TABLE root ALTER v SET DEFAULT 'x'; ALTER TABLE root ALTER v SET STATISTICS 5")
    rig.run()
    assert len(rig.reads) == before
    assert warnings(caplog) == []


@pytest.mark.parametrize("change", NO_DOUBT)
def test_columns_that_leave_no_doubt(rig: Rig, change: str, caplog: pytest.LogCaptureFixture) -> None:
    """The table is not read again."""
    execute(rig.database, "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    rig.crash()
    before = len(rig.reads)
    execute(rig.database, NO_DOUBT[change])
    rig.run()
    rig.crash()
    rig.run()
    assert len(rig.reads) == before
    assert warnings(caplog) == []


@pytest.mark.parametrize("index", ["w", "w, x", "x, id"])
def test_an_index_as_replica_identity_is_the_key(rig: Rig, index: str) -> None:
    """The log tells the index's columns of a deleted row, and no others. A primary key among them stays the key."""
    execute(rig.database, "CREATE TABLE t (id int PRIMARY KEY, w int NOT NULL UNIQUE, x int NOT NULL, v text)")
    execute(rig.database, f"CREATE UNIQUE INDEX u ON t ({index}); ALTER TABLE t REPLICA IDENTITY USING INDEX u")
    execute(rig.database, "INSERT INTO t SELECT i, i + 10, i + 100, 'a' FROM generate_series(1, 6) i")
    rig.source["table.include.list"] = "public.t"
    rig.run()
    execute(
        rig.database, "DELETE FROM t WHERE id = 2; UPDATE t SET id = 60 WHERE id = 1; UPDATE t SET w = 70 WHERE id = 3"
    )
    rig.run()
    assert rig.rows("t") == rig.database.execute("SELECT id, w, x, v FROM t ORDER BY id")
