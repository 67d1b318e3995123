"""The page beside the main path, with stopped connectors: tokens, hostile text, loss, phones, keys, colours."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Meet, Serve
from tests.browser.person import Person
from tests.integration.server.conftest import MYSQL, MYSQL_OFFSETS, SHOP
from tests.integration.server.process import ServerProcess
from tests.patience import wall_seconds
from tidelog.model.control import Told
from tidelog.server.news import NOTIFICATION
from tidelog.stores import open_store

ATTACK = "<img src=x onerror=\"document.title='broken into'\">"
PHONE = {"width": 360, "height": 740, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
VIEWS = ("/", "/new", "/connectors/erp", "/connectors/erp/offsets", "/connectors/erp/config", "/nowhere")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("service"))
    yield stocked(process)
    process.kill()


def stocked(process: ServerProcess) -> ServerProcess:
    """With two connectors that are stopped, one with offsets."""
    for name, config in (("shop", SHOP), ("erp", MYSQL)):
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        assert process.ask("POST", "/connectors", body).status_code == 201
    assert process.ask("PATCH", "/connectors/erp/offsets", MYSQL_OFFSETS).status_code == 200
    return process


def link(person: Person, state: str) -> None:
    expect(person.find("[data-link]")).to_have_attribute("data-link", state)


def test_a_token_is_asked_for_and_kept_for_the_tab(serve: Serve, meet: Meet, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("read reads-only-0123456789 rita\nadmin may-everything-0123456789 otto\n")
    server = serve("--tokens", str(tokens))
    person = meet(server)
    person.open()
    asking = person.dialog("token")
    asking.locator("[data-field=token]").fill("nobody-knows-this-one")
    asking.get_by_role("button", name="Continue").click()
    expect(asking).to_contain_text("did not accept this token")
    asking.locator("[data-field=token]").fill("reads-only-0123456789")
    asking.get_by_role("button", name="Continue").click()
    expect(person.find(".empty-title")).to_have_text("No connectors yet")
    link(person, "live")

    person.press("new-first")
    expect(person.panel("settings").get_by_role("alert")).to_contain_text("This needs the role admin")
    person.page.reload()
    expect(person.field("name")).to_be_visible()
    expect(asking).to_have_count(0)
    other = meet(server)
    other.open()
    expect(other.dialog("token")).to_be_visible()
    other.dialog("token").get_by_role("button", name="Not now").click()
    expect(other.find("[data-error]")).to_contain_text("A token is needed")


def test_text_of_others_stays_text(server: ServerProcess, meet: Meet) -> None:
    config = MYSQL | {"topic.prefix": ATTACK}
    assert server.ask("POST", "/connectors", {"name": "odd", "config": config, "initial_state": "STOPPED"}).is_success
    edit = {"offsets": [{"partition": {"server": ATTACK}, "offset": {"file": "mysql-bin.000003", "pos": 4}}]}
    assert server.ask("PATCH", "/connectors/odd/offsets", edit | {"why": ATTACK}).is_success
    data = {"aggregate_type": ATTACK, "additional_data": {"data_collections": ATTACK}}
    tell(server, Told("odd", ATTACK, ATTACK, data, 1))

    person = meet(server)
    person.open("/connectors/odd")
    expect(person.panel("notifications").locator("li")).to_contain_text(ATTACK)
    person.tab("offsets")
    expect(person.find("[data-change] .why")).to_have_text(ATTACK)
    expect(person.find("[data-partition] h3")).to_contain_text(ATTACK)
    person.tab("config")
    expect(person.find('dl [data-setting="topic.prefix"]')).to_contain_text(ATTACK)
    person.open(f"/connectors/{ATTACK}")
    expect(person.find("h1")).to_have_text(ATTACK)
    person.open("/new")
    person.fill({"name": ATTACK})
    expect(person.panel("identity").locator(".problem")).not_to_be_empty()
    assert person.page.locator("img").count() == 0
    assert "broken into" not in person.page.title().removeprefix(ATTACK)


def tell(server: ServerProcess, told: Told) -> None:
    """As another process of the same state would."""
    open_store(str(server.home / "tidelog.sqlite")).tell(NOTIFICATION, told)


def test_a_service_that_dies_is_told_and_found_again(serve: Serve, meet: Meet) -> None:
    server = stocked(serve())
    person = meet(server)
    person.open()
    link(person, "live")
    server.kill()
    link(person, "lost")
    expect(person.find("[data-lost]")).to_contain_text("Connection lost, retrying.")
    expect(person.find("[data-connector=erp]")).to_be_visible()  # what was known stays
    person.find("[data-connector=erp] a").click()
    person.find("[data-action=delete]").click()
    person.dialog("delete").locator("[data-field=typed]").fill("erp")
    person.dialog("delete").locator("[data-action=confirm]").click()
    person.is_told("The service can't be reached.")
    person.find("[data-lost] button").click()
    link(person, "lost")

    again = serve("--port", person.address.rpartition(":")[2])
    link(person, "live")
    expect(person.find("[data-lost]")).to_be_hidden()
    assert again.state("erp") == "STOPPED"
    assert again.terminate(signal.SIGTERM) == 128 + signal.SIGTERM
    link(person, "lost")


def test_nothing_sticks_out_on_a_phone(server: ServerProcess, meet: Meet) -> None:
    person = meet(server, **PHONE)
    for view in VIEWS:
        person.open(view)
        expect(person.find("h1")).to_be_visible()
        expect(person.find(".skeleton")).to_have_count(0)
        assert person.overflow() == 0, view
    person.open("/connectors/erp/offsets")
    person.field("pos").fill("1" * 400)
    expect(person.find("[data-key=pos] .problem")).not_to_be_empty()
    assert person.overflow() == 0
    person.find("[data-action=shortcuts]").click()
    box = person.dialog("shortcuts").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]


def test_the_main_path_needs_no_mouse(server: ServerProcess, meet: Meet) -> None:
    person = meet(server)
    person.open()
    expect(person.find("[data-connector=erp]")).to_be_visible()
    keys = person.page.keyboard
    keys.press("/")
    keys.type("erp")
    expect(person.find("[data-connector]")).to_have_count(1)
    reach(person.page, "[data-connector=erp] a")
    keys.press("Enter")
    expect(person.find("h1")).to_have_text("erp")
    presses(person, "g", "o", seen=person.field("pos"))
    expect(person.field("pos")).to_have_value("154")

    reach(person.page, "[data-field=pos]")
    keys.press("Control+a")
    keys.type("4")
    expect(person.find("[data-consequence]")).to_be_visible()
    reach(person.page, "[data-panel=review] [data-field=why]")
    keys.type("by hand")
    reach(person.page, "[data-action=apply]")
    keys.press("Enter")
    expect(person.find("[data-change]").first).to_contain_text("by hand")

    reach(person.page, "[data-action=undo]", back=True)
    keys.press("Enter")
    expect(person.dialog("undo")).to_be_visible()
    keys.press("Escape")
    expect(person.dialog("undo")).to_have_count(0)
    expect(person.find("[data-action=undo]")).to_be_focused()
    keys.press("n")
    expect(person.find("h1")).to_have_text("New connector")
    expect(person.field("plugin")).to_be_enabled()  # once it knows which there are
    reach(person.page, "main [data-field=name]")
    keys.type("third")
    keys.press("Tab")
    chooses(person, "plugin", "MySQL")
    expect(person.field("plugin")).to_have_value("mysql")
    reach(person.page, "[data-action=create]")
    keys.press("Enter")
    expect(person.find("h1")).to_have_text("third")
    person.sees_state("STOPPED")
    assert server.ask("GET", "/connectors/third").json()["config"]["connector.class"] == "mysql"


def presses(person: Person, *keys: str, seen: Locator) -> None:
    """Keys that belong together only when they come quickly: on a busy machine they may need another try."""
    for _ in range(10):
        for key in keys:
            person.page.keyboard.press(key)
        with suppress(AssertionError):
            expect(seen).to_be_visible(timeout=1000 * wall_seconds(10))
            return
    raise AssertionError(f"{keys} did not show {seen}")


def chooses(person: Person, field: str, text: str) -> None:
    """Types in a list, where letters belong together only when they come quickly."""
    for _ in range(10):
        person.page.keyboard.type(text)
        if person.field(field).evaluate("list => list.selectedOptions[0].label").startswith(text):
            return
        person.page.wait_for_timeout(2_000)  # then they are forgotten


def focused(page: Page, selector: str) -> bool:
    return bool(page.evaluate("selector => document.activeElement?.matches(selector)", selector))


def reach(page: Page, selector: str, *, back: bool = False, steps: int = 400) -> None:
    """Walks with Tab until the element has the focus, which can be seen on all the way."""
    for _ in range(steps):
        if focused(page, selector):
            return
        page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"{selector} is not reached with Tab")


def test_colours_follow_the_system_and_the_person(server: ServerProcess, meet: Meet) -> None:
    def brightness(person: Person) -> int:
        colour = person.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(json.loads("[" + colour.partition("(")[2].rstrip(")") + "]")[:3])

    light = meet(server, color_scheme="light")
    dark = meet(server, color_scheme="dark")
    for person in (light, dark):
        person.open()
        expect(person.find("[data-connector=erp]")).to_be_visible()
    assert brightness(dark) < 200 < 600 < brightness(light)
    theme = light.find("[data-action=theme]")
    theme.click()
    theme.click()
    expect(theme).to_have_attribute("aria-label", "Colours: dark")
    assert brightness(light) == brightness(dark)
    light.page.reload()
    expect(theme).to_have_attribute("aria-label", "Colours: dark")
    assert brightness(light) == brightness(dark)
