"""What a person does with the page, in their words, and what they see. Waiting is Playwright's: until it is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.patience import wall_seconds


class Person:
    """Somebody in front of the page of one service. Whatever the browser complains about is kept."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.complaints: list[str] = []
        enough_ms = wall_seconds() * 1000
        page.set_default_timeout(enough_ms)
        expect.set_options(timeout=enough_ms)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("request", lambda request: self._require_own(request.url))

    def open(self, path: str = "/") -> None:
        self.page.goto(f"{self.address}/#{path}")

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def field(self, name: str) -> Locator:
        return self.find(f'main [data-field="{name}"]')

    def panel(self, name: str) -> Locator:
        return self.find(f"[data-panel={name}]")

    def dialog(self, name: str) -> Locator:
        return self.find(f"dialog[data-dialog={name}]")

    def press(self, action: str) -> None:
        self.find(f"main [data-action={action}]").click()

    def tab(self, name: str) -> None:
        self.find(f"[data-tab={name}]").click()

    def sees_state(self, state: str) -> None:
        expect(self.find(".head [data-state]")).to_have_attribute("data-state", state)

    def is_told(self, text: str) -> None:
        expect(self.find(".toast").filter(has_text=text).first).to_be_visible()

    def fill(self, values: Mapping[str, str]) -> None:
        """Each field where it stands; a fold that hides one is opened first."""
        for name, value in values.items():
            field = self.field(name)
            field.wait_for(state="attached")
            fold = self.find("details.more:not([open])").filter(has=self.page.locator(f'[data-field="{name}"]'))
            if fold.count():
                fold.locator("summary").click()
            if field.evaluate("element => element.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def overflow(self) -> int:
        """Pixels that stick out at the right."""
        found = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return int(found)

    def picture(self, file: Path, *, around: str = "") -> None:
        """The whole page, or what the window shows with an element at its top."""
        self.page.mouse.move(0, 0)
        if around:
            self.find(around).evaluate("element => element.scrollIntoView({ block: 'start', behavior: 'instant' })")
        else:
            self.page.evaluate("scrollTo(0, 0)")  # a bar that sticks would be drawn in the middle
        self.page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
        self.page.screenshot(path=file, full_page=not around)

    def _heard(self, type: str, text: str) -> None:
        # What the service refused is told by the page; the browser repeats it as "Failed to load resource".
        if type in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.complaints.append(f"{type}: {text}")

    def _require_own(self, url: str) -> None:
        """The page works without internet."""
        if not url.startswith((self.address, "blob:", "data:")):
            self.complaints.append(f"asked for {url}")
