"""`make demo`: a shop in an embedded PostgreSQL, a busy writer, and tidelog streaming it into Delta tables.

The shop has rows before tidelog comes: it reads them in chunks while it follows the writer, who changes the same rows.
Ends with `tidelog verify`, which compares every row of source and target.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path

from demo.embedded import Postgres, start_postgres
from demo.shop import Writer, create_schema, furnish
from tidelog.cli.display import Board, Line
from tidelog.cli.verify import lines, target_of
from tidelog.engine.definition import Definition, connector_of, load
from tidelog.engine.verify import verify
from tidelog.spark.pipeline import Pipeline, Run

FOLDER = Path(".tidelog") / "demo"
SECONDS = 15.0

DEFINITION = """\
name: shop
source:
  connector: postgres
  database.hostname: {host}
  database.port: {port}
  database.user: {user}
  database.password: ${{PGPASSWORD}}
  database.dbname: {dbname}
  table.include.list: "public\\\\..*"
  incremental.snapshot.chunk.size: 500      # small, so that there is something to watch
sink:
  type: delta
  path: {lake}
"""


def main() -> int:
    arguments = _arguments()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["TIDELOG_HOME"] = str((FOLDER / "state").absolute())
    print("starting PostgreSQL 18 …", flush=True)
    with start_postgres(FOLDER / "postgres") as server:
        definition = _define(server)
        changes = _stream(server, definition, arguments.seconds)
        code = _verify(definition, changes)
        if arguments.keep:
            _keep(server, definition)
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave it running, and tell how to look into the tables")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the writer works")
    return parser.parse_args()


def _define(server: Postgres) -> Definition:
    os.environ["PGPASSWORD"] = server.password
    file = FOLDER / "shop.yaml"
    lake = (FOLDER / "lake").absolute()
    file.write_text(
        DEFINITION.format(host=server.host, port=server.port, user=server.user, dbname=server.dbname, lake=lake)
    )
    print(f"pipeline: {file}", flush=True)
    return load(file)


def _stream(server: Postgres, definition: Definition, seconds: float) -> int:
    """Write and stream at the same time, then deliver the rest; the number of committed row changes."""
    with closing(server.connect()) as connection:
        create_schema(connection)
        print(f"the shop has {furnish(connection):,} rows already", flush=True)
    print("starting Spark …", flush=True)
    with Pipeline.of(definition).start() as run:
        writer = Writer(server.dsn, seconds)
        print(f"a writer changes the shop for {seconds:.0f} s; tidelog reads what is there, and follows:", flush=True)
        _follow(run, writer)
    Pipeline.of(definition).run(once=True)
    return writer.changes


def _follow(run: Run, writer: Writer) -> None:
    line = Line("shop")
    board = Board(line)
    thread = writer.start()
    while run.query.isActive:
        progress = run.progress()
        board.show(progress)
        if not thread.is_alive() and not progress.snapshots.tables and progress.ended and progress.lag_ms == 0:
            break
        time.sleep(0.2)
    if writer.failure is not None:
        raise writer.failure
    run.raise_failure()
    board.show(run.progress(), urgent=True)
    line.end()
    print(
        f"the writer committed {writer.changes:,} row changes in {writer.transactions:,} transactions "
        f"({writer.rollbacks} rolled back), one of {writer.bulk_changes:,} rows, and altered a table",
        flush=True,
    )


def _verify(definition: Definition, changes: int) -> int:
    print("tidelog verify: comparing every row …", flush=True)
    connector = connector_of(definition)
    with closing(connector):
        report = verify(connector, connector.tables(), target_of(definition), watch=_print_table)
    state = "in sync" if report.in_sync else "NOT in sync"
    print(
        f"{state}: {len(report.tables)} tables, {report.rows} rows, {changes} changes, {report.differences} differences"
    )
    return 0 if report.in_sync else 1


def _print_table(report: object) -> None:
    for text in lines(report, values=True):  # type: ignore[arg-type]
        print(f"  {text}", flush=True)


def _keep(server: Postgres, definition: Definition) -> None:
    """Go on streaming, and tell how to look into it."""
    lake = FOLDER / "lake" / "public"
    print(f"""
It is still running. In another terminal:

  {sys.executable} -c "import deltalake; print(deltalake.DeltaTable('{lake}/orders').to_pandas())"
  duckdb -c "SELECT status, count(*) FROM delta_scan('{lake}/orders') GROUP BY 1"
  spark.read.format("delta").load("{lake}/orders")      (PySpark with Delta's jars)
  psql "{server.dsn_of(server.dbname)}"

Change something with psql and look again; tidelog goes on streaming. Ctrl-C ends it.
""")
    line = Line("shop")
    try:
        Pipeline.of(definition).run(watch=Board(line).show)
    finally:
        line.end()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(0) from None
