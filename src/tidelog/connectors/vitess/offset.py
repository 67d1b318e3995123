"""The offset document of Vitess connectors: where the stream stood before the current transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.connectors.vitess import epoch, gtid, vgtid
from tidelog.core.offsets.common import TRANSACTION
from tidelog.core.offsets.compare import Order
from tidelog.core.offsets.document import Document, Form
from tidelog.core.offsets.fields import Field, parsed, text, whole
from tidelog.core.offsets.partition import SERVER, Partition

_EXAMPLE = (
    '[{"keyspace":"shop","shard":"-80","gtid":"MySQL56/a790d864-9ba1-11ea-99f6-0242ac11000a:1-1513","table_p_ks":[]}]'
)

DOCUMENT = Document(
    title="Vitess",
    fields=(
        Field(
            "vgtid",
            "Where the stream stood in each shard before the current transaction.",
            parsed("the text of a JSON list of shards", vgtid.normal),
            _EXAMPLE,
        ),
        *TRANSACTION,
        Field(
            "transaction_epoch",
            "The epoch of each shard, when ordered transaction metadata is provided.",
            parsed("the text of a JSON object of shards and epochs", epoch.normal),
            '{"-80":2,"80-":3}',
        ),
        Field("connector_generation", "How often the connector's shards were dealt out to its tasks.", whole(), 0),
    ),
    partition=Partition(
        "one for the whole keyspace, by its topic prefix; or one for each task.",
        fields=(
            SERVER,
            Field("task_key", "The task, the number of tasks and the generation.", text(), "task0_2_0"),
        ),
        shapes=(("server",), ("server", "task_key")),
        older=(),
        several="each task may keep its own",
    ),
    forms=(Form("streaming", "streaming", ("vgtid", "transaction_epoch", "connector_generation"), ("vgtid",)),),
)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Order:
    return vgtid.parse(DOCUMENT.read(a)["vgtid"]).order(vgtid.parse(DOCUMENT.read(b)["vgtid"]))


def describe(offset: Mapping[str, Any]) -> str:
    shards = vgtid.parse(DOCUMENT.read(offset)["vgtid"]).shards
    return ", ".join(f"{s.keyspace}/{s.shard} {_place(s.gtid)}" for s in shards)


def _place(mark: str) -> str:
    words = {gtid.COPY: "from a copy of its tables", gtid.CURRENT: "from the log's end"}
    return words.get(mark, f"after {mark}")
