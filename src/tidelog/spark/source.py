"""`spark.readStream.format("tidelog")` and `spark.read.format("tidelog")`.

The planner process of a streaming query hosts the capture, so a query needs no service beside it. Spark calls
`initialOffset` once in the life of a checkpoint, `latestOffset` before each batch, and `partitions` for a batch, also
for one that a crash interrupted; `read` runs on the executors. What `latestOffset` gets as `start` was committed: that,
and not `commit`, which Spark never calls for the last batch, is what acknowledges.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.connectors import plugin
from tidelog.contracts import ENVELOPE, Slice
from tidelog.core import metadata
from tidelog.core.lazy_pandas import skip_pandas, skip_pandas_in_worker
from tidelog.core.requirements import Requirements
from tidelog.core.settings import Setting, nearest, parse
from tidelog.core.snapshot.state import INITIAL, Chunk, Entry
from tidelog.engine import definition as definitions
from tidelog.engine.admission import can_be_swept
from tidelog.engine.batch_plan import Plan
from tidelog.engine.definition import Definition
from tidelog.engine.flat import own_names
from tidelog.engine.home import Home
from tidelog.engine.jumps import Jump
from tidelog.engine.notices import log_into
from tidelog.engine.reading import Reading
from tidelog.engine.stage import Stage
from tidelog.errors import ConfigError
from tidelog.model.offset import Offset
from tidelog.model.schema import Table
from tidelog.spark import chunks, work

SECRET = "definition.secret"
"""The option that carries a whole definition; by its name, Spark hides its value wherever it shows options."""
PREFIX = "metadata.prefix"
"""What the names of the metadata columns begin with, where a query asks for the columns of one table."""
STAGE = "stage.secret"
"""Where staged files go: a URI may carry credentials."""
REQUIREMENTS = "requirements"
"""What the pipeline's sink requires of a table."""
JUMP = "jump"
"""An edit of the offsets that waits to be followed."""
_PLANNER_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
"""The main module of the process that Spark starts for each streaming query, with one reader and nothing else in it."""
_PARTITION_ROWS = (10_000, 50_000)
_PARTITION_BYTES = 32 << 20
_OWN = {
    "connector",
    "name",
    "table",
    "shape",
    SECRET,
    STAGE,
    JUMP,
    PREFIX,
    REQUIREMENTS,
    "parallelism",
    "path",
    "startposition",
    "home",
    "reader",
    "endposition",
}
_STREAM = {s.name.lower(): s.name for s in definitions.STREAM}


class TidelogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        shape = shape_of(self.options)
        if shape == "typed" and self.options.get("event.processing.failure.handling.mode") == "dead-letter":
            raise ConfigError(
                "The typed columns of one table have no place for dead letters.",
                hint="Leave out the option table (the envelope has a topic for them), or use a Pipeline.",
            )
        if shape == "envelope":
            definitions.connector_of(definition_of(self.options))  # so that `load` refuses a misspelt option
            return from_arrow_schema(ENVELOPE)
        if shape == "staged":
            return from_arrow_schema(work.STAGED)
        definition, table = definition_of(self.options), self.options["table"]
        return from_arrow_schema(_typed_schema(definition, table, _prefix(self.options)))

    def streamReader(self, schema: StructType) -> StreamReader:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == _PLANNER_PROCESS:
            skip_pandas()
        return StreamReader(dict(self.options), schema)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(dict(self.options), schema)


class Partition(InputPartition):
    def __init__(self, task: work.Task) -> None:
        super().__init__(task)
        self.task = task


