"""The offset document of MySQL connectors: the place where the current transaction begins, and how far into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.connectors.mysql import gtid
from tidelog.core.offsets import binlog
from tidelog.core.offsets import compare as orders
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document
from tidelog.core.offsets.fields import parsed
from tidelog.core.offsets.partition import Partition

_EXAMPLE = "24bc7850-2c16-11e6-a073-0242ac110002:1-191"

DOCUMENT = Document(
    title="MySQL",
    fields=binlog.fields(parsed("a set of GTIDs", gtid.normal), _EXAMPLE, "mysql-bin.000003"),
    partition=Partition("one for the whole server, by its topic prefix."),
    forms=binlog.FORMS,
    aliases=(binlog.MILLISECONDS,),
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    a, b = DOCUMENT.read(a), DOCUMENT.read(b)
    if "gtids" not in a or "gtids" not in b:
        return binlog.order(a, b, None)
    these, those = gtid.parse(a["gtids"]), gtid.parse(b["gtids"])
    return binlog.order(a, b, orders.of_sets(these.within(those), those.within(these)))


def describe(offset: Mapping[str, Any]) -> str:
    return binlog.describe(DOCUMENT.read(offset))
