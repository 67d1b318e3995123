"""Offsets: the connector's own keys beside tidelog's, and no reading of another format."""

from __future__ import annotations

import json
import pickle

import pytest

from tidelog.errors import CorruptState
from tidelog.model.offset import FORMAT, Offset


def test_an_offset_comes_back_from_json() -> None:
    offset = Offset(4711, "abc", {"lsn": 4704, "txId": 9, "ts_usec": 5})
    raw = json.loads(json.dumps(offset.to_json()))
    assert (raw["lsn"], raw["txId"], raw["tidelog_version"]) == (4704, 9, FORMAT)
    assert Offset.from_json(raw) == offset


def test_the_connectors_keys_never_shadow_ours() -> None:
    assert Offset(1, "s", {"tidelog_position": 99}).to_json()["tidelog_position"] == 1


@pytest.mark.parametrize("version", [None, 0, FORMAT + 1, "1"])
def test_another_format_is_refused_with_the_cure(version: object) -> None:
    raw = {**Offset(1).to_json(), "tidelog_version": version}
    with pytest.raises(CorruptState, match="an offset of format") as caught:
        Offset.from_json(raw)
    assert "new checkpoint" in caught.value.hint
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
