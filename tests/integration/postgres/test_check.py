"""`check` against real servers: what it finds, what it says, and that its cures cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import DATABASES, Database, Postgres
from tidelog.connectors.postgres.check import findings
from tidelog.connectors.postgres.config import Config, read
from tidelog.connectors.postgres.connector import PostgresConnector
from tidelog.contracts import Finding
from tidelog.errors import ConfigError

ROLE = "limited"


def options(database: Database) -> dict[str, str]:
    return {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "slot.name": f"slot_{database.dbname}",
    }


def config(database: Database, **more: str) -> Config:
    return read({**options(database), **{name.replace("__", "."): text for name, text in more.items()}})


def as_limited(database: Database, **options: str) -> Config:
    return config(database, database__user=ROLE, database__password="limited", **options)


def about(found: list[Finding], subject: str) -> list[Finding]:
    return [f for f in found if f.subject == subject]


def one(found: list[Finding], subject: str) -> Finding:
    (finding,) = about(found, subject)
    return finding


def errors(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.level == "error"]


@pytest.fixture
def limited(database: Database) -> Iterator[str]:
    """A role with a password and nothing else."""
    database.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'limited'")
    yield ROLE
    database.execute(f"DROP OWNED BY {ROLE}")
    database.execute(f"DROP ROLE {ROLE}")


@pytest.mark.parametrize("fixture", DATABASES)
def test_a_ready_server_has_no_complaint(fixture: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(fixture)
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    found = findings(config(database))
    assert {f.level for f in found} == {"ok"}
    assert all(f.meaning and not f.cure for f in found)
    assert one(found, "version").meaning == f"PostgreSQL {database.server.version} is supported."
    assert "1 captured: public.orders" in one(found, "tables").meaning
    assert "creates it" in one(found, "publication tidelog").meaning


def test_after_the_first_start_all_is_well(database: Database) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE orders WITH (publish_via_partition_root = true)")
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [f"slot_{database.dbname}"])
    found = findings(config(database))
    assert {f.level for f in found} == {"ok"}
    assert "publishes the captured tables" in one(found, "publication tidelog").meaning
    assert "not in use and holds back" in one(found, f"slot slot_{database.dbname}").meaning


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"database__password": "wrong"}, "database.password"),
        ({"database__user": "nobody_here"}, "database.user"),
        ({"database__dbname": "nowhere"}, "database.dbname"),
        ({"database__port": "1"}, "database.port"),
    ],
)
def test_no_way_in(database: Database, options: dict[str, str], words: str) -> None:
    (finding,) = findings(config(database, **options))
    assert (finding.level, finding.subject) == ("error", "connection")
    assert words in finding.cure
    assert "wrong" not in finding.meaning


def test_a_table_without_key(database: Database) -> None:
    database.execute('CREATE TABLE "Odd name" (id int, note text)')
    found = one(findings(config(database)), "table public.Odd name")
    assert found.level == "error"
    assert "refuses every UPDATE and DELETE" in found.meaning
    database.execute(found.cure.split(" or: ")[1])  # REPLICA IDENTITY FULL
    found = one(findings(config(database)), "table public.Odd name")
    assert (found.level, "delta sink refuses it" in found.meaning) == ("warning", True)
    assert not about(findings(config(database, message__key__columns="public.Odd name:id")), "table public.Odd name")
    database.execute(found.cure.split(" or: ")[0].replace("…", "id"))
    assert not about(findings(config(database)), "table public.Odd name")


def test_named_keys_must_exist_and_be_told(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, code text)")
    found = one(findings(config(database, message__key__columns="public.t:cod")), "table public.t")
    assert "names cod" in found.meaning
    assert "did you mean code?" in found.cure
    found = one(findings(config(database, message__key__columns="public.t:code")), "table public.t")
    assert (found.level, "does not tell code" in found.meaning) == ("error", True)
    database.execute(found.cure)
    assert not about(findings(config(database, message__key__columns="public.t:code")), "table public.t")


def test_a_deferrable_key_is_no_identity(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)")
    found = one(findings(config(database)), "table public.t")
    assert found.level == "error"
    database.execute(found.cure)
    assert not about(findings(config(database)), "table public.t")


def test_an_index_as_identity(database: Database) -> None:
    database.execute("CREATE TABLE t (a int NOT NULL, b int)")
    database.execute("CREATE UNIQUE INDEX u ON t (a) INCLUDE (b)")
    database.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX u")
    assert not errors(findings(config(database)))
    database.execute("DROP INDEX u")
    assert "no key that the log can use" in one(findings(config(database)), "table public.t").meaning


def test_a_misspelt_table_names_the_nearest(database: Database) -> None:
    database.execute("CREATE TABLE customers (id int PRIMARY KEY)")
    found = one(findings(config(database, table__include__list=r"public\.custmers")), "table.include.list")
    assert (found.level, found.meaning) == ("error", r"No table matches public\.custmers.")
    assert "did you mean public.customers?" in found.cure
    found = one(findings(config(database, table__include__list=r"public\.customers,public\.xyz")), "table.include.list")
    assert (found.level, found.cure) == ("warning", "Tables are: public.customers.")


def test_no_table_at_all(database: Database) -> None:
    found = one(findings(config(database)), "tables")
    assert (found.level, found.meaning) == ("error", "No table is captured.")


def test_tables_that_cannot_be_captured(database: Database) -> None:
    database.execute("CREATE TABLE ok (id int PRIMARY KEY)")
    database.execute("CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)")
    found = one(findings(config(database)), "table public.quick")
    assert (found.level, "unlogged" in found.meaning) == ("warning", True)
    database.execute(found.cure)
    assert not about(findings(config(database)), "table public.quick")


def test_a_foreign_table(database: Database) -> None:
    database.execute("CREATE FOREIGN DATA WRAPPER nothing")
    database.execute("CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing")
    database.execute("CREATE FOREIGN TABLE far (id int) SERVER elsewhere")
    database.execute("CREATE TABLE near (id int PRIMARY KEY)")
    assert "foreign table" in one(findings(config(database)), "table public.far").meaning


def test_an_unlogged_partition(database: Database) -> None:
    database.execute("CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute('CREATE UNLOGGED TABLE "m 1" PARTITION OF m FOR VALUES FROM (0) TO (100)')
    found = one(findings(config(database, table__include__list=r"public\.m")), "table public.m")
    assert found.level == "warning"
    assert found.meaning == 'Changes in 1 of its partitions are in no log: public."m 1" (unlogged).'
    database.execute(found.cure)
    assert not about(findings(config(database)), "table public.m")


def test_partitions_are_captured_as_their_root(database: Database) -> None:
    database.execute("CREATE TABLE m (id int, day date) PARTITION BY RANGE (day)")
    database.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')")
    database.execute("ALTER TABLE m REPLICA IDENTITY FULL")
    found = findings(config(database, message__key__columns="public.m:id"))
    assert "1 captured: public.m." in one(found, "tables").meaning
    unlike = one(found, "table public.m")
    assert (unlike.level, "public.m1" in unlike.meaning) == ("warning", True)
    database.execute(unlike.cure)
    assert not about(findings(config(database, message__key__columns="public.m:id")), "table public.m")
    found = findings(config(database, table__include__list=r"public\.m1"))
    assert "arrive under the partitioned table's name" in one(found, "table public.m1").meaning


def test_a_publication_that_splits_partitions(database: Database) -> None:
    database.execute("CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (9)")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE m")
    found = [f for f in about(findings(config(database)), "publication tidelog") if f.level == "error"]
    database.execute(found[0].cure)
    assert one(findings(config(database)), "publication tidelog").level == "ok"


def test_publication_contents(database: Database) -> None:
    for name in ("a", "b", "c"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE a, c WITH (publish_via_partition_root, publish = 'insert')")
    lists = {"table__include__list": r"public\.[ab]", "publication__autocreate__mode": "disabled"}
    levels = [f.level for f in about(findings(config(database, **lists)), "publication tidelog")]
    assert levels == ["error", "warning", "warning"]  # operations, b is missing, c is too many
    for _ in range(3):
        problems = [f for f in about(findings(config(database, **lists)), "publication tidelog") if f.cure]
        if problems:
            database.execute(problems[0].cure)
    assert one(findings(config(database, **lists)), "publication tidelog").level == "ok"


@pytest.fixture
def served(database: Database) -> Database:
    """A database with two tables, for which a pipeline has started."""
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, w text)")
    PostgresConnector(config(database)).prepare()
    return database


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("ALTER PUBLICATION tidelog SET (publish = 'insert')", "leaves out every update and delete and truncate"),
        ("ALTER PUBLICATION tidelog SET TABLE a WHERE (id > 5), b", "publishes only some rows of public.a"),
        ("ALTER PUBLICATION tidelog SET TABLE a (id, v), b", "publishes only some columns of public.a"),
    ],
)
@pytest.mark.parametrize("resuming", [False, True])
def test_a_start_refuses_what_check_calls_an_error(served: Database, step: str, words: str, resuming: bool) -> None:
    """And both print the same cure, which helps."""
    wanted = config(served)
    served.execute(step)
    found = one(findings(wanted), "publication tidelog")
    assert (found.level, words in found.meaning) == ("error", True)
    with pytest.raises(ConfigError, match=words) as refused:
        PostgresConnector(wanted).prepare(resuming=resuming)
    assert refused.value.hint == found.cure
    served.execute(found.cure)
    assert not errors(findings(wanted))
    PostgresConnector(wanted).prepare(resuming=resuming)


@pytest.mark.parametrize("resuming", [False, True])
def test_partitions_under_their_own_names_are_refused(database: Database, resuming: bool) -> None:
    database.execute("CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    PostgresConnector(config(database)).prepare()
    database.execute("ALTER PUBLICATION tidelog SET (publish_via_partition_root = false)")
    with pytest.raises(ConfigError, match="under their own names") as refused:
        PostgresConnector(config(database)).prepare(resuming=resuming)
    database.execute(refused.value.hint)
    PostgresConnector(config(database)).prepare(resuming=resuming)


def test_a_publication_that_was_dropped_under_its_slot(served: Database) -> None:
    served.execute("DROP PUBLICATION tidelog")
    found = one(findings(config(served)), "publication tidelog")
    assert found.level == "error"
    with pytest.raises(ConfigError, match="since the publication was dropped are lost") as refused:
        PostgresConnector(config(served)).prepare(resuming=True)
    assert refused.value.hint == found.cure
    assert "does not bring the changes back" in found.cure
    assert f"SELECT pg_drop_replication_slot('slot_{served.dbname}')" in found.cure


@pytest.mark.parametrize("autocreate", ["filtered", "disabled"])
def test_a_table_without_identity_stops_no_other(database: Database, autocreate: str) -> None:
    database.execute("CREATE TABLE bad (id int)")
    database.execute("CREATE TABLE good (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE good WITH (publish_via_partition_root)")
    wanted = config(database, publication__autocreate__mode=autocreate)
    assert one(findings(wanted), "table public.bad").level == "warning"
    assert not errors(findings(wanted))
    PostgresConnector(wanted).prepare()
    assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("good",)]


def test_a_key_that_is_to_be_left_out_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE people (ssn text PRIMARY KEY, number int NOT NULL UNIQUE, name text)")
    database.execute("ALTER TABLE people REPLICA IDENTITY FULL")
    hidden = {"column__exclude__list": r"public\.people\.ssn"}
    found = one(findings(config(database, **hidden)), "table public.people")
    assert (found.level, "column.exclude.list names ssn" in found.meaning) == ("error", True)
    with pytest.raises(ConfigError, match="names ssn, which belongs to the key") as refused:
        PostgresConnector(config(database, **hidden)).prepare()
    assert refused.value.hint == found.cure
    cured = config(database, **hidden, message__key__columns="public.people:number")
    assert not errors(findings(cured))
    connector = PostgresConnector(cured)
    connector.prepare()
    (table,) = connector.tables()
    assert [column.name for column in connector.selection().columns_of(table)] == ["number", "name"]
    connector.close()


def test_entries_that_match_nothing(served: Database, caplog: pytest.LogCaptureFixture) -> None:
    lists = {
        "schema__exclude__list": "publik",
        "table__exclude__list": r"public\.aa,public\.b",
        "column__exclude__list": r"public\.a\.vv",
        "message__key__columns": "public.aaa:id",
        "column__mask__with__4__chars": r"public\.a\.ww",
    }
    wanted = config(served, **lists)
    found = [(f.subject, f.meaning, f.cure) for f in findings(wanted) if "matches" in f.meaning]
    assert found == [
        ("schema.exclude.list", "No schema matches publik.", "schema.exclude.list: did you mean public?"),
        ("table.exclude.list", r"No table matches public\.aa.", "table.exclude.list: did you mean public.a?"),
        ("column.exclude.list", r"No column matches public\.a\.vv.", "column.exclude.list: did you mean public.a.v?"),
        ("message.key.columns", "No table matches public.aaa.", "message.key.columns: did you mean public.a?"),
        (
            "column.mask.with.4.chars",
            r"No column matches public\.a\.ww.",
            "column.mask.with.4.chars: did you mean public.a.w?",
        ),
    ]
    PostgresConnector(wanted).prepare()
    assert all(meaning in caplog.text for _, meaning, _ in found)


def test_a_missing_publication_and_who_may_create_it(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    off = one(findings(config(database, publication__autocreate__mode="disabled")), "publication tidelog")
    assert off.level == "error"
    assert off.cure == 'CREATE PUBLICATION "tidelog" FOR TABLE "public"."t" WITH (publish_via_partition_root = true);'
    everything = one(findings(as_limited(database, publication__autocreate__mode="all_tables")), "publication tidelog")
    assert "only a superuser" in everything.meaning
    assert "may not create publications" in one(findings(as_limited(database)), "publication tidelog").meaning
    database.execute(f"GRANT CREATE ON DATABASE {database.dbname} TO {limited}")
    assert "does not own public.t" in one(findings(as_limited(database)), "publication tidelog").meaning
    database.execute(f"ALTER TABLE t OWNER TO {limited}")
    assert one(findings(as_limited(database)), "publication tidelog").level == "ok"


def test_a_publication_of_someone_else(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY)")
    database.execute("CREATE TABLE b (id int PRIMARY KEY)")
    database.execute(f"GRANT SELECT ON a, b TO {limited}")
    database.execute(f"ALTER ROLE {limited} REPLICATION")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE a, b WITH (publish_via_partition_root)")
    only_a = {"table__include__list": r"public\.a"}
    assert one(findings(as_limited(database, **only_a)), "publication tidelog").level == "error"
    shared = {**only_a, "publication__autocreate__mode": "disabled"}
    assert one(findings(as_limited(database, **shared)), "publication tidelog").level == "warning"


def test_the_cures_for_a_role_suffice(database: Database, limited: str) -> None:
    database.execute("CREATE SCHEMA closed")
    database.execute("CREATE TABLE closed.t (id int PRIMARY KEY, secret text)")
    database.execute("CREATE TABLE closed.u (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE closed.t, closed.u WITH (publish_via_partition_root)")
    settings = {"publication__autocreate__mode": "disabled"}
    found = errors(findings(as_limited(database, **settings)))
    assert [f.subject for f in found] == [f"role {limited}", "schema closed", "tables of closed"]
    for finding in found:
        database.execute(finding.cure)
    assert not errors(findings(as_limited(database, **settings)))
    assert not errors(findings(config(database, **settings)))


def test_a_column_grant_suffices_for_the_captured_columns(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, secret text)")
    database.execute(f"GRANT SELECT (id) ON t TO {limited}")
    assert about(findings(as_limited(database)), "table public.t")
    assert not about(findings(as_limited(database, column__exclude__list=r"public\.t\.secret")), "table public.t")


def test_a_slot_of_something_else(database: Database) -> None:
    slot = f"slot_{database.dbname}"
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("SELECT pg_create_physical_replication_slot(%s)", [slot])
    found = one(findings(config(database)), f"slot {slot}")
    assert (found.level, "physical" in found.meaning) == ("error", True)
    database.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    other = database.server.create_database("other_home")
    other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    assert "belongs to the database other_home" in one(findings(config(database)), f"slot {slot}").meaning
    other.drop()


@pytest.fixture
def poor() -> Iterator[Database]:
    """A server with everything set wrong."""
    settings = {
        "wal_level": "replica",
        "max_replication_slots": 1,
        "max_wal_senders": 0,
        "wal_sender_timeout": "2s",
        "idle_replication_slot_timeout": "10min",
    }
    with Postgres.start(18, settings=settings) as server:
        yield server.create_database("poor")


def test_a_badly_configured_server(poor: Database) -> None:
    poor.execute("CREATE TABLE t (id int PRIMARY KEY)")
    poor.execute("SELECT pg_create_physical_replication_slot('taken')")
    found = findings(config(poor))
    assert {f.subject for f in errors(found)} == {"wal_level", "max_replication_slots", "max_wal_senders"}
    assert one(found, "wal_level").cure.startswith("ALTER SYSTEM SET wal_level = 'logical'")
    assert "10 min" in one(found, "idle_replication_slot_timeout").meaning
    assert one(found, "wal_sender_timeout").cure == "status.update.interval.ms: 666"


def fill(database: Database, level: str) -> Finding:
    """Write log until the slot's finding has this level."""
    for _ in range(12):
        finding = one(findings(config(database)), "slot slot_busy")
        if finding.level == level:
            return finding
        database.execute("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 1")
        database.execute("SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
    return finding


def test_a_slot_the_server_gives_up_on() -> None:
    settings = {"max_slot_wal_keep_size": "80MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}
    with Postgres.start(18, settings=settings) as server:
        database = server.create_database("busy")
        database.execute("CREATE TABLE t (id int PRIMARY KEY)")
        database.execute("SELECT pg_create_logical_replication_slot('slot_busy', 'pgoutput')")
        risky = fill(database, "warning")
        assert "the server" in risky.meaning
        assert "max_slot_wal_keep_size" in risky.cure
        lost = fill(database, "error")
        assert "wal_removed" in lost.meaning
        database.execute(lost.cure.split(";")[0])
        assert one(findings(config(database)), "slot slot_busy").level == "ok"


# -- what snapshots need ---------------------------------------------------------------------------------------------

SIGNALS = "CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"


def test_the_table_of_signals_is_made_by_its_cure(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    wanted = config(database, signal__data__collection="public.Signals to us")
    found = one(findings(wanted), "table public.Signals to us")
    assert (found.level, "does not exist" in found.meaning) == ("error", True)
    database.execute(found.cure)
    assert {f.level for f in findings(wanted)} == {"ok"}
    assert "1 captured: public.t" in one(findings(wanted), "tables").meaning  # it is not delivered


def test_a_table_of_signals_in_another_shape(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE UNLOGGED TABLE signals (id int, type text)")
    wanted = config(database, signal__data__collection="public.signals")
    shape, logged, deletable = about(findings(wanted), "table public.signals")
    assert "an id, a type and data" in shape.meaning
    database.execute(logged.cure)
    assert len(about(findings(wanted), "table public.signals")) == 2
    assert (deletable.level, "also yours" in deletable.meaning) == ("warning", True)
    for statement in shape.cure.split("; "):
        database.execute(statement)
    assert {f.level for f in findings(wanted)} == {"ok"}
    database.execute("ALTER TABLE signals ADD created timestamptz DEFAULT now()")
    assert "nothing else" in one(findings(wanted), "table public.signals").meaning
    with pytest.raises(ConfigError, match="has 4 columns"):
        PostgresConnector(wanted).prepare()


def test_only_an_ordinary_table_holds_signals(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute(f"{SIGNALS} PARTITION BY HASH (id)")
    (found,) = about(findings(config(database, signal__data__collection="public.signals")), "table public.signals")
    assert (found.level, "no ordinary table" in found.meaning) == ("error", True)


def test_the_table_of_signals_is_published(database: Database) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY); {SIGNALS}")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE t WITH (publish_via_partition_root = true)")
    wanted = config(database, signal__data__collection="public.signals", publication__autocreate__mode="disabled")
    found = one(findings(wanted), "publication tidelog")
    assert (found.level, "It lacks public.signals" in found.meaning) == ("error", True)
    database.execute(found.cure)
    assert {f.level for f in findings(wanted)} == {"ok"}


@pytest.mark.parametrize(("strategy", "lacks"), [("insert_insert", "INSERT"), ("insert_delete", "SELECT and DELETE")])
def test_windows_need_rights(database: Database, limited: str, strategy: str, lacks: str) -> None:
    database.execute(
        f"CREATE SCHEMA own; CREATE TABLE t (id int PRIMARY KEY); {SIGNALS.replace('signals', 'own.signals')}"
    )
    database.execute(f"GRANT SELECT ON t TO {limited}")
    wanted = config(
        database,
        signal__data__collection="own.signals",
        read__only="false",
        incremental__snapshot__watermarking__strategy=strategy,
        snapshot__database__user=limited,
        snapshot__database__password="limited",
    )
    for _ in range(2):
        wrong = [f for f in about(findings(wanted), "table own.signals") if f.level == "error"]
        for finding in wrong:
            assert limited in finding.meaning
            database.execute(finding.cure.split(" or: ")[0])
    assert any(lacks in finding.meaning for finding in wrong) or not wrong
    assert {f.level for f in findings(wanted)} == {"ok"}


def test_the_role_that_reads(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE SCHEMA s; CREATE TABLE s.b (id int PRIMARY KEY)")
    options = {"snapshot__database__user": limited, "snapshot__database__password": "wrong word"}
    found = one(findings(config(database, **options)), f"role {limited}")
    assert (found.level, "can't log in" in found.meaning) == ("error", True)
    assert "wrong word" not in repr(found)
    wanted = config(database, **options | {"snapshot__database__password": "limited"})
    wrong = errors(findings(wanted))
    assert [f.subject for f in wrong] == ["schema s", "table public.a", "table s.b"]
    for finding in wrong:
        database.execute(finding.cure)
    found = findings(wanted)
    assert {f.level for f in found} == {"ok"}
    assert one(found, f"role {limited}").meaning == "It may read the captured tables."


def test_only_the_role_that_reads_needs_to_read(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute(f"ALTER ROLE {limited} REPLICATION")
    database.execute("CREATE PUBLICATION tidelog FOR TABLE t WITH (publish_via_partition_root = true)")
    assert [f.subject for f in errors(findings(as_limited(database)))] == ["table public.t"]
    reader = {"snapshot__database__user": database.user, "snapshot__database__password": database.password}
    assert errors(findings(as_limited(database, **reader))) == []


def test_a_policy_that_hides_rows(database: Database, limited: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    database.execute(f"GRANT SELECT ON t TO {limited}")
    wanted = config(database, snapshot__database__user=limited, snapshot__database__password="limited")
    (found,) = errors(findings(wanted))
    assert "refuses to read only some" in found.meaning
    database.execute(found.cure)
    assert errors(findings(wanted)) == []


def test_two_tables_of_one_name(database: Database) -> None:
    database.execute('CREATE SCHEMA "a.b"; CREATE SCHEMA a')
    database.execute('CREATE TABLE "a.b".c (id int PRIMARY KEY); CREATE TABLE a."b.c" (id int PRIMARY KEY)')
    found = one(findings(config(database)), "table a.b.c")
    assert (found.level, found.meaning.split(",")[0]) == ("error", "2 tables are called a.b.c")
    with pytest.raises(ConfigError, match=r"2 tables are called a\.b\.c"):
        PostgresConnector(config(database)).prepare()
    one_of_them = config(database, schema__include__list=r"a\.b")
    assert PostgresConnector(one_of_them).prepare() > 0


# -- keys that rules blur --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["column__mask__with__4__chars", "column__truncate__to__3__chars"])
def test_a_masked_key_is_refused(database: Database, rule: str) -> None:
    database.execute("CREATE TABLE t (id text PRIMARY KEY, note text)")
    wanted = config(database, **{rule: r"public\.t\.id"})
    found = one(findings(wanted), "table public.t")
    assert (found.level, "different rows would get the same key" in found.meaning) == ("error", True)
    assert "column.mask.hash" in found.cure
    with pytest.raises(ConfigError, match=r"public.t: Its key column id is masked") as refused:
        PostgresConnector(wanted).prepare()
    assert "column.mask.hash" in refused.value.hint
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]  # nothing was begun


def test_a_hashed_key_and_a_masked_note_are_welcome(database: Database) -> None:
    database.execute("CREATE TABLE t (id text PRIMARY KEY, note text)")
    rules = {"column__mask__hash__SHA-256__with__salt__s": r".*\.id", "column__mask__with__4__chars": r".*\.note"}
    assert not errors(findings(config(database, **rules)))
