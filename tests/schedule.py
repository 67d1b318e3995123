"""In which order test files run: the longest first, so that all workers end together.

`durations.txt` says how many seconds each file took. `python -m tests.schedule REPORT.xml` writes it from the report
of `make test ARGS=--junit-xml=REPORT.xml`.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
TABLE = TESTS / "durations.txt"
WORTH_A_LINE_S = 2.0
UNKNOWN_S = {"spark": 60.0, "browser": 60.0, "conformance": 60.0, "docs": 60.0, "integration": 10.0}
"""A guess for a file that the table lacks, by its first folder."""


def seconds(file: Path) -> float:
    if not file.is_relative_to(TESTS):
        return 0.0
    relative = file.relative_to(TESTS)
    return _table().get(relative.as_posix(), UNKNOWN_S.get(relative.parts[0], 1.0))


@cache
def _table() -> dict[str, float]:
    lines = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {path: float(time) for time, path in lines}


def main(report: str) -> None:
    durations: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.attrib["classname"].removeprefix("tests.")
        durations[module.replace(".", "/") + ".py"] += float(case.attrib["time"])  # type: ignore[assignment]
    lines = [f"{time:6.0f} {path}\n" for path, time in durations.most_common() if time >= WORTH_A_LINE_S]
    TABLE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
