"""The offset document of MariaDB connectors: the place where the current transaction begins, and how far into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.connectors.mariadb import gtid
from tidelog.core.offsets import binlog
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import parsed
from tidelog.core.offsets.partition import Partition

DOCUMENT = Document(
    title="MariaDB",
    fields=binlog.fields(parsed("a set of MariaDB's GTIDs", gtid.normal), "0-112233-42", "mariadb-bin.000002"),
    partition=Partition("one for the whole server, by its topic prefix."),
    forms=binlog.FORMS,
    aliases=(binlog.MILLISECONDS,),
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    a, b = DOCUMENT.read(a), DOCUMENT.read(b)
    if "gtids" not in a or "gtids" not in b:
        return binlog.order(a, b, None)
    return binlog.order(a, b, orders.of_maps(gtid.parse(a["gtids"]).reached(), gtid.parse(b["gtids"]).reached()))


def describe(offset: Mapping[str, Any]) -> str:
    return binlog.describe(DOCUMENT.read(offset))
