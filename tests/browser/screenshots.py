"""The pictures of the page in `docs/images`: `python -m tests.browser.screenshots` makes them anew.

They show a shop at work: a real PostgreSQL whose orders grow, a snapshot that is under way, a connector that has failed
because its database is not there, and one whose offsets are only kept.
"""

from __future__ import annotations

import math
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.embedded import Database, start_postgres
from playwright.sync_api import Browser, expect

from tests.browser.chromium import ROOT, launched
from tests.browser.person import Person
from tests.integration.server.process import ServerProcess

IMAGES = ROOT / "docs" / "images"
SIZE_MAX = 300_000
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}
WITHOUT_FOLDER = "line => line.lastChild.data = line.lastChild.data.replace(/\\S*(?=\\.tidelog)/, '')"
"""The folder lasts as long as this program does, and means nothing to a reader."""
ROWS = 600_000
CHUNK = 4_000
TABLES = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(12, 2), note text)",
    "CREATE TABLE visits (at timestamptz, page text)",
    "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 20000) i",
    f"INSERT INTO orders SELECT i, i % 20000, i * 0.1, 'n' FROM generate_series(1, {ROWS}) i",
    "ANALYZE",
)
ERP = {"connector.class": "mysql", "database.hostname": "erp.internal", "topic.prefix": "erp"}
ERP_OFFSETS = {"offsets": [{"partition": {"server": "erp"}, "offset": {"file": "mysql-bin.000042", "pos": 18231}}]}


def settings(database: Database) -> dict[str, str]:
    return {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "incremental.snapshot.chunk.size": str(CHUNK),
        "incremental.snapshot.chunk.target.ms": "0",
        "journal.retention.bytes": "500000000",
        "sink.type": "delta",
        "sink.path": "lake",
    }


@contextmanager
def busy(database: Database) -> Iterator[None]:
    """Orders come in waves."""
    done = threading.Event()

    def sell() -> None:
        with database.connect() as connection:
            number = 10 * ROWS
            while not done.wait(0.1):
                many = int(30 + 25 * math.sin(time.monotonic() / 3))
                connection.execute(
                    "INSERT INTO orders SELECT i, 1, 1, 'n' FROM generate_series(%s::bigint, %s::bigint) i",
                    [number, number + many],
                )
                number += many + 1

    thread = threading.Thread(target=sell)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Studio:
    def __init__(self, browser: Browser, server: ServerProcess) -> None:
        self._browser = browser
        self._address = str(server.client.base_url).rstrip("/")

    def person(self, path: str, **looks: Any) -> Person:
        context = self._browser.new_context(**(WIDE | looks))
        person = Person(context.new_page(), self._address)
        person.open(path)
        return person

    def take(self, person: Person, name: str, *, around: str = "") -> None:
        file = IMAGES / f"page-{name}.png"
        while (toasts := person.find(".toast-close")).count():
            toasts.first.click()
        person.picture(file, around=around)
        size = file.stat().st_size
        print(f"{file.name}: {size // 1000} kB", flush=True)
        assert size < SIZE_MAX, f"{file.name} is too large"
        assert person.complaints == []


def neighbours(server: ServerProcess, database: Database) -> None:
    """One that has failed, and one whose offsets are only kept."""
    broken = {"connector.class": "postgres", **settings(database), "database.dbname": "billing"}
    for name, config, state in (("erp", ERP, "STOPPED"), ("billing", broken, "RUNNING")):
        body = {"name": name, "config": config, "initial_state": state}
        assert server.ask("POST", "/connectors", body).status_code == 201
    assert server.ask("PATCH", "/connectors/erp/offsets", ERP_OFFSETS).status_code == 200
    server.until(lambda: server.state("billing") == "FAILED")


def create(studio: Studio, database: Database) -> Person:
    person = studio.person("/new")
    person.fill({"name": "shop", **settings(database)})
    while (folds := person.find("details.more[open] > summary")).count():
        folds.first.click()
    person.press("check")
    state = person.find(".finding").filter(has_text="state folder").locator("p")
    state.evaluate(WITHOUT_FOLDER)
    studio.take(person, "new")
    database.execute("ALTER TABLE visits ADD PRIMARY KEY (at)")  # as the finding says
    person.press("create")
    person.sees_state("RUNNING")
    return person


def watch(studio: Studio, server: ServerProcess, person: Person) -> None:
    def under_way() -> bool:
        walks = server.ask("GET", "/connectors/shop/snapshots").json()["tables"]
        return any(walk["rows"] > 0.4 * ROWS for walk in walks)

    server.until(under_way)
    studio.take(person, "connector")
    studio.take(opened(studio, "/connectors/shop", color_scheme="dark"), "connector-dark")
    everyone = opened(studio, "/", viewport={"width": 1280, "height": 460})
    expect(everyone.find("[data-connector=shop] .spark-line")).to_have_attribute("d", re.compile("L"))
    studio.take(everyone, "connectors")
    studio.take(opened(studio, "/connectors/shop", **PHONE), "phone", around=".facts")


def opened(studio: Studio, path: str, **looks: Any) -> Person:
    person = studio.person(path, **looks)
    expect(person.find("[data-link]")).to_have_attribute("data-link", "live")
    expect(person.find(".skeleton")).to_have_count(0)
    expect(person.find("[data-connector=shop] progress, .walk").first).to_be_visible()
    return person


def edit(studio: Studio, server: ServerProcess, person: Person) -> None:
    """A rewind, with an earlier edit in the history."""
    (part,) = server.ask("GET", "/connectors/shop/offsets").json()["offsets"]
    early = part["offset"]["lsn_commit"]
    server.until(lambda: not server.ask("GET", "/connectors/shop/snapshots").json()["tables"])
    person.press("stop")
    person.sees_state("STOPPED")
    person.tab("offsets")
    fill(server, person, early)
    person.find("main [data-field=why]").fill("the orders of this morning once more")
    person.press("apply")
    expect(person.find("[data-change]")).to_have_count(1)
    person.press("start")
    expect(person.find("[data-change]")).to_contain_text("in effect since")
    person.press("stop")
    person.sees_state("STOPPED")
    fill(server, person, early)
    person.find("main [data-field=why]").fill("and again, the rate was wrong")
    studio.take(person, "offsets")


def fill(server: ServerProcess, person: Person, place: int) -> None:
    (part,) = server.ask("GET", "/connectors/shop/offsets").json()["offsets"]
    expect(person.field("lsn_commit")).to_have_value(str(part["offset"]["lsn_commit"]))
    for key in ("lsn", "lsn_proc", "lsn_commit"):
        person.field(key).fill(str(place))
    expect(person.find("[data-direction=rewind] [data-consequence]")).to_be_visible()
    expect(person.find("[data-reason]")).to_be_empty()


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-page-") as folder,
        start_postgres() as postgres,
        launched() as browser,
    ):
        database = postgres.create_database("shop")
        for statement in TABLES:
            database.execute(statement)
        server = ServerProcess(Path(folder), environment={"TIDELOG_HOME": ".tidelog"})
        try:
            neighbours(server, database)
            studio = Studio(browser, server)
            with busy(database):
                person = create(studio, database)
                watch(studio, server, person)
                edit(studio, server, person)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
