"""Errors travel between processes and read as one sentence and its cure."""

from __future__ import annotations

import pickle

import pytest

from tidelog import errors
from tidelog.errors import TidelogError

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, TidelogError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_pickles_with_message_and_hint(kind: type[TidelogError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("It broke.", hint="Mend it.")))
    assert type(copy) is kind
    assert (copy.message, copy.hint, str(copy)) == ("It broke.", "Mend it.", "It broke. Mend it.")


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_hint_only_the_message_is_shown(kind: type[TidelogError]) -> None:
    assert str(kind("It broke.")) == "It broke."


def test_there_is_one_root() -> None:
    everything = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception)]
    assert everything == KINDS
