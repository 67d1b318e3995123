"""The offset document of Db2 connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.core.offsets import capture_tables
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.lsn import Form
from tidelog.core.offsets.partition import Partition

LSN = Form((8, 8, 16))

DOCUMENT = Document(
    title="Db2",
    fields=capture_tables.fields(LSN, "00000000:00000000:0000000000052c25", "00000000:00000000:0000000000052c24"),
    partition=Partition("one for the whole database, by its topic prefix."),
    forms=capture_tables.FORMS,
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    return capture_tables.order(LSN, DOCUMENT.read(a), DOCUMENT.read(b))


def describe(offset: Mapping[str, Any]) -> str:
    return capture_tables.describe(DOCUMENT.read(offset))
