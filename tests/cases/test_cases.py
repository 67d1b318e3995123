"""Runs every case of a directory (`$TIDELOG_CASES`, default `../shared/cases`); without one there is nothing to run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import adapters

FOLDER = Path(os.environ.get("TIDELOG_CASES") or Path(__file__).parents[3] / "shared" / "cases")


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            yield pytest.param(file.stem, case, id=f"{file.stem}/{case['name']}")


FOUND = list(cases()) or [pytest.param("", {}, id="none", marks=pytest.mark.skip(reason="no directory of cases here"))]


@pytest.mark.parametrize(("file", "case"), FOUND)
def test_case(file: str, case: dict[str, Any]) -> None:
    name = f"{file}/{case['name']}"
    if name in adapters.DECIDED_AGAINST:
        pytest.skip(f"decided against: {adapters.DECIDED_AGAINST[name]}")
    answer = adapters.run(file, case)
    expected = case["expected"]
    if not isinstance(expected, dict) or not isinstance(answer, dict):
        assert answer == expected
        return
    assert {k: answer[k] for k in expected if k in answer} == {k: v for k, v in expected.items() if k in answer}
    assert answer.keys() & expected.keys() or answer == expected
