"""A real Chromium, Debian's own: nothing is downloaded by Playwright, which only drives it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests import startup
from tests.patience import wall_seconds

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",  # root may not have one, and the only pages seen are ours
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class NoChromium(RuntimeError):
    """There is no Chromium here, and it cannot be installed; the message says why."""


def find() -> str:
    return _found() or _installed()


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _installed() -> str:
    script = ROOT / "scripts" / "servers.sh"
    done = subprocess.run([str(script), "chromium"], capture_output=True, text=True, check=False)
    if path := _found():
        return path
    why = (done.stderr or done.stdout).strip() or "only root can apt-get install it"
    raise NoChromium(f"Chromium is not installed, and {script.name} could not get it: {why}")


@contextmanager
def launched() -> Iterator[Browser]:
    path = find()
    with sync_playwright() as playwright:
        with startup.one_at_a_time():
            limit_ms = wall_seconds() * 1000
            browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS, timeout=limit_ms)
        yield browser
        browser.close()
