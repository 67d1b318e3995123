"""A pipeline's definition: a name, a source, a sink, and how the stream and the journal behave.

YAML and Python say the same thing, so both end in `from_mapping`. All values are texts, exactly as a user wrote
them (`true`, `5432`, `00123`); the rooms they belong to give them types. Nothing is ignored: an unknown or repeated
name is an error. A `Definition` never shows a secret when it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tidelog import connectors
from tidelog.contracts import Connector
from tidelog.core.settings import REFERENCE, Setting, count, duration, parse, resolve, size, unknown
from tidelog.errors import ConfigError

SECTIONS = {
    "name": "Name of the pipeline; its state lives under this name.",
    "source": "`connector` and its settings.",
    "sink": "`type` and its settings.",
    "stream": "Limits and rhythm of the stream.",
    "journal": "The durable queue between the database and Spark.",
    "spark": "Which Spark runs the pipeline, and with which settings.",
    "offset.storage": "Where offsets and their history rest: a file, or postgresql://… for a team.",
}

STREAM = (
    Setting("maxEventsPerTrigger", "Events of one micro-batch at most; 0 for no limit.", "250000", count),
    Setting("maxBytesPerTrigger", "Bytes of one micro-batch at most, such as 256mb; 0 for no limit.", "0", size),
    Setting(
        "trigger",
        "How often a micro-batch starts, such as 500ms or 10s; 0s for as often as possible.",
        "0s",
        duration,
    ),
    Setting(
        "capture",
        "inline: the query reads the log itself; apart: `tidelog capture` does, maybe for several queries.",
        "inline",
        choices=("inline", "apart"),
    ),
    Setting(
        "start",
        "What a start without a checkpoint does where an earlier one has left a slot, a journal, offsets or rows in "
        "the target: stop and say so (safe), or read everything again (fresh; the target loses what the source does "
        "not have).",
        "safe",
        choices=("safe", "fresh"),
    ),
)

JOURNAL = (
    Setting(
        "path",
        "Folder or URI (s3://…) of the journal: one per pipeline, or per `tidelog capture` and its queries. Default: "
        "in the pipeline's state folder.",
        "",
    ),
    Setting("max.bytes", "Bytes on disk at most; capture waits when they are reached.", "4gb", size),
    Setting("memory.bytes", "Bytes that capture holds in memory at most.", "64mb", size),
    Setting(
        "mode",
        "After a restart, keep what was captured (persistent) or read it from the database again (transient).",
        "persistent",
        choices=("persistent", "transient"),
    ),
    Setting("retention.bytes", "Bytes of delivered changes to keep for a rewind; 0 for none.", "0", size),
    Setting("compression", "Compression of the segments; for object stores.", "none", choices=("none", "lz4", "zstd")),
)

SPARK = (
    Setting(
        "master",
        "Where Spark runs, such as local[4], spark://host:7077 or yarn. Default: what spark-submit, "
        "spark-defaults.conf or MASTER say, else all cores of this machine.",
        "",
    ),
    Setting("packages", "Maven coordinates of packages for Spark, separated by commas (spark.jars.packages).", ""),
    Setting("conf", "Any setting of Spark, such as conf.spark.executor.memory.", pattern=r"conf\.(spark\..+)"),
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET = re.compile(
    r"passw|pwd|secret|token|credential|jaas|user[._]info|[._]sas|(account|access|private|customer|shared|api|sas)[._]?key",
    re.I,
)
_SALT = re.compile(r"(\.with\.salt\.).+")
_USERINFO = re.compile(r"://[^@\s]+@")
_LOGIN = re.compile(r"(:)[^:@/\s]+/[^@\s]+@")
"""`jdbc:oracle:thin:scott/tiger@//host`"""
_PARAMETER = re.compile(r"(?i)([?&;][^=&;]*(?:passw|pwd|secret|token|sig|key)[^=&;]*=)[^&;\s]+")
HIDDEN = "****"


@dataclass(frozen=True)
class Limits:
    """How the stream runs; None is no limit."""

    events: int | None
    bytes: int | None
    trigger_s: float
    apart: bool = False
    fresh: bool = False
    """Whether a start without a checkpoint may read everything again."""


@dataclass(frozen=True)
class Storage:
    """How the journal is kept."""

    path: str
    bytes_max: int
    memory_bytes: int
    persistent: bool
    retention_bytes: int
    compression: str | None


@dataclass(frozen=True, repr=False)
class Definition:
    name: str
    source: Mapping[str, str]
    """The connector's settings, and `connector` itself."""
    sink: Mapping[str, str]
    """The sink's settings, and `type` itself."""
    stream: Mapping[str, str] = field(default_factory=dict)
    journal: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    """Where offsets and their history rest; empty for the default."""
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def connector(self) -> str:
        return self.source["connector"]

    @property
    def source_options(self) -> dict[str, str]:
        return {name: text for name, text in self.source.items() if name != "connector"}

    @property
    def sink_options(self) -> dict[str, str]:
        return {name: text for name, text in self.sink.items() if name != "type"}

    @cached_property
    def limits(self) -> Limits:
        values = parse(STREAM, self.stream, subject="The section stream")
        events, size = values["maxEventsPerTrigger"], values["maxBytesPerTrigger"]
        return Limits(
            events or None,
            size or None,
            values["trigger"],
            apart=values["capture"] == "apart",
            fresh=values["start"] == "fresh",
        )

    @cached_property
    def storage(self) -> Storage:
        values = parse(JOURNAL, self.journal, subject="The section journal")
        return Storage(
            path=values["path"],
            bytes_max=values["max.bytes"],
            memory_bytes=values["memory.bytes"],
            persistent=values["mode"] == "persistent",
            retention_bytes=values["retention.bytes"],
            compression=None if values["compression"] == "none" else values["compression"],
        )

    @cached_property
    def spark_conf(self) -> dict[str, str]:
        return spark_conf_of(self.spark)

    def redacted(self) -> dict[str, Any]:
        """The definition for people's eyes: secrets are hidden."""
        sections = {"source": self.source, "sink": self.sink, "stream": self.stream, "journal": self.journal}
        sections |= {"spark": self.spark} if self.spark else {}
        store = {"offset.storage": self.store} if self.store else {}
        return {"name": self.name, **{title: redact(section) for title, section in sections.items()}, **redact(store)}

    def __repr__(self) -> str:
        return f"Definition({self.redacted()})"


