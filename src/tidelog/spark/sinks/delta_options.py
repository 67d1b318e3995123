"""The settings of the Delta sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.core import metadata
from tidelog.core.metadata import DELETED, PREFIX, STAMPS
from tidelog.core.requirements import Requirements
from tidelog.core.settings import Setting, parse
from tidelog.errors import ConfigError

_STAMPS = {metadata.visible()[own]: own for own in STAMPS}
"""The names by which `metadata.columns` chooses them."""
METADATA_PREFIX = Setting(
    "metadata.prefix",
    "What the names of metadata columns begin with: with `cdc_`, `_op` becomes `cdc_op`, for tables with an `_op`.",
    PREFIX,
    kind=metadata.prefix,
)

SETTINGS = (
    Setting("path", "Where the tables go: a directory or any URI that Delta understands.", None),
    Setting("engine", "What writes Delta.", "auto", choices=("auto", "rust", "spark")),
    Setting("delete.mode", "`hard` deletes rows, `soft` marks them.", "hard", choices=("hard", "soft")),
    Setting("metadata.columns", f"Which of {', '.join(_STAMPS)} each row keeps of its last change."),
    METADATA_PREFIX,
    Setting("tables.parallel", "How many tables of a batch are written at the same time.", "4", kind=int),
    Setting("optimize.every", "After how many commits small files are joined; 0 for never.", "50", kind=int),
    Setting("retention.hours", "How long old versions stay readable: a merge leaves old files behind.", "24", kind=int),
    Setting("stage", "A directory that Spark's executors read too, for the engine `spark`."),
    Setting("storage", "What the storage needs to know, such as storage.aws_region.", pattern=r"storage\.(.+)"),
)


@dataclass(frozen=True)
class Options:
    path: str
    engine: str = "auto"
    soft: bool = False
    stamps: tuple[str, ...] = ()
    prefix: str = PREFIX
    parallel: int = 4
    optimize_every: int = 50
    retention_hours: int = 24
    stage: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> Mapping[str, str]:
        """What the target calls the metadata columns."""
        return {**metadata.visible(self.prefix), DELETED: self.deleted}

    @property
    def deleted(self) -> str:
        return f"{self.prefix}deleted"

    @property
    def deleted_at(self) -> str:
        return f"{self.prefix}deleted_at"

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that the sink adds to a table's own."""
        stamps = tuple(self.names[own] for own in self.stamps)
        return (*stamps, self.deleted, self.deleted_at) if self.soft else stamps

    @property
    def requirements(self) -> Requirements:
        return Requirements(key=True, folds_case=True, reserved=self.own_columns)

    @property
    def properties(self) -> dict[str, str]:
        """A stream commits often: a checkpoint every 50 commits, and a log no longer than what can be read with it."""
        kept = f"interval {self.retention_hours} hours"
        return {
            "delta.checkpointInterval": "50",
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
        }

    @staticmethod
    def of(options: Mapping[str, str]) -> Options:
        raw = parse(SETTINGS, options, subject="The sink delta")
        return Options(
            path=raw["path"],
            engine=raw["engine"],
            soft=raw["delete.mode"] == "soft",
            stamps=_stamps(raw["metadata.columns"]),
            prefix=raw["metadata.prefix"],
            parallel=max(1, raw["tables.parallel"]),
            optimize_every=raw["optimize.every"],
            retention_hours=raw["retention.hours"],
            stage=raw["stage"],
            storage=storage(raw["storage"]),
        )


def storage(found: Mapping[str, str]) -> dict[str, str]:
    """What stands behind `storage.` in the settings."""
    return {name.removeprefix("storage."): text for name, text in found.items()}


def _stamps(text: str) -> tuple[str, ...]:
    names = tuple(n.strip() for n in text.split(",") if n.strip())
    if wrong := [n for n in names if n not in _STAMPS]:
        raise ConfigError(f"metadata.columns: {wrong[0]!r} is unknown.", hint=f"Choose among {', '.join(_STAMPS)}.")
    return tuple(_STAMPS[name] for name in names)
