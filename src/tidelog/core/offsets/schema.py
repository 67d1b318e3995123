"""JSON Schema (2020-12) of a connector's offsets, from the fields' own words: for a page, and for other programs.

It says no more than a schema can: whatever `problems` accepts, the schema accepts too.
"""

from __future__ import annotations

from typing import Any

from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import Field, Null

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def of(document: Document) -> dict[str, Any]:
    """The schema of a whole body."""
    entry = {
        "type": "object",
        "properties": {"partition": partition(document), "offset": {"anyOf": [offset(document), _NOTHING]}},
        "required": ["partition", "offset"],
        "additionalProperties": False,
    }
    return {
        "$schema": DIALECT,
        "title": f"Offsets of {document.title}",
        "type": "object",
        "properties": {"offsets": {"type": "array", "minItems": 1, "items": entry}},
        "required": ["offsets"],
        "additionalProperties": False,
    }


_NOTHING = {"type": "null", "description": "Removes the offset of this partition."}


def partition(document: Document) -> dict[str, Any]:
    shape = document.partition
    return {
        "title": "Partition",
        "description": shape.meaning,
        "type": "object",
        "properties": {f.name: _described(f, f.kind.schema) for f in shape.fields},
        "additionalProperties": False,
        "anyOf": [{"required": list(keys)} for keys in shape.shapes],
    }


def offset(document: Document) -> dict[str, Any]:
    plain = {f.name: _field(f) for f in document.fields if not f.keys}
    families = {f"^(?:{f.keys})$": _field(f) for f in document.fields if f.keys}
    required = [f.name for f in document.fields if f.required and f.name not in {a.of for a in document.aliases}]
    return {
        "title": f"Offset of {document.title}",
        "type": "object",
        "properties": plain | _aliases(document),
        "patternProperties": families,
        "required": required,
        "additionalProperties": False,
    }


def _aliases(document: Document) -> dict[str, Any]:
    return {
        a.name: {"title": a.name, "description": a.meaning, "deprecated": True, **_nullable(dict(a.kind.schema))}
        for a in document.aliases
    }


def _field(field: Field) -> dict[str, Any]:
    nullable = field.null is not Null.REFUSED and not (field.required and field.null is Null.ABSENT)
    return _described(field, _nullable(dict(field.kind.schema)) if nullable else field.kind.schema)


def _described(field: Field, schema: Any) -> dict[str, Any]:
    return {"title": field.name, "description": field.meaning, "examples": [field.example], **schema}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif "type" in schema:
        schema["type"] = [*schema["type"], "null"]
    return schema
