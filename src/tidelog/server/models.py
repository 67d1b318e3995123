"""The bodies of requests and answers, with the words that the OpenAPI shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Config = Annotated[
    dict[str, str | int | float | bool | None],
    Field(
        description="Settings by name. Secrets are never returned: they read ****, and **** keeps what is stored. "
        "${NAME} and ${file:/path} are stored as written, and resolved when the connector starts.",
        examples=[{"connector.class": "postgres", "database.dbname": "shop", "sink.type": "delta"}],
    ),
]
Target = Annotated[
    Literal["RUNNING", "PAUSED", "STOPPED"],
    BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text),
]
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED"]


class Body(BaseModel):
    """Of a request: a misspelt member is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Error(BaseModel):
    error_code: int = Field(description="The status code once more.")
    message: str = Field(description="What happened, and what to do about it.")


class Root(BaseModel):
    version: str
    commit: str
    kafka_cluster_id: str = Field(description="Always `tidelog`: there is no Kafka.")


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    message: str = Field(description="What is wrong, in a sentence; empty when all is well.")


class NewConnector(Body):
    name: str = Field(description="Letters, digits, '.', '_' and '-', starting with a letter or digit, up to 64.")
    config: Config
    initial_state: Target = Field("RUNNING", description="A plugin that does not capture yet needs STOPPED.")


class Task(BaseModel):
    connector: str
    task: int


class ConnectorInfo(BaseModel):
    name: str
    config: dict[str, str]
    tasks: list[Task]
    type: Literal["source"] = "source"


class TaskConfig(BaseModel):
    id: Task
    config: dict[str, str]


class ConnectorState(BaseModel):
    state: State
    worker_id: str
    version: str = Field(description="Of tidelog.")
    trace: str | None = Field(None, description="Why it failed or waits, in a sentence.")


class TaskState(ConnectorState):
    id: int


class Status(BaseModel):
    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: Literal["source"] = "source"


class Plugin(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    java: str = Field(alias="class", description="The class that Debezium's users write.")
    type: Literal["source"] = "source"
    version: str
    name: str = Field(description="The short name, which does as well.")
    title: str = Field(description="The name of the database.")
    captures: bool = Field(description="Whether it can be started; the offsets of all can be managed.")


class Definition(BaseModel):
    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str
    width: str
    display_name: str
    dependents: list[str]
    order: int


class ConfigValue(BaseModel):
    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class ConfigInfo(BaseModel):
    definition: Definition
    value: ConfigValue


class Validation(BaseModel):
    name: str
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]


class CheckRequest(Body):
    config: Config


class Finding(BaseModel):
    level: Literal["ok", "warning", "error"]
    subject: str
    meaning: str
    cure: str = Field(description="What to run or change; empty when all is well.")


class Findings(BaseModel):
    findings: list[Finding]


class Message(BaseModel):
    message: str


class OffsetEntry(BaseModel):
    partition: dict[str, Any] = Field(description='Names the part of the source, such as {"server": "shop"}.')
    offset: dict[str, Any] | None = Field(description="How far it has come, in the words of its connector.")


class Offsets(BaseModel):
    offsets: list[OffsetEntry]


class OffsetEdit(Body):
    partition: dict[str, Any]
    offset: dict[str, Any] | None = Field(description="null removes the offset of this partition.")


class OffsetsEdit(Body):
    offsets: list[OffsetEdit] = Field(description="See /connector-plugins/{plugin}/offset-schema.")
    why: str = Field("", max_length=1000, description="For the history.")


class Problem(BaseModel):
    path: str = Field(description="Where in the body, such as offsets[0].offset.lsn.")
    message: str
    hint: str


class PreviewPart(BaseModel):
    partition: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    direction: str = Field(description="rewind, skip, same, anew or unknown.")
    consequence: str = Field(description="What will be replayed or skipped, in a sentence.")
    refused: str = Field(description="Why it is not possible; empty when it is.")
    hint: str
    problems: list[Problem]


