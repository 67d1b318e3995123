"""The least that roles need: one reads the log, another one the rows, and neither may write anything."""

from __future__ import annotations

from pathlib import Path

from tests.integration.postgres.snapshot_writers import items
from tests.servers import Postgres

_NEXT = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


def test_nothing_is_written(private_postgres: Postgres, tmp_path: Path) -> None:
    database = private_postgres.create_database("shop")
    roles = {
        "database.user": "streams",
        "database.password": "s3cret",
        "snapshot.database.user": "reads",
        "snapshot.database.password": "s3cret too",
        "publication.autocreate.mode": "disabled",
        "publication.name": "shop",
    }
    with items(database, tmp_path, size=20, **roles) as rig:
        database.execute("ALTER SYSTEM SET autovacuum = off")
        database.execute("SELECT pg_reload_conf()")
        database.execute("CREATE PUBLICATION shop FOR TABLE items")
        database.execute("CREATE ROLE streams LOGIN REPLICATION PASSWORD 's3cret'")
        database.execute("CREATE ROLE reads LOGIN PASSWORD 's3cret too'")
        database.execute("GRANT SELECT ON items TO reads")
        for role in ("streams", "reads"):
            database.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        rig.source["table.include.list"] = "public.items"
        before = database.execute(_NEXT)
        rig.run()
        assert database.execute(_NEXT) == before  # no transaction id was taken: nobody wrote
        rig.check("items")
