"""Every connector's document: written as it was read, described, and told to other programs by a schema."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.offsets.samples import DOCUMENTS
from tidelog import connectors
from tidelog.connectors import PLUGINS
from tidelog.core.offsets import body, schema
from tidelog.core.offsets.body import Entry
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import Null
from tidelog.errors import TidelogError

NAMES = [plugin.name for plugin in PLUGINS]


def document_of(name: str) -> Document:
    return connectors.offsets(name).DOCUMENT


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_right_document_is_written_as_it_was_read(kind: str) -> None:
    name, offset = DOCUMENTS[kind]
    document = document_of(name)
    assert document.problems(offset) == ()
    read = document.read(json.loads(json.dumps(offset)))
    assert read == offset
    assert [*document.write(read)] == [*read], "the order is the fields'"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_is_described_and_stands_at_its_own_place(kind: str) -> None:
    name, offset = DOCUMENTS[kind]
    assert connectors.offsets(name).describe(offset)
    assert connectors.offsets(name).compare(offset, offset).value == "same"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_whole_body_comes_back(kind: str) -> None:
    name, offset = DOCUMENTS[kind]
    document = document_of(name)
    partition = {f.name: f.example for f in document.partition.fields if f.name in document.partition.shapes[0]}
    entries = (Entry(partition, offset),)
    sent = body.parse(json.dumps(body.write(entries)))
    assert body.problems(document, sent) == ()
    assert body.read(document, sent) == entries
    jsonschema.validate(sent, schema.of(document))


@pytest.mark.parametrize("name", NAMES)
def test_each_field_says_what_it_means_and_its_example_is_right(name: str) -> None:
    document = document_of(name)
    for field in (*document.fields, *document.partition.fields):
        assert field.meaning.endswith("."), field.name
        assert len(field.meaning) < 110
        assert field.read(field.example) == field.example or field.example in field.silent
    assert len({f.name for f in document.fields}) == len(document.fields)


@pytest.mark.parametrize("name", NAMES)
def test_forms_name_fields_of_the_document(name: str) -> None:
    document = document_of(name)
    names = {field.name for field in document.fields}
    for form in document.forms:
        assert {*form.fields, *form.required} <= names
        assert not form.mark or form.mark in names


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_is_one(name: str) -> None:
    written = schema.of(document_of(name))
    jsonschema.Draft202012Validator.check_schema(written)
    offset = written["properties"]["offsets"]["items"]["properties"]["offset"]["anyOf"][0]
    described = {**offset["properties"], **offset["patternProperties"]}
    assert all(one["title"] and one["description"] for one in described.values())
    jsonschema.validate({"offsets": [{"partition": _partition(name), "offset": None}]}, written)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"offsets": [{"partition": _partition(name), "offset": {"no such": 1}}]}, written)


def _partition(name: str) -> dict[str, Any]:
    partition = document_of(name).partition
    return {f.name: f.example for f in partition.fields if f.name in partition.shapes[0]}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["", "true", "null", "0/16B3748", "1-2-3", "[]", "{}", "aced0005", ":-1", "\ud800", "12345:1:"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def _offsets(name: str) -> st.SearchStrategy[Any]:
    """Right ones, with something added, changed or left out."""
    fields = document_of(name).fields
    keys = st.sampled_from([f.name.replace("<table>", "t").replace("<keyspace>", "k") for f in fields])
    examples = st.sampled_from([f.example for f in fields])
    right = st.sampled_from([offset for of, offset in DOCUMENTS.values() if of == name])
    changes = st.dictionaries(keys | st.text(max_size=5), ANYTHING | examples, max_size=3)
    return st.builds(
        lambda offset, gone, new: {**_without(offset, gone), **new}, right, st.sets(keys, max_size=2), changes
    )


def _without(offset: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    return {key: value for key, value in offset.items() if key not in gone}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_comes_is_answered_and_never_crashes(name: str, data: st.DataObject) -> None:
    document = document_of(name)
    offset = data.draw(_offsets(name) | ANYTHING)
    problems = document.problems(offset)
    assert all(p.message and p.hint for p in problems)
    if problems:
        with pytest.raises(TidelogError):
            document.read(offset)
        return
    read = document.read(offset)
    assert document.read(read) == read
    assert connectors.offsets(name).compare(read, read).covers
    assert connectors.offsets(name).describe(read)
    assert jsonschema.Draft202012Validator(schema.offset(document)).is_valid(offset)


@pytest.mark.parametrize("name", ["postgres", "sqlserver", "mongodb", "cassandra"])
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_partition_comes_is_answered(name: str, data: st.DataObject) -> None:
    partition = document_of(name).partition
    keys = st.sampled_from([f.name for f in partition.fields]) | st.text(max_size=4)
    raw = data.draw(st.dictionaries(keys, st.text(max_size=5) | ANYTHING, max_size=3) | ANYTHING)
    if partition.problems(raw):
        with pytest.raises(TidelogError):
            partition.read(raw)
    else:
        read = partition.read(raw)
        assert partition.read(read) == read


ABSURD = [math.nan, math.inf, -1.5, 10**40, -(10**5000), [], {}, "-" * 5000]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ABSURD, ids=range(len(ABSURD)))
def test_absurd_values_are_refused_in_a_short_sentence(name: str, value: Any) -> None:
    document = document_of(name)
    offset = {f.name.replace("<table>", "t").replace("<keyspace>", "k"): value for f in document.fields}
    problems = document.problems(offset)
    assert problems
    assert all(len(p.message) < 200 for p in problems)


@pytest.mark.parametrize("name", NAMES)
def test_a_null_says_nothing_unless_it_must_say_something(name: str) -> None:
    document = document_of(name)
    for field in document.fields:
        if field.required or field.null is Null.REFUSED:
            with pytest.raises(TidelogError):
                field.read(None)
        else:
            assert field.read(None) is None
