"""The offset documents of SQL Server connectors: one for each database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.core.offsets import capture_tables
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.lsn import Form
from tidelog.core.offsets.partition import Partition

LSN = Form((8, 8, 4))

DOCUMENT = Document(
    title="SQL Server",
    fields=capture_tables.fields(LSN, "00000025:00000d98:00a2", "00000025:00000d98:0003"),
    partition=Partition(
        "one for each database of the server.",
        shapes=(("server", "database"), ("server",), ("database",)),
        older=(),
        several="each database has a log of its own",
    ),
    forms=capture_tables.FORMS,
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    return capture_tables.order(LSN, DOCUMENT.read(a), DOCUMENT.read(b))


def describe(offset: Mapping[str, Any]) -> str:
    return capture_tables.describe(DOCUMENT.read(offset))
