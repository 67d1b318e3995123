"""Settings of Debezium that tidelog does not have, each with what takes its place.

The nearest name by spelling would mislead somebody who brings a configuration along: `plugin.name` is no misspelt
`slot.name`.
"""

from __future__ import annotations

import re

_NO_KAFKA = "Leave it out: tidelog writes to no Kafka topic."
_IN_SPARK = "Leave it out: Spark, or a sink of your own, transforms what tidelog delivers."
_RETRIES = "Leave it out: what time can cure is retried for as long as it takes, with growing delays."
_SHORT_READS = "Leave it out: a snapshot reads in short transactions beside the stream, and holds up no writer."
_BATCHES = "Leave it out: maxEventsPerTrigger and maxBytesPerTrigger (section stream) limit a batch."
_MEMORY = "Leave it out: memory.bytes and max.bytes (section journal) limit what is held."
_OF_THE_ROLE = "Leave it out: set it for the role, with ALTER ROLE … SET …."
_ONE_FORM = "Leave it out: tidelog has one form for these values."
_DELIVERED = "Leave it out: the server hears that changes were delivered once a batch is committed."
_INCREMENTAL = "Leave it out: `tidelog snapshot` reads single tables, with --where some of their rows."
_NAMES = "Leave it out: names are delivered as the database has them."

_ANSWERS = {
    "plugin.name": "Leave it out: tidelog always reads with pgoutput, which every server has.",
    "slot.drop.on.stop": "Leave it out: the slot stays, so that no change is lost while the pipeline is down.",
    "slot.stream.params": "Leave it out: publish.origin and streaming are settings of their own.",
    r"slot\.(max\.retries|retry\.delay\.ms)": _RETRIES,
    r"errors\..*|retriable\.restart\.connector\.wait\.ms": _RETRIES,
    "snapshot.fetch.size": "Leave it out: incremental.snapshot.chunk.size says how many rows a chunk has.",
    "snapshot.max.threads": "Use incremental.snapshot.parallelism.",
    r"snapshot\.(locking\.mode.*|isolation\.mode|lock\.timeout\.ms|query\.mode.*)": _SHORT_READS,
    r"snapshot\.(select\.statement\.overrides.*|include\.collection\.list)": _INCREMENTAL,
    r"snapshot\.mode\..*": "Leave it out: snapshot.mode alone says which rows are read.",
    r"(snapshot|streaming)\.delay\.ms|snapshot\.tables\.order\.by\.row\.count": "Leave it out: nothing waits for it.",
    "incremental.snapshot.allow.schema.changes": "Leave it out: a table may always change while it is read.",
    r"signal\.(poll\.interval\.ms|kafka\..*|consumer\..*)|notification\.sink\.topic\.name": (
        "Leave it out: signals and notifications come and go by the channels of signal.enabled.channels and "
        "notification.enabled.channels."
    ),
    "max.batch.size": _BATCHES,
    "poll.interval.ms": "Leave it out: trigger (section stream) says how often a batch starts.",
    r"max\.queue\.size(\.in\.bytes)?": _MEMORY,
    r"(hstore|interval)\.handling\.mode|money\.fraction\.digits|include\.unknown\.datatypes": _ONE_FORM,
    r"(column|datatype)\.propagate\.source\.type": _ONE_FORM,
    r"(schema|field)\.name\.adjustment\.mode|sanitize\.field\.names": _NAMES,
    r"message\.prefix\.(include|exclude)\.list": _IN_SPARK,
    r"converters|(key|value|header)\.converter.*|transforms.*|predicates.*|post\.processors.*": _IN_SPARK,
    r"tombstones\.on\.delete|topic\.(naming\.strategy|delimiter|cache\.size|heartbeat\.prefix|transaction)": _NO_KAFKA,
    r"(producer|consumer)\..*|schema\.history\..*": _NO_KAFKA,
    "heartbeat.action.query": "Leave it out: the slot moves on without writing to the database.",
    r"lsn\.flush\.(mode|timeout\.ms)|flush\.lsn\.source|offset\.(flush\..*|mismatch\.strategy)": _DELIVERED,
    "xmin.fetch.interval.ms": "Leave it out: nothing needs it.",
    "replica.identity.autoset.values": "Run ALTER TABLE … REPLICA IDENTITY yourself; `tidelog check` prints it.",
    r"database\.(initial\.statements|query\.timeout\.ms)": _OF_THE_ROLE,
    "database.tcpKeepAlive": "Leave it out: connections are always kept alive.",
    "database.sslpassword": "Leave it out, and name a key without a password in database.sslkey.",
    "database.sslfactory": "Leave it out: database.sslmode and the certificates' settings say how TLS is done.",
    "database.server.name": "Use topic.prefix.",
    "schema.refresh.mode": "Leave it out: schema.refresh.interval.ms says how often the catalog is asked.",
    r"(schema|table|column)\.(whitelist|blacklist)": "Use the include.list or the exclude.list of the same kind.",
    "tasks.max": "Leave it out: Spark's master says how many tasks run.",
    "connector.class": "Use connector: postgres.",
    "custom.metric.tags": "Leave it out: metrics carry the pipeline's name.",
}
"""By name, or by a regular expression over names."""


def answer(name: str) -> str | None:
    """What a user of this setting should do here; None for a setting that Debezium does not have either."""
    if name in _ANSWERS:
        return _ANSWERS[name]
    return next((text for pattern, text in _ANSWERS.items() if "\\" in pattern and re.fullmatch(pattern, name)), None)