def spark_conf_of(section: Mapping[str, str]) -> dict[str, str]:
    """The section spark, by Spark's own names of its settings."""
    values = parse(SPARK, section, subject="The section spark")
    named = {"spark.master": values["master"], "spark.jars.packages": values["packages"]}
    free = {name.removeprefix("conf."): text for name, text in values["conf"].items()}
    return {**free, **{name: text for name, text in named.items() if text}}


def connector_of(definition: Definition) -> Connector:
    """The definition's connector; nothing is connected yet."""
    return connectors.create(definition.connector, definition.source_options, pipeline=definition.name)


def load(path: str | Path) -> Definition:
    """The definition in a YAML file."""
    return from_mapping(written(path), where=str(path))


def written(path: str | Path) -> Mapping[str, Any]:
    """What a YAML file says, as it stands there: `${…}` is not resolved."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigError(f"The file {path} cannot be read ({reason}).", hint="Check the path.") from exc
    return _yaml(text, str(path))


def from_mapping(raw: Mapping[str, Any], *, where: str = "The definition") -> Definition:
    """The definition as a mapping of mappings; `${…}` is resolved here."""
    for key in raw:
        if key not in SECTIONS:
            raise unknown(str(key), list(SECTIONS), subject=where)
    definition = Definition(
        name=_name(raw, where),
        source=_section(raw, "source", where, required="connector", example="postgres"),
        sink=_section(raw, "sink", where, required="type", example="delta"),
        stream=_section(raw, "stream", where),
        journal=_section(raw, "journal", where),
        spark=_section(raw, "spark", where),
        store=resolve(_text(raw.get("offset.storage"), "offset.storage")),
    )
    _ = (
        definition.limits,
        definition.storage,
        definition.spark_conf,
    )  # typed now, so that a mistake is told before anything starts
    return definition


def _name(raw: Mapping[str, Any], where: str) -> str:
    if not raw.get("name"):
        raise ConfigError(f"{where} has no name.", hint="Add a line such as: name: shop")
    name = resolve(_text(raw["name"], "name"))
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The name {name!r} cannot be the name of a folder.",
            hint="Use letters, digits, '.', '_' and '-', starting with a letter or digit, up to 64.",
        )
    return name


def _section(
    raw: Mapping[str, Any], title: str, where: str, *, required: str = "", example: str = ""
) -> dict[str, str]:
    section = raw.get(title) or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"{title} must hold settings, not {section!r}.", hint=f"Write {title}: {{name: value, …}}")
    if required and not section:
        raise ConfigError(f"{where} has no {title}.", hint=f"Add one such as {title}: {{{required}: {example}, …}}")
    options = dict(_flat(section, title))
    if required and not options.get(required):
        raise ConfigError(f"The section {title} says no {required}.", hint=f"Add {required}: {example}")
    return options


def _flat(section: Mapping[str, Any], title: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested names are joined by dots, so `database: {port: 5432}` is `database.port`."""
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, title, f"{name}.")
        else:
            yield name, resolve(_text(value, f"{title}: {name}"))


def _text(value: object, name: str) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() | int() | float() | Path():
            return str(value)
        case list() | tuple():
            return ",".join(_text(part, name) for part in value)
        case _:
            raise ConfigError(f"{name} is {value!r}, which is not a text.", hint="Write a text or a number.")


class _Loader(yaml.BaseLoader):
    """Every scalar stays the text it was written as; a repeated name is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is written twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml(text: str, where: str) -> Mapping[str, Any]:
    references: list[str] = []

    def aside(found: re.Match[str]) -> str:
        references.append(found[0])
        return f"\ue000{len(references) - 1}\ue001"

    # YAML would take the brace of ${NAME} in {a: ${NAME}} for the start of a mapping.
    safe = REFERENCE.sub(aside, text)
    try:
        raw = yaml.load(safe, _Loader)
    except yaml.YAMLError as exc:
        raise ConfigError(f"{where} is not YAML: {_complaint(exc)}.", hint="Check indentation and quotes.") from exc
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} holds no definition.", hint="It needs name, source and sink.")
    found: Mapping[str, Any] = _restored(raw, references)
    return found


def _restored(value: Any, references: list[str]) -> Any:
    match value:
        case str():
            return re.sub("\ue000(\\d+)\ue001", lambda found: references[int(found[1])], value)
        case dict():
            return {_restored(k, references): _restored(v, references) for k, v in value.items()}
        case list():
            return [_restored(v, references) for v in value]
        case _:
            return value


def _complaint(exc: yaml.YAMLError) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or "it cannot be read"
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def redact(section: Mapping[str, str]) -> dict[str, str]:
    """Settings for people's eyes: secrets are hidden."""
    return {_SALT.sub(rf"\1{HIDDEN}", name): _shown(name, text) for name, text in section.items()}


def _shown(name: str, text: str) -> str:
    if _SECRET.search(name) and text:
        return HIDDEN
    text = _USERINFO.sub(f"://{HIDDEN}@", text)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))
