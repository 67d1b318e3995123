"""A source of a few rows without a database: what a session runs once to get warm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelog import connectors
from tidelog.core.lazy_pandas import skip_pandas_in_worker
from tidelog.spark import work

_PARTITIONS = 4


class Warmup(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog-warmup"

    def schema(self) -> StructType:
        return from_arrow_schema(work.STAGED)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return WarmupReader(self.options["connector"])


class WarmupReader(DataSourceStreamReader):
    def __init__(self, connector: str) -> None:
        self._connector = connector

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        return [InputPartition(i) for i in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        load(self._connector)
        row = {"sequence": partition.value, "table": "", "selection": "", "rows": 0}
        yield pa.RecordBatch.from_pylist([row] * 100, schema=work.STAGED)


def load(connector: str) -> None:
    """What an executor loads with its first real partition."""
    skip_pandas_in_worker()
    import_module("tidelog.spark.source")
    connectors.decoder(connector)
    connectors.warm(connector)
