"""Regular expressions that were written for Java match what they matched there."""

from __future__ import annotations

import re

import pytest

from tidelog.core import settings, signals
from tidelog.core.signals import Execute, Malformed
from tidelog.model import pattern
from tidelog.model.selection import matches


@pytest.mark.parametrize(
    ("written", "taken", "left"),
    [
        (r"public\.\p{L}+", ["public.a", "public.Äß", "public.日本"], ["public.1", "public.", "public.a_b"]),
        (r"\p{Lu}\P{Lu}*", ["Abc1", "Ä"], ["abc", "AB"]),
        (r"\pL\PL", ["a1", "é_"], ["aa", "11"]),
        (r"[\p{L}\d_]+", ["Ä_1"], ["a-b"]),
        (r"[^\p{L}]+", ["12-"], ["1a"]),
        (r"[\P{L}a]+", ["1a"], ["1b"]),
        (r"\p{Alpha}\p{Digit}\p{Alnum}\p{Lower}\p{Upper}", ["a1zbC"], ["ä1zbC", "a1zBc"]),
        (r"\Qpublic.a\E", ["public.a"], ["publicxa"]),
        (r"\Qa(b[c\E.*", ["a(b[cd"], ["ab"]),
        (r"a\Q.*", ["a.*"], ["abc"]),
        (r"[\Q^-]\E]+", ["^-]"], ["a"]),
        (r"(?<x>public|shop)\.\k<x>", ["shop.shop"], ["shop.public"]),
        (r"(?<=a)b|(?<!a)c|a(?<n>b)", ["c", "ab"], ["b"]),
        (r"[(?<x>]+", ["(?<x>"], ["y"]),
        (r"[]\]]x", ["]x"], ["x"]),
        (r"a\\Q", ["a\\Q"], ["aQ"]),
        (r"\[\p{L}\]", ["[a]"], ["a"]),
    ],
)
def test_java_in_pythons_words(written: str, taken: list[str], left: list[str]) -> None:
    found = pattern.compiled(written)
    assert [name for name in taken + left if found.fullmatch(name)] == taken


@pytest.mark.parametrize(
    "plain", ["", r"public\.(orders|t{1,2})", "a.*?b++", r"(?P<x>a)(?P=x)", r"\d\w[a-z^]", "schema.[t"]
)
def test_what_python_knows_stays(plain: str) -> None:
    assert pattern.translated(plain) == plain


@pytest.mark.parametrize("broken", [r"\p{Nothing}", r"\p{", "(?<1>a)", r"\k<x>", "schema.[t", "(a"])
def test_what_nobody_knows_is_refused(broken: str) -> None:
    with pytest.raises(re.error):
        pattern.compiled(broken)


def test_everywhere_the_same() -> None:
    written = r"\Qshop.\E(?<t>\p{L}+)"
    assert settings.patterns(written) == written
    assert matches(f"x, {written}", "shop.ä")
    asked = signals.parse("1", "execute-snapshot", {"data-collections": [written]})
    assert isinstance(asked, Execute)
    assert signals.tables_of(asked, ["shop.1", "shop.b"]) == ["shop.b"]
    assert isinstance(signals.parse("1", "execute-snapshot", {"data-collections": [r"\p{Nothing}"]}), Malformed)
