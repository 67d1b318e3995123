"""Writes the settings into the guides, from where they are declared: a page never says something else than the code.

    python scripts/settings_reference.py            write
    python scripts/settings_reference.py --check    exit 1 when a page is out of date

A page holds a pair of comments, `<!-- settings: postgres -->` and `<!-- end -->`; what stands between them is ours.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.connectors.oracle.settings import SETTINGS as ORACLE
from tidelog.connectors.postgres.config import SETTINGS as POSTGRES
from tidelog.core.settings import Setting
from tidelog.engine.definition import JOURNAL, SPARK, STREAM
from tidelog.spark.sinks import TYPES

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide"
SECTIONS: dict[str, Sequence[Setting]] = {
    "oracle": ORACLE,
    "postgres": POSTGRES,
    "stream": STREAM,
    "journal": JOURNAL,
    "spark": SPARK,
    **{f"sink {name}": settings for name, (settings, _) in TYPES.items()},
}
_PLACE = re.compile(r"(<!-- settings: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with every table of settings written anew."""
    return _PLACE.sub(lambda found: found[1] + "\n".join(_table(SECTIONS[found[2]])) + "\n" + found[3], page)


def _table(settings: Sequence[Setting]) -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for setting in settings:
        yield f"| `{setting.name}` | {_default(setting)} | {_meaning(setting)} |"


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "required"
    return f"`{setting.default}`" if setting.default else ""


def _meaning(setting: Setting) -> str:
    choices = f" One of {', '.join(f'`{c}`' for c in setting.choices)}." if setting.choices else ""
    return (setting.meaning + choices).replace("|", "\\|")


def stale() -> list[Path]:
    return [page for page in sorted(GUIDE.glob("*.md")) if rendered(page.read_text("utf-8")) != page.read_text("utf-8")]


def main() -> int:
    pages = stale()
    if "--check" in sys.argv:
        for page in pages:
            print(f"{page} is out of date: run python scripts/settings_reference.py")
        return 1 if pages else 0
    for page in pages:
        page.write_text(rendered(page.read_text("utf-8")), "utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
