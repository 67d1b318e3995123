"""Cases of offset documents: read, written again, and asked what may be left out.

A value in angle brackets stands for a real one: the field's own example takes its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tidelog import connectors
from tidelog.connectors.cassandra import offset as cassandra
from tidelog.connectors.cassandra import properties
from tidelog.core.offsets import body, schema
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import Field

Case = Mapping[str, Any]


def answer(case: Case) -> Any:
    given, expected = case["input"], case["expected"]
    if "connector" not in given:
        return {"offset": _shared(expected["offset"])}
    document = connectors.offsets(given["connector"]).DOCUMENT
    if "entries" in expected:
        return _files(expected)
    found = {"offset": _written(document, expected["offset"], given["connector"])}
    if "optional" in expected:
        _left_out(document, _filled(document, expected["offset"]), expected["optional"])
    if "partition" in expected:
        names = {"server": given.get("logical_name", "server1"), "database": "testDB", "partitionToken": "Parent0"}
        names["server_id"] = names["server"]
        if expected["partition"].keys() == set(document.partition.shapes[0]):
            assert (
                document.partition.write(**{k: names[k] for k in document.partition.shapes[0]}) == expected["partition"]
            )
        found["partition"] = document.partition.read(expected["partition"])
        assert document.partition.matches(found["partition"], task_key="task0_2_0", **names)
    return {**found, "optional": expected.get("optional")}


def _shared(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of every relational connector: beside a place in each of them."""
    answers = [_beside(plugin.name, offset) for plugin in connectors.PLUGINS if plugin.name in RELATIONAL]
    assert all(found == answers[0] for found in answers)
    return answers[0]


RELATIONAL = ("postgres", "mysql", "mariadb", "oracle", "sqlserver", "db2")


def _beside(name: str, offset: Mapping[str, Any]) -> dict[str, Any]:
    document = connectors.offsets(name).DOCUMENT
    least = {"lsn", "file", "pos", "scn", "commit_lsn"}
    place = {f.name: f.example for f in document.fields if f.name in least}
    written = _written(document, {**place, **offset}, name)
    return {key: value for key, value in written.items() if key not in place}


def _written(document: Document, offset: Mapping[str, Any], name: str) -> dict[str, Any]:
    filled = _filled(document, offset)
    entry = body.Entry({}, document.read(filled))
    assert document.problems(filled) == ()
    assert entry.offset == document.write(document.read(filled)) == document.read(body.parse(_json(filled)))
    assert connectors.offsets(name).describe(filled)
    assert connectors.offsets(name).compare(filled, filled).covers
    assert schema.offset(document)["properties"] is not None
    assert entry.offset is not None
    return {key: offset[key] if filled.get(key) != offset.get(key) else value for key, value in entry.offset.items()}


def _filled(document: Document, offset: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _real(document.field(key), value) for key, value in offset.items()}


def _real(field: Field | None, value: Any) -> Any:
    stands_for = isinstance(value, str) and re.fullmatch(r"<[^<>]*>", value)
    return field.example if stands_for and field is not None else value


def _left_out(document: Document, offset: Mapping[str, Any], optional: list[str]) -> None:
    """What is optional may be missing, alone and together; a place must remain. What is not, must be there."""
    for name in optional:
        rest = {key: value for key, value in offset.items() if key != name}
        assert not document.problems(rest), name
    for name in offset.keys() - set(optional):
        rest = {key: value for key, value in offset.items() if key != name}
        assert [problem.path for problem in document.problems(rest)] == [name]


def _files(expected: Case) -> dict[str, Any]:
    """A file on each node, as the same document."""
    entries = properties.read(properties.write(expected["entries"]))
    offset = cassandra.of_files({expected["file"]: entries})
    ((file, written),) = cassandra.files(offset).items()
    return {"file": file, "entries": written}


def _json(offset: Mapping[str, Any]) -> str:
    return json.dumps(offset)
