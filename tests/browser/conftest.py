"""One browser for all tests of the page, a fresh profile for each person, and services that they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import NoChromium, launched
from tests.browser.person import Person
from tests.integration.server.process import ServerProcess

Meet = Callable[..., Person]
Serve = Callable[..., ServerProcess]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Ends with this folder: Playwright keeps an event loop running in the main thread as long as it lives."""
    try:
        with launched() as found:
            yield found
    except NoChromium as reason:
        pytest.skip(str(reason))


@pytest.fixture
def meet(browser: Browser) -> Iterator[Meet]:
    """Opens a window on a service; whatever its browser complained about fails the test."""
    people: list[Person] = []

    def open_window(server: ServerProcess, width: int = 1280, height: int = 860, **more: object) -> Person:
        context = browser.new_context(viewport={"width": width, "height": height}, **more)  # type: ignore[arg-type]
        people.append(Person(context.new_page(), str(server.client.base_url).rstrip("/")))
        return people[-1]

    yield open_window
    for person in people:
        person.page.context.close()
    assert [complaint for person in people for complaint in person.complaints] == []


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts services with a state of this test's own."""
    started: list[ServerProcess] = []

    def start(*more: str, environment: dict[str, str] | None = None) -> ServerProcess:
        started.append(ServerProcess(tmp_path, *more, environment=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
