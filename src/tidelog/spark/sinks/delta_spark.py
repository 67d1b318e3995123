"""Delta by Spark: the engine where Spark has a cluster and was started with Delta's jars.

Rows reach Spark as Parquet files under `stage`, a directory that the executors read too. Each table has a session of
its own, because the batch that a MERGE belongs to is a setting of the session (`spark.databricks.delta.write.txn…`);
Delta itself then refuses to do a batch twice.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError

from tidelog.core.evolve import Step
from tidelog.errors import ConfigError
from tidelog.spark.session import is_local
from tidelog.spark.sinks.delta_jars import require_available
from tidelog.spark.sinks.spark_columns import (
    arrow_schema,
    column_expression,
    empty_frame,
    has_local_timestamps,
    needs_mapping,
    quote,
    spark_type,
    sql_text,
    with_answers,
)
from tidelog.spark.sinks.storage_errors import explain
from tidelog.spark.sinks.target import DELETE, Answers, Known, Mark, Merge, Target, portions

TXN = "spark.databricks.delta.write.txn"
_GROUP = 1_000_000, 128 << 20
"""Rows and bytes that are written to a stage at a time."""


def absolute(path: str) -> str:
    """A relative path means a folder below ours: Spark takes `delta.`./lake`` for the name of a table, and its JVM may
    have been started elsewhere."""
    return path if re.match(r"/|\w[\w+.\-]*:", path) else str(Path(path).resolve())


@dataclass
class SparkTarget:
    uri: str
    spark: Any
    stage: str
    every: int = 50
    _tidied: int | None = field(default=None, init=False)

    def schema(self) -> pa.Schema | None:
        snapshot = self._snapshot()
        if snapshot.version() < 0:
            return None
        return arrow_schema(snapshot.schema().json())

    def properties(self) -> Mapping[str, str]:
        snapshot = self._snapshot()
        if snapshot.version() < 0:
            return {}
        pairs = snapshot.metadata().configuration().iterator()
        found = {}
        while pairs.hasNext():
            pair = pairs.next()
            found[str(pair._1())] = str(pair._2())
        return found

    def exists(self) -> bool:
        return self._is_there(f"{self.uri}/_delta_log")

    def identity(self) -> str:
        return str(self._snapshot().metadata().id())

    def version(self) -> int:
        return int(self._snapshot().version())

    def holds(self, version: int) -> bool:
        from pyspark.errors import AnalysisException

        if self._snapshot().version() < 0:
            return False
        try:
            files = self._load(self.uri, version).inputFiles()
        except AnalysisException:
            return False
        return all(map(self._is_there, files))

    def _is_there(self, file: str) -> bool:
        path = self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(file)  # a name, with nothing escaped in it
        hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
        try:
            return bool(path.getFileSystem(hadoop).exists(path))
        except Py4JJavaError as exc:
            raise explain(self.uri, exc) from exc

    def applied(self, app: str) -> int:
        found = self._snapshot().transactions().get(app)
        return int(found.get()) if found.isDefined() else -1

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        known = {k: v for k, v in properties.items() if k.startswith("delta.")}
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(schema.names) else {}
        empty_frame(self.spark, schema).write.format("delta").options(**known, **mapping).mode("ignore").save(self.uri)
        if rest := {k: v for k, v in properties.items() if k not in known}:
            self.describe(rest)

    def describe(self, properties: Mapping[str, str]) -> None:
        pairs = ", ".join(f"{sql_text(k)} = {sql_text(v)}" for k, v in properties.items())
        self.spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")

    def extend(self, fields: Sequence[pa.Field]) -> None:
        whole = pa.schema([*self._shape(), *fields])
        self._admit(whole)
        empty_frame(self.spark, whole).write.format("delta").mode("append").option("mergeSchema", "true").save(self.uri)

    def rewrite(self, steps: Sequence[Step], answers: Answers | None = None) -> None:
        self._admit(pa.schema([s.field for s in steps]))
        kinds = self._shape()
        rows = self._load().select(*(column_expression(s, kinds) for s in steps))
        if answers is None:
            self._overwrite(rows, None, overwriteSchema="true")
            return
        with self._staged(answers.portions) as staged:
            self._overwrite(with_answers(rows, staged, answers, steps), None, overwriteSchema="true")

    def become(self, origin: Target, version: int, properties: Mapping[str, str]) -> None:
        source = self._load(origin.uri, version)
        shape = arrow_schema(source.schema.json())
        if self.schema() is None:
            self.create(shape, {k: v for k, v in properties.items() if k.startswith("delta.")})
        self._admit(shape)
        self._overwrite(source, None, overwriteSchema="true")
        self.describe(properties)

    def merge(self, merge: Merge, mark: Mark | None) -> None:
        with self._staged([merge.rows]) as rows, self._marked(mark):
            view = f"tidelog_{uuid.uuid4().hex}"
            rows.createOrReplaceTempView(view)
            try:
                self.spark.sql(self._statement(merge, view)).collect()
            finally:
                self.spark.catalog.dropTempView(view)

    def replace(self, rows: pa.Table, mark: Mark | None) -> None:
        with self._staged([rows]) as staged:
            self._overwrite(self._padded(staged), mark)

    def append(self, rows: pa.Table, mark: Mark | None) -> None:
        with self._staged([rows]) as staged:
            self._padded(staged).write.format("delta").mode("append").options(**_options(mark)).save(self.uri)

    def lookup(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        names = [*keys.column_names, *(c for c in columns if c not in keys.column_names)]
        with self._staged([keys]) as staged:
            found = self._load().join(staged, keys.column_names, "left_semi")
            return self._table(found, names)

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._table(self._load(), columns)

    def strangers(self, key: Sequence[str], known: Known, dead: str | None) -> pa.Table:
        names, kinds, rows = list(key), self._shape(key), self._load()
        if dead:
            rows = rows.where(f"NOT coalesce({quote(dead)}, false)")
        with self._staged(portion.select(names).cast(kinds) for portion in known()) as staged:
            return self._table(rows.join(staged, names, "left_anti"), names)

    def tidy(self) -> None:
        version = self.version()
        if self._tidied is None:
            self._tidied = version // max(self.every, 1) * self.every
        if not self.every or version - self._tidied < self.every:
            return
        self.spark.sql(f"OPTIMIZE {self._name}").collect()
        self.spark.sql(f"VACUUM {self._name}").collect()  # the table's properties say what it may remove
        self._tidied = self.version()

    def _statement(self, merge: Merge, view: str) -> str:
        gone = f"s.{quote(DELETE)}"
        lines = [f"MERGE INTO {self._name} AS t USING {view} AS s ON {merge.condition(quote)}"]
        if merge.deletes:
            lines.append(f"WHEN MATCHED AND {gone} THEN DELETE")
        if updates := merge.updates(quote):
            lines.append("WHEN MATCHED THEN UPDATE SET " + ", ".join(f"t.{c} = {v}" for c, v in updates.items()))
        if merge.inserts:
            new = merge.insertions(quote)
            only = f" AND NOT {gone}" if merge.deletes else ""
            lines.append(f"WHEN NOT MATCHED{only} THEN INSERT ({', '.join(new)}) VALUES ({', '.join(new.values())})")
        if merge.others:
            sets = ", ".join(f"t.{quote(c)} = {v}" for c, v in merge.others.items())
            lines.append(f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {sets}")
        return "\n".join(lines)

    @property
    def _name(self) -> str:
        return f"delta.{quote(self.uri)}"

    def _snapshot(self) -> Any:
        jvm = self.spark.sparkContext._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.uri)
        none = jvm.scala.Option.empty()
        return log.update(False, none, none)

    def _shape(self, columns: Sequence[str] | None = None) -> pa.Schema:
        schema = self.schema()
        assert schema is not None, self.uri
        return schema if columns is None else pa.schema([schema.field(c) for c in columns])

    def _load(self, uri: str = "", version: int | None = None) -> Any:
        options = {} if version is None else {"versionAsOf": str(version)}
        return self.spark.read.format("delta").options(**options).load(uri or self.uri)

    def _table(self, frame: Any, columns: Sequence[str]) -> pa.Table:
        shape = self._shape(columns)
        found = frame.select(*(frame[quote(c)] for c in columns)).toArrow()
        return pa.table([found.column(i).cast(f.type) for i, f in enumerate(shape)], schema=shape)

    def _padded(self, frame: Any) -> Any:
        from pyspark.sql import functions as F

        have = set(frame.columns)
        kinds = {f.name: spark_type(f.type) for f in self._shape()}
        return frame.select(
            *((F.col(quote(n)) if n in have else F.lit(None)).cast(k).alias(n) for n, k in kinds.items())
        )

    def _overwrite(self, frame: Any, mark: Mark | None, **options: str) -> None:
        frame.write.format("delta").mode("overwrite").options(**options, **_options(mark)).save(self.uri)

    def _admit(self, schema: pa.Schema) -> None:
        """Parquet as Delta writes it has no room for some characters, unless columns are mapped to other names; and
        a table that had no moments without a zone when it was made takes them only if it is told to."""
        if has_local_timestamps(schema) and not has_local_timestamps(self._shape()):
            self.describe({"delta.feature.timestampNtz": "supported"})
        if needs_mapping(schema.names) and "delta.columnMapping.mode" not in self.properties():
            self.describe(
                {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
            )

    @contextmanager
    def _staged(self, parts: Iterable[pa.Table]) -> Iterator[Any]:
        place, root = fs.FileSystem.from_uri(self.stage) if "://" in self.stage else (fs.LocalFileSystem(), self.stage)
        place.create_dir(root, recursive=True)
        name = f"{uuid.uuid4().hex}.parquet"
        try:
            _write(portions(parts, *_GROUP), f"{root}/{name}", place)
            yield self.spark.read.parquet(f"{self.stage.rstrip('/')}/{name}")
        finally:
            with suppress(FileNotFoundError):  # the parts may have failed before the first was written
                place.delete_file(f"{root}/{name}")

    @contextmanager
    def _marked(self, mark: Mark | None) -> Iterator[None]:
        if mark is None:
            yield
            return
        self.spark.conf.set(f"{TXN}AppId", mark.app)
        self.spark.conf.set(f"{TXN}Version", str(mark.version))
        try:
            yield
        finally:
            self.spark.conf.unset(f"{TXN}AppId")
            self.spark.conf.unset(f"{TXN}Version")


def _write(parts: Iterator[pa.Table], path: str, place: fs.FileSystem) -> None:
    first = next(parts)
    with pq.ParquetWriter(path, first.schema, filesystem=place) as writer:
        for part in chain([first], parts):
            writer.write_table(part)


@dataclass(frozen=True)
class SparkEngine:
    spark: Any
    stage: str = ""
    every: int = 50

    def __post_init__(self) -> None:
        require_available(self.spark)

    def target(self, uri: str) -> SparkTarget:
        session = self.spark.newSession()
        for name in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
            if (value := self.spark.conf.get(name, None)) is not None:
                session.conf.set(name, value)
        # Spark's own form of moments, INT96, is misread by others before 1678 and after 2262.
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        session.conf.set("spark.sql.session.timeZone", "UTC")
        return SparkTarget(absolute(uri), session, self._stage(), self.every)

    def _stage(self) -> str:
        if self.stage:
            return absolute(self.stage)
        if not is_local(self.spark.sparkContext.master):
            raise ConfigError(
                "The engine `spark` needs a directory to hand rows to the executors.",
                hint="Set `stage` to a path that all machines of the cluster read and write.",
            )
        return tempfile.gettempdir() + "/tidelog-stage"


def _options(mark: Mark | None) -> dict[str, str]:
    return {} if mark is None else {"txnAppId": mark.app, "txnVersion": str(mark.version)}