class _Planning:
    """What both readers share: options, the journal's view, and the way from a plan to partitions."""

    _silent = False

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._reading: Reading | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the options only without secrets; a chunk to be read brings along what it needs."""
        return {"_options": {"shape": shape_of(self._options)}, "_schema": self._schema, "_reading": None}

    @property
    def reading(self) -> Reading:
        if self._reading is None:
            definition = definition_of(self._options)
            home = Home(Path(self._options["home"])) if "home" in self._options else Home.open(definition.name)
            reader = self._options.get("reader", "main")
            if not self._silent:
                log_into(home.messages)
            parallelism = int(self._options.get("parallelism", "2"))
            jump = Jump.from_json(self._options.get(JUMP, ""))
            self._reading = Reading(
                definition,
                home,
                reader=reader,
                silent=self._silent,
                parallelism=parallelism,
                jump=jump,
                requirements=self._requirements,
            )
        return self._reading

    @property
    def _requirements(self) -> Requirements | None:
        text = self._options.get(REQUIREMENTS, "")
        return Requirements.from_json(text) if text else None

    def _partitions(self, plan: Plan) -> list[Partition]:
        shape = shape_of(self._options)
        slices = _of_table(plan.slices, self._options["table"]) if shape == "typed" else list(plan.slices)
        slices.sort(key=lambda s: s.table.id if s.table is not None else 0)
        rows = sum(s.last - s.first for s in slices)
        least, most = _PARTITION_ROWS
        share = min(most, max(least, rows // int(self._options.get("parallelism", "2")) + 1))
        bundles = work.bundle(slices, share, _PARTITION_BYTES)
        task = work.Task(
            sequence=0,
            journal=plan.journal,
            connector=plan.connector,
            selection=plan.selection.to_json(),
            shape=shape,
            slices=(),
            stage=self._options.get(STAGE, ""),
            snapshotting=plan.snapshotting,
            prefix=_prefix(self._options),
        )
        tasks = [replace(task, slices=bundle) for bundle in bundles]
        if plan.commits and shape == "envelope":
            tasks.append(replace(task, commits=plan.commits))
        # The log comes first: a batch waits for all, but a change should not wait behind a chunk.
        tasks += [replace(task, emit=emit) for emit in self._emits(plan)]
        tasks += [replace(task, read=read) for read in self._reads(plan)]
        return [Partition(replace(t, sequence=i)) for i, t in enumerate(tasks)]

    def _reads(self, plan: Plan) -> list[chunks.Read]:
        return [self._read_of(plan, entry, chunk) for entry, chunk in plan.snapshot.planned if entry.oid in plan.tables]

    def _emits(self, plan: Plan) -> list[chunks.Emit]:
        stage, found = Stage(plan.journal, plan.reader), []
        for emission, window in zip(plan.snapshot.emitting, plan.windows, strict=True):
            entry, chunk = emission.entry, emission.chunk
            note = stage.note(entry.name(chunk), chunk.attempt)
            table = plan.tables.get(entry.oid)
            if table is None or (chunk.keys and not can_be_swept(table, plan.selection)):
                continue  # it left the list, or has another key in the target since the snapshot was asked for
            if self._concerns(entry.table, chunk):
                read, word = self._read_of(plan, entry, chunk), "true" if entry.kind == INITIAL else "incremental"
                text = note.to_json() if note is not None and plan.is_staged else ""
                found.append(chunks.Emit(read, text, window, word, emission.last))
        return found

    def _concerns(self, table: str, chunk: Chunk) -> bool:
        """A plain query has no target to be swept."""
        shape = shape_of(self._options)
        return shape == "staged" or (not chunk.keys and (shape == "envelope" or self._options["table"] == table))

    def _read_of(self, plan: Plan, entry: Entry, chunk: Chunk) -> chunks.Read:
        definition = definition_of(self._options)
        return chunks.Read(
            chunk=entry.name(chunk),
            table=plan.tables[entry.oid].to_json(),
            key=entry.key,
            low=chunk.low,
            high=chunk.high,
            condition=entry.condition,
            asked_by=entry.id,
            reader=plan.reader,
            connector=plan.connector,
            pipeline=definition.name,
            options=definition.source_options,
            export=entry.export,
            sweep=chunk.keys,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor."""
        assert isinstance(partition, Partition)
        skip_pandas_in_worker()
        schema = to_arrow_schema(self._schema, timezone="UTC") if partition.task.shape == "typed" else None
        return work.run(partition.task, schema)


class StreamReader(_Planning, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, Any]:
        return self.reading.initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: object = None) -> dict[str, Any]:
        limits = definition_of(self._options).limits
        events = getattr(limit, "max_rows", None) or limits.events
        size = getattr(limit, "max_bytes", None) or limits.bytes
        latest = self.reading.latest(Offset.from_json(start), events, size).to_json()
        if latest == start:
            self.reading.finish()
        return latest

    def prepareForTriggerAvailableNow(self) -> None:
        self.reading.drain()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Appears as `latestOffset` in the query's progress: the metrics of the capture."""
        return self.reading.metrics()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Partition]:
        return self._partitions(self.reading.plan(Offset.from_json(start), Offset.from_json(end)))

    def commit(self, end: dict[str, Any]) -> None:
        self.reading.acknowledge(Offset.from_json(end))

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.close()