class Preview(BaseModel):
    possible: bool = Field(description="Whether the edit would be accepted from a STOPPED connector.")
    parts: list[PreviewPart]
    problems: list[Problem] = Field(description="Of the body as a whole.")


class Change(BaseModel):
    id: int
    partition: dict[str, Any]
    action: str = Field(description="set, delete, undo or import.")
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    who: str
    why: str
    at: str = Field(description="ISO 8601, UTC.")
    applied_at: str | None = Field(description="When a batch that contains it was committed.")
    undoes: int | None


class Changes(BaseModel):
    changes: list[Change]


class Reason(Body):
    why: str = Field("", max_length=1000, description="For the history.")


class NewSignal(Body):
    type: str = Field(description="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log.")
    data: dict[str, Any] = Field(default_factory=dict)
    id: str = Field("", max_length=42, description="Its name; one is made up when it is left out.")


class SignalId(BaseModel):
    id: str


class Signal(BaseModel):
    number: int
    id: str
    type: str
    data: dict[str, Any]
    at: str


class Signals(BaseModel):
    signals: list[Signal]


class NewSnapshot(Body):
    tables: list[str] = Field(min_length=1, description="schema.table, or regular expressions over it.")
    where: str = Field("", description="SQL: only rows for which this is true.")
    surrogate_key: str = Field("", description="Walk along this column, not the key.")
    blocking: bool = Field(False, description="Let the stream wait until the rows are read.")
    id: str = Field("", max_length=42)


class SnapshotTables(Body):
    tables: list[str] = Field(default_factory=list, description="All of them when left out.")


class Walk(BaseModel):
    id: str
    table: str
    kind: str
    rows: int
    estimate: int
    rows_per_second: int
    seconds_left: int | None
    planned: int
    staged: int
    emitted: int


class EndedSnapshot(BaseModel):
    id: str
    how: str = Field(description="COMPLETED, ABORTED or SKIPPED.")
    tables: dict[str, int]
    failures: dict[str, str]
    ms: int | None


class Snapshots(BaseModel):
    paused: bool
    tables: list[Walk]
    ended: list[EndedSnapshot] = Field(description="The last ones, newest first.")


class Notification(BaseModel):
    number: int = Field(description="Ask for those after the last one you have seen.")
    id: str
    aggregate_type: str
    type: str
    additional_data: dict[str, Any]
    timestamp: int = Field(description="Milliseconds since 1970.")


class Notifications(BaseModel):
    notifications: list[Notification]


class Table(BaseModel):
    name: str
    events: int = Field(description="Delivered by this service since it began with the connector.")
    rows: int | None = Field(description="About how many the source has, from its statistics.")
    set_aside: str = Field(
        default="", description="Why the sink cannot take the table, and what helps; empty if it can."
    )
    undecodable: int = Field(
        default=0, description="Records that could not be decoded, and were set aside or left out."
    )


class Tables(BaseModel):
    tables: list[Table]
    message: str = Field(description="Why the source could not be asked; empty when it was.")


class Metrics(BaseModel):
    at_ms: int
    state: str
    capture: str = Field(description="What the capture says of itself.")
    lag_ms: int
    lag_bytes: int
    events_per_second: float
    events_total: int
    journal_bytes: int
    batch_id: int
    batch_ms: int
    batch_events: int
    position: int
    operations: dict[str, int]
    warnings: list[str]
    unreachable_since_ms: int = Field(
        description="Since when the database does not answer, and the lag is not known; 0 while it does."
    )
    waits_for: str = Field(
        description="What capture waits for before it can read the log, and the lag is not known; empty while it reads."
    )


class Point(BaseModel):
    at_ms: int
    lag_ms: int
    lag_bytes: int
    events_per_second: float
    events_total: int
    journal_bytes: int
    batch_ms: int


class History(BaseModel):
    points: list[Point]
