"""Where tidelog answers otherwise than Kafka Connect, on purpose, and why. `theirs → ours`, as `shapes` writes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    reason: str
    differences: frozenset[str]
    steps: tuple[str, ...]


def _because(reason: str, differences: str | tuple[str, ...], *steps: str) -> Deviation:
    found = (differences,) if isinstance(differences, str) else differences
    return Deviation(reason, frozenset(found), steps)


DEVIATIONS = (
    _because(
        "A body that cannot be read, or says what cannot be, is the caller's mistake: Kafka Connect answers that it "
        "failed itself, with a sentence of its parser; tidelog says what to correct.",
        "status 500 → 400",
        "create with bad JSON",
        "create with a list",
        "create with nothing",
        "create without a config",
        "create of an unknown plugin",
        "create in an unknown state",
        "create with an unknown member",
        "create with a setting that is an object",
        "configure with bad JSON",
        "configure with a list",
        "validate bad JSON",
        "validate without a plugin",
        "validate with an unknown plugin",
        "offsets with bad JSON",
        "offsets with nothing",
        "offsets with a list",
        "offsets that are an object",
        "offsets that are a text",
        "offsets with a text for an entry",
        "offsets with an unknown member",
        "offsets without a partition",
        "offsets with a text for a partition",
        "offsets of another partition",
        "offsets with a text for an offset",
        "offsets of a wrong type",
    ),
    _because(
        "A name that nobody knows is not found, whatever is asked of it; Kafka Connect makes no difference between a "
        "connector without topics and no connector.",
        "status 200 → 404",
        "GET /topics of nobody",
    ),
    _because("As for its topics.", "status 202 → 404", "PUT /topics/reset of nobody"),
    _because(
        "To take an offset away one says null. Kafka Connect does so too when the member was forgotten, and answers "
        "that all is well.",
        "status 200 → 400",
        "offsets left out",
    ),
    _because(
        "A connector cannot be renamed. Kafka Connect writes the other name into the config and keeps the old one.",
        "status 200 → 400",
        "change the name",
    ),
    _because(
        "A connector has its task from the start; Kafka Connect answers before it has made any.",
        "$.tasks[] added",
        "create by its config",
        "create what fails",
    ),
    _because(
        "The plugin's version stands beside the state, as in Kafka Connect since 4.1; the one here is older.",
        ("$.connector.version added", "$.tasks[].version added"),
        "its status",
        "its status while paused",
        "restart with tasks",
        "restart what failed",
        "the status of what failed",
    ),
    _because(
        "The version, as above; there are no tasks.",
        "$.connector.version added",
        "a stopped connector's status",
        "its status while stopped",
        "the status of what failed and is stopped",
    ),
    _because("The version, as above.", "$.version added", "its task's status", "the task of what failed"),
    _because(
        "The version, as above.",
        ("$.busy.status.connector.version added", "$.busy.status.tasks[].version added"),
        "the list with status",
        "the list with both",
    ),
    _because(
        "A plugin says its short name and its database's, and whether it captures or only manages offsets.",
        ("$[].name added", "$[].title added", "$[].captures added"),
        "plugins",
        "plugins of all kinds",
    ),
    _because(
        "A connector is its task: when that fails it has failed itself, and says why in the same words.",
        ("$.connector.state RUNNING → FAILED", "$.connector.trace added"),
        "the status of what failed",
    ),
    _because(
        "The name of a connector is the name of a folder, so not every text can be one.",
        ("status 201 → 400", "location /connectors/two%20words → none"),
        "create under a name of two words",
    ),
    _because("It was not created, as above.", "status 204 → 404", "delete what has two words"),
    _because(
        "Settings with few possible values name them; those of the file connector have none.",
        "$.configs[].value.recommended_values[] added",
        "validate",
        "validate an incomplete config",
    ),
    _because("tidelog's log level is not changed over REST.", "status 200 → 404", "loggers"),
)


def known(step: str) -> set[str]:
    """The differences that this step has to have."""
    return {difference for found in DEVIATIONS if step in found.steps for difference in found.differences}