class BatchReader(_Planning, DataSourceReader):
    """What the log holds now, from the slot's position or a given one, without acknowledging anything."""

    _silent = True

    def partitions(self) -> Sequence[Partition]:
        reading = self.reading
        try:
            start = reading.initial()
            if "startposition" in self._options:
                start = replace(start, position=int(self._options["startposition"]))
            reading.drain()
            end = start
            while (further := reading.latest(end, None, None)) != end:
                end = further
            if "endposition" in self._options:
                end = replace(end, position=min(end.position, int(self._options["endposition"])))
            return self._partitions(reading.plan(start, end))
        finally:
            reading.close()


def shape_of(options: Mapping[str, str]) -> str:
    return options.get("shape") or ("typed" if "table" in options else "envelope")


def definition_of(options: Mapping[str, str]) -> Definition:
    """From one option (as the pipeline gives it) or from plain options (as in a notebook)."""
    if SECRET in options:
        return Definition(**json.loads(options[SECRET]))  # resolved already: a password may well contain ${…}
    _refuse_salts(options)
    stream = {_STREAM[k]: v for k, v in options.items() if k in _STREAM}
    connector = options.get("connector", "postgres")
    own = own_names(plugin(connector))
    ours = {k: v for k, v in options.items() if k.startswith("journal.") and k not in own}
    source = {k: v for k, v in options.items() if k not in _OWN | _STREAM.keys() | ours.keys()}
    name = options.get("name") or source.get("slot.name", "tidelog")
    return definitions.from_mapping(
        {
            "name": name,
            "source": {"connector": connector, **source},
            "sink": {"type": "console"},
            "stream": stream,
            "journal": {k.removeprefix("journal."): v for k, v in ours.items()},
        }
    )


def _refuse_salts(options: Mapping[str, str]) -> None:
    if any(name.startswith("column.mask.hash") for name in options):
        raise ConfigError(
            "Spark writes the names of options in lower case, which would change the salt of column.mask.hash.",
            hint="Use a Pipeline, or YAML: they keep names as they are.",
        )


def options_of(definition: Definition) -> dict[str, str]:
    """A definition as options of the source."""
    raw = {k: v for k, v in asdict(definition).items() if v}
    return {SECRET: json.dumps({**raw, "sink": {"type": "console"}, "store": "", "spark": {}})}


def _prefix(options: Mapping[str, str]) -> str:
    setting = Setting(PREFIX, "What the names of metadata columns begin with.", metadata.PREFIX, metadata.prefix)
    found: str = parse([setting], {PREFIX: options[PREFIX]} if PREFIX in options else {}, subject="The query")[PREFIX]
    return found


def _typed_schema(definition: Definition, name: str, prefix: str) -> pa.Schema:
    connector = definitions.connector_of(definition)
    try:
        table, selection, names = _find(connector.tables(), name), connector.selection(), metadata.visible(prefix)
        if taken := metadata.clash([c.name for c in selection.columns_of(table)], list(names.values())):
            raise ConfigError(
                f"{table.qualified} has a column {taken}, and a metadata column would have the same name.",
                hint="Set the option metadata.prefix, to cdc_ for example, or leave the column out with "
                "column.exclude.list.",
            )
        return metadata.shown_schema(connector.decoder().schema(table, selection), names)
    finally:
        connector.close()


def _find(tables: Sequence[Table], name: str) -> Table:
    for table in tables:
        if table.qualified == name:
            return table
    near = nearest(name, [t.qualified for t in tables])
    raise ConfigError(
        f"The table {name!r} is not captured.",
        hint=f"Did you mean {near!r}?" if near else "Name it as schema.table, and check table.include.list.",
    )


def _of_table(slices: Sequence[Slice], name: str) -> list[Slice]:
    return [s for s in slices if s.table is not None and s.table.qualified == name]
