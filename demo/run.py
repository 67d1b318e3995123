"""`make demo`: a shop in an embedded PostgreSQL, a busy writer, and tidelog streaming it into Delta tables.

The shop has rows before tidelog comes: it reads them in chunks while it follows the writer, who changes the same rows.
The pipeline is a connector of the service, whose page shows it live. Ends with `tidelog verify`, which compares every
row of source and target.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from demo.embedded import Postgres, start_postgres
from demo.shop import Writer, create_schema, furnish
from tidelog.cli.display import Board, Line
from tidelog.cli.server import PORT
from tidelog.cli.verify import lines, target_of
from tidelog.engine import flat
from tidelog.engine.definition import Definition, connector_of, load, written
from tidelog.engine.verify import verify
from tidelog.errors import ConfigError
from tidelog.model.control import RUNNING, STOPPED
from tidelog.server.service import FAILED, Service
from tidelog.server.serving import Served, address, listening
from tidelog.spark.pipeline import Pipeline
from tidelog.stores import open_store

FOLDER = Path(".tidelog") / "demo"
NAME = "shop"
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
  incremental.snapshot.chunk.target.ms: 0   # and one at a time
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
    with start_postgres(FOLDER / "postgres") as server, _served() as service:
        definition = _define(server)
        changes = _stream(server, service, definition, arguments.seconds)
        code = _verify(definition, changes)
        if arguments.keep:
            _keep(server, service)
    return code


@contextmanager
def _served() -> Iterator[Service]:
    """The service on its usual port, or on any that is free."""
    try:
        listener = listening("127.0.0.1", PORT)
    except ConfigError:
        listener = listening("127.0.0.1", 0)
    with listener:
        service = Service(open_store(None), worker=address(listener))
        served = Served(service, listener)
        try:
            yield service
        finally:
            served.end()


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


def _stream(server: Postgres, service: Service, definition: Definition, seconds: float) -> int:
    """Write and stream at the same time, then deliver the rest; the number of committed row changes."""
    with closing(server.connect()) as connection:
        create_schema(connection)
        print(f"the shop has {furnish(connection):,} rows already", flush=True)
    print("starting Spark …", flush=True)
    service.create(NAME, flat.written(written(FOLDER / "shop.yaml")))
    _await_start(service)
    writer = Writer(server.dsn, seconds)
    print(f"a writer changes the shop for {seconds:.0f} s; tidelog reads what is there, and follows.", flush=True)
    print(f"watch it in a browser: http://{service.worker}/", flush=True)
    _follow(service, writer)
    service.become(NAME, STOPPED)
    Pipeline.of(definition).run(service.session.get(), once=True)
    return writer.changes


def _await_start(service: Service) -> None:
    while (state := _state(service)) != RUNNING:
        if state == FAILED:
            raise RuntimeError(service.status(NAME)["connector"]["trace"])
        time.sleep(0.1)


def _state(service: Service) -> str:
    return str(service.status(NAME)["connector"]["state"])


def _follow(service: Service, writer: Writer) -> None:
    line = Line(NAME)
    board = Board(line)
    thread = writer.start()
    while _state(service) != FAILED:
        progress = service.progress(NAME)
        board.show(progress)
        if not thread.is_alive() and not progress.snapshots.tables and progress.ended and progress.lag_ms == 0:
            break
        time.sleep(0.2)
    if writer.failure is not None:
        raise writer.failure
    _await_start(service)  # or say why it failed
    board.show(service.progress(NAME), urgent=True)
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


def _keep(server: Postgres, service: Service) -> None:
    """Go on streaming, and tell how to look into it."""
    lake = FOLDER / "lake" / "public"
    service.become(NAME, RUNNING)
    print(f"""
It is still running, and shows itself at http://{service.worker}/. In another terminal:

  {sys.executable} -c "import deltalake; print(deltalake.DeltaTable('{lake}/orders').to_pandas())"
  duckdb -c "SELECT status, count(*) FROM delta_scan('{lake}/orders') GROUP BY 1"
  spark.read.format("delta").load("{lake}/orders")      (PySpark with Delta's jars)
  psql "{server.dsn_of(server.dbname)}"

Change something with psql and look again; tidelog goes on streaming. Ctrl-C ends it.
""")
    line = Line(NAME)
    board = Board(line)
    try:
        _await_start(service)
        while _state(service) != FAILED:
            board.show(service.progress(NAME))
            time.sleep(0.2)
        _await_start(service)
    finally:
        line.end()


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(0) from None
