"""Columns of Spark: their types beside those of Arrow, and values as expressions.

Spark's own casts differ from what PostgreSQL writes for days and decimals, and Python has no days after the year 9999.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelog.core.evolve import Step, plain, widens
from tidelog.spark.sinks.target import Answers

_NAMES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TYPES = {kind: name for name, kind in _NAMES.items()}


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def needs_mapping(names: Sequence[str]) -> bool:
    return any(re.search(r"[ ,;{}()\n\t=]", name) for name in names)


def has_local_timestamps(schema: pa.Schema) -> bool:
    kinds = (f.type.value_type if pa.types.is_list(f.type) else f.type for f in schema)
    return any(pa.types.is_timestamp(kind) and not kind.tz for kind in kinds)


def arrow_schema(text: str) -> pa.Schema:
    """From the schema that Spark writes as JSON; fields keep their own metadata."""
    fields: list[dict[str, Any]] = json.loads(text)["fields"]
    return pa.schema([_arrow_field(f) for f in fields])


def _arrow_field(raw: Mapping[str, Any]) -> pa.Field:
    own = {k: str(v) for k, v in raw["metadata"].items() if k.startswith("tidelog.")}
    return pa.field(raw["name"], _arrow_type(raw["type"]), metadata=own or None)


def _arrow_type(raw: Any) -> pa.DataType:
    if isinstance(raw, str) and raw.startswith("decimal"):
        digits = re.findall(r"\d+", raw)
        return pa.decimal128(int(digits[0]), int(digits[1]))
    return _NAMES[raw] if isinstance(raw, str) else pa.list_(_arrow_type(raw["elementType"]))


def spark_type(kind: pa.DataType) -> Any:
    from pyspark.sql import types as T

    kind = plain(kind)
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    return T.StructType.fromJson({"fields": [{"name": "x", "type": _TYPES[kind], "nullable": True, "metadata": {}}]})[
        0
    ].dataType


def empty_frame(spark: Any, schema: pa.Schema) -> Any:
    """No rows, made inside the JVM: an empty createDataFrame would start Python workers."""
    from pyspark.sql import functions as F

    columns = [F.lit(None).cast(spark_type(f.type)).alias(f.name, metadata=_metadata(f)) for f in schema]
    return spark.range(0).select(*columns)


def _metadata(field: pa.Field) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}


def column_expression(step: Step, present: pa.Schema) -> Any:
    from pyspark.sql import functions as F

    kind = spark_type(step.field.type)
    if step.origin is not None and _fits(present.field(step.origin).type, step.field.type):
        value = F.col(quote(step.origin))
        value = (
            _as_source_text(value, present.field(step.origin).type) if pa.types.is_string(step.field.type) else value
        )
    else:
        value = _literal(step.fill)
    return value.cast(kind).alias(step.field.name, metadata=_metadata(step.field))


def with_answers(rows: Any, staged: Any, answers: Answers, steps: Sequence[Step]) -> Any:
    """The rows with the answers in them; a row without an answer keeps its values."""
    from pyspark.sql import functions as F

    # Columns of the same name are told apart by what they are called on their way: a for the answers.
    renamed = [F.col(quote(name)).alias(f"a{i}") for i, name in enumerate((*answers.key, *answers.columns))]
    known = staged.select(*renamed, F.lit(True).alias("a")).dropDuplicates([f"a{i}" for i in range(len(answers.key))])
    own = rows.select(*(F.col(quote(s.field.name)).alias(f"t{i}") for i, s in enumerate(steps)))
    places = {s.field.name: f"t{i}" for i, s in enumerate(steps)}
    same = [F.col(places[name]).eqNullSafe(F.col(f"a{i}")) for i, name in enumerate(answers.key)]
    joined = own.join(known, same, "left")
    told = {name: f"a{len(answers.key) + i}" for i, name in enumerate(answers.columns)}
    return joined.select(*(_answer_or_own(s.field, places, told) for s in steps))


def _answer_or_own(field: pa.Field, places: Mapping[str, str], told: Mapping[str, str]) -> Any:
    from pyspark.sql import functions as F

    value = F.col(places[field.name])
    if field.name in told:
        value = F.when(F.col("a"), F.col(told[field.name]).cast(spark_type(field.type))).otherwise(value)
    return value.alias(field.name, metadata=_metadata(field))


def _fits(old: pa.DataType, new: pa.DataType) -> bool:
    return bool(plain(old) == plain(new) or widens(plain(old), plain(new)) or pa.types.is_string(new))


def _as_source_text(value: Any, kind: pa.DataType) -> Any:
    """As PostgreSQL writes it where Spark's cast does not: days, and decimals, whose cast depends on a setting."""
    from pyspark.sql import functions as F

    if pa.types.is_decimal(kind):
        return F.replace(F.format_number(value, kind.scale), F.lit(","))
    return _day(value) if pa.types.is_date(kind) else value


def _day(day: Any) -> Any:
    """Spark has no infinite days, and writes years before Christ and after 9999 with a sign."""
    from pyspark.sql import functions as F

    year, number = F.year(day), F.unix_date(day)
    era = F.when(year > 0, "").otherwise(" BC")
    counted = F.when(year > 0, year).otherwise(1 - year)
    text = F.format_string("%04d-%02d-%02d%s", counted, F.month(day), F.dayofmonth(day), era)
    endless = F.when(number == 2**31 - 1, "infinity").when(number == -(2**31), "-infinity")
    return endless.when(day.isNotNull(), text)


def _literal(value: pa.Scalar | None) -> Any:
    """Days and moments by their number: Python knows none after the year 9999."""
    from pyspark.sql import functions as F

    if value is None or not value.is_valid:
        return F.lit(None)
    kind = value.type
    if pa.types.is_list(kind):
        return F.array(*(_literal(v) for v in value))
    if pa.types.is_date32(kind):
        return F.date_from_unix_date(F.lit(value.cast(pa.int32()).as_py()))
    if pa.types.is_timestamp(kind):
        moment = F.timestamp_micros(F.lit(value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).as_py()))
        return moment if kind.tz else moment.cast("timestamp_ntz")  # the same number: the session is in UTC
    found = value.as_py()
    return F.lit(bytearray(found) if isinstance(found, bytes) else found)


def sql_text(value: str) -> str:
    """As SQL: Spark reads backslashes in its own way."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
