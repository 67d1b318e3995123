"""What a person does with a connector, from an empty page to an undone edit. Chromium, PostgreSQL, Spark are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.browser.conftest import Meet, Serve
from tests.browser.person import Person
from tests.integration.server.process import ServerProcess
from tests.servers import Database

ROWS = 7_500
CHUNK = 250


def settings(database: Database, folder: Path) -> dict[str, str]:
    return {
        "database.hostname": database.host,
        "database.port": str(database.port),
        "database.user": database.user,
        "database.password": database.password,
        "database.dbname": database.dbname,
        "table.include.list": r"public\.orders",
        "slot.name": f"{database.dbname}_slot",
        "incremental.snapshot.chunk.size": str(CHUNK),
        "incremental.snapshot.chunk.target.ms": "0",
        "incremental.snapshot.parallelism": "1",
        "journal.retention.bytes": "100000000",
        "sink.type": "delta",
        "sink.path": str(folder / "lake"),
    }


def ids(folder: Path) -> list[int]:
    table = folder / "lake" / "public" / "orders"
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return sorted(DeltaTable(str(table)).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def place_of(server: ServerProcess) -> int:
    (part,) = server.ask("GET", "/connectors/shop/offsets").json()["offsets"]
    return int(part["offset"]["lsn_commit"])


@pytest.mark.timeout(1800)
def test_a_person_creates_watches_and_mends_a_connector(
    serve: Serve, meet: Meet, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    database.execute(f"INSERT INTO orders SELECT i, 'n' FROM generate_series(1, {ROWS}) i")
    database.execute("ANALYZE orders")
    server = serve()
    person = meet(server)

    creates(person, settings(database, tmp_path))
    watches(person, server, database, tmp_path)
    asks_for_another(person)
    kept = place_of(server)
    database.execute("INSERT INTO orders SELECT -i, 'late' FROM generate_series(1, 3) i")
    server.until(lambda: ids(tmp_path)[:3] == [-3, -2, -1])
    pauses(person)
    is_refused_while_it_runs(person, server, kept)
    mistypes(person, server)
    applies(person, server, kept)
    undoes(person, server)
    assert ids(tmp_path) == [-3, -2, -1, 0, *range(1, ROWS + 1)]
    reads_the_configuration(person, database.password)


def creates(person: Person, values: dict[str, str]) -> None:
    """Mistakes are told at their field, findings before anything is made."""
    person.open()
    person.press("new-first")
    person.fill({"name": "shop", **values, "database.port": "many", "database.password": "wrong"})
    mistaken = person.find('[data-setting="database.port"] .problem')
    expect(mistaken).to_contain_text("whole number")
    person.fill({"database.port": values["database.port"]})
    expect(mistaken).to_be_empty()

    person.press("check")
    broken = person.find("[data-findings] .finding[data-level=error]")
    expect(broken.first).to_contain_text("password authentication failed")
    person.fill({"database.password": values["database.password"]})
    person.press("check")
    expect(broken).to_have_count(0)
    expect(person.find("[data-findings] .finding[data-level=ok]").first).to_be_visible()

    person.press("create")
    expect(person.find("h1")).to_have_text("shop")
    person.sees_state("RUNNING")


def watches(person: Person, server: ServerProcess, database: Database, folder: Path) -> None:
    """The snapshot as it goes; while it is paused the stream goes on, and then it goes on itself."""
    walk = person.find(".walk[data-table='public.orders']")
    expect(walk.locator(".cell[data-kind=emitted]").first).to_be_visible()
    expect(walk.locator(".walk-figures")).to_contain_text(re.compile(r"rows · \d+ ?%"))
    expect(person.find("[data-snapshot=whole]")).to_contain_text(re.compile(r"rows \(\d+ ?%\)"))

    person.press("snapshot-pause")
    expect(person.find("[data-action=snapshot-resume]")).to_be_visible()
    expect(person.find("[data-snapshot=whole]")).to_contain_text("paused")
    database.execute("INSERT INTO orders VALUES (0, 'while it was paused')")
    server.until(lambda: 0 in ids(folder))
    assert len(ids(folder)) < ROWS
    expect(walk).to_be_visible()

    person.press("snapshot-resume")
    expect(person.find("[data-action=snapshot-pause]")).to_be_visible()
    expect(walk).to_be_hidden()
    expect(person.find(".ended summary")).to_have_text("Ended snapshots (1)")
    assert ids(folder) == [*range(ROWS + 1)]
    expect(person.panel("notifications").locator("[data-type=COMPLETED]")).to_have_count(1)
    expect(person.panel("tables").locator("tr[data-table='public.orders']")).to_be_visible()


def asks_for_another(person: Person) -> None:
    person.press("snapshot-start")
    asking = person.dialog("snapshot")
    expect(asking.locator("[data-action=confirm]")).to_be_disabled()
    asking.locator("[data-picker=tables]").get_by_label("public.orders").check()
    asking.locator("[data-field=where]").fill("id <= 10")
    asking.locator("[data-action=confirm]").click()
    person.is_told("A snapshot of 1 table was asked for.")
    expect(person.find(".ended summary")).to_have_text("Ended snapshots (2)")


def pauses(person: Person) -> None:
    person.press("pause")
    person.sees_state("PAUSED")
    person.press("resume")
    person.sees_state("RUNNING")


def is_refused_while_it_runs(person: Person, server: ServerProcess, place: int) -> None:
    """One may look and try out; applying says what has to be done first."""
    person.tab("offsets")
    expect(person.find("[data-refused]")).to_contain_text("only while the connector is stopped")
    person.field("lsn_commit").fill(str(place))
    apply = person.find("[data-action=apply]")
    expect(person.find("[data-reason]")).to_have_text("shop is running. Stop it to apply this.")
    expect(apply).to_have_attribute("aria-disabled", "true")
    apply.click(force=True)
    expect(person.panel("review").locator(".note[data-kind=warning]").last).to_contain_text("Stop it to apply this.")
    assert server.ask("GET", "/connectors/shop/offsets/history").json()["changes"] == []
    person.press("stop-for-offsets")
    person.sees_state("STOPPED")
    expect(person.find("[data-refused]")).to_have_count(0)


def mistypes(person: Person, server: ServerProcess) -> None:
    field = person.find("[data-part=offset] [data-key=lsn_commit]")
    field.locator("input").fill("24x")
    expect(field.locator(".problem")).not_to_be_empty()
    expect(field.locator("input")).to_have_attribute("aria-invalid", "true")
    expect(person.find("[data-reason]")).to_have_text("Mend what is marked first.")
    person.find("[data-action=apply]").click(force=True)
    field_raw = person.field("raw")
    field_raw.fill(field_raw.input_value()[:-3])
    expect(person.panel("offset-raw").locator(".problem")).to_contain_text("The form waits")
    assert server.ask("GET", "/connectors/shop/offsets/history").json()["changes"] == []
    person.press("discard")
    expect(field.locator(".problem")).to_be_empty()


def applies(person: Person, server: ServerProcess, place: int) -> None:
    """The consequence stands there before it is applied; the next start follows it."""
    stood = place_of(server)
    review = person.panel("review")
    person.field("lsn").fill(str(place))
    expect(review.locator("[data-direction=same]")).to_contain_text("change the field that says where reading goes on")
    person.field("lsn_commit").fill(str(place))
    expect(review.locator("[data-direction=rewind] [data-consequence]")).to_contain_text("Rewind.")
    expect(review.locator("[data-direction=rewind]")).to_contain_text(str(stood))
    expect(person.find("[data-reason]")).to_be_empty()
    assert place_of(server) == stood
    person.field("why").fill("the night's rows once more")
    person.press("apply")
    change = person.find("[data-change]")
    expect(change).to_contain_text("the night's rows once more")
    expect(change).to_contain_text("waits for the next start")
    assert place_of(server) == place
    person.press("start")
    person.sees_state("RUNNING")
    expect(change).to_contain_text("in effect since")


def undoes(person: Person, server: ServerProcess) -> None:
    person.press("undo")
    person.is_told("Offsets can be changed only while the connector is stopped. Stop shop first.")
    person.press("stop")
    person.sees_state("STOPPED")
    (made,) = server.ask("GET", "/connectors/shop/offsets/history").json()["changes"]
    person.press("undo")
    person.dialog("undo").locator("[data-field=why]").fill("it was not needed")
    person.dialog("undo").locator("[data-action=confirm]").click()
    changes = person.find("[data-change]")
    expect(changes).to_have_count(2)
    expect(changes.first).to_contain_text("it was not needed")
    expect(changes.last).to_contain_text("undone since")
    assert place_of(server) == made["before"]["lsn_commit"]


def reads_the_configuration(person: Person, password: str) -> None:
    """What was typed as a secret is not shown again."""
    person.tab("config")
    expect(person.find('dl [data-setting="database.password"]')).to_contain_text("hidden")
    expect(person.find('dl [data-setting="sink.type"]')).to_contain_text("delta")
    assert password not in person.page.content()
