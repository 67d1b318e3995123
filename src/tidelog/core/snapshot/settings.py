"""The settings of snapshots, signals and notifications: the same for every connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.core.settings import Setting, boolean, count, whole
from tidelog.errors import ConfigError

MODES = ("initial", "always", "initial_only", "no_data", "when_needed")
SIGNALS = ("source", "file", "in-process")
NOTIFICATIONS = ("log", "file", "in-process")


def chunk_size(text: str) -> int:
    """Rows, or 0 for `auto`."""
    if text == "auto":
        return 0
    rows = whole(text)
    if rows < 1:
        raise ValueError("write a number of rows, or auto")
    return rows


SETTINGS = (
    Setting(
        "snapshot.mode",
        "Which rows that exist already are delivered: those of all captured tables at the first start (initial), at "
        "every start (always), without streaming afterwards (initial_only), none (no_data), or again whenever the "
        "place in the log was lost (when_needed).",
        "initial",
        choices=MODES,
    ),
    Setting(
        "incremental.snapshot.chunk.size",
        "Rows of a chunk; auto: as many as are read in the target time. A reading takes as many chunks of a fixed size "
        "as fit into that time.",
        "auto",
        chunk_size,
    ),
    Setting(
        "incremental.snapshot.chunk.target.ms",
        "How long one reading should take, at least 2000 where nothing waits for the batch (`--once`); 0: a reading is "
        "one chunk of the fixed size, however short.",
        "250",
        count,
    ),
    Setting(
        "incremental.snapshot.parallelism",
        "Chunks read at the same time; 0: one for each core of Spark but one, which the stream keeps; of a plain "
        "query, one.",
        "0",
        count,
    ),
    Setting(
        "incremental.snapshot.watermarking.strategy",
        "How windows are told in the signal table where `read.only` is false: the row of an open window stays "
        "(insert_insert), or is deleted when it closes (insert_delete).",
        "insert_insert",
        choices=("insert_insert", "insert_delete"),
    ),
    Setting(
        "read.only",
        "Never write to the source. If false, and with `signal.data.collection`, windows are told in that table.",
        "true",
        boolean,
    ),
    Setting("signal.enabled.channels", "Where signals come from, separated by commas.", "source,file,in-process"),
    Setting("signal.data.collection", "Table with signals: (id, type, data). It is captured, not delivered.", ""),
    Setting("signal.file", "File with signals, one JSON object a line.", ""),
    Setting(
        "notification.enabled.channels",
        "Where notifications go: log, file, in-process; the last is what `tidelog run`, `--wait` and the page read.",
        "log,in-process",
    ),
    Setting("notification.file", "File that gets one JSON object a line.", ""),
)


@dataclass(frozen=True)
class SnapshotSettings:
    mode: str = "initial"
    chunk_rows: int = 0
    """0: as many as are read in `target_ms`."""
    target_ms: int = 250
    """0: a reading is one chunk of `chunk_rows`."""
    parallelism: int = 0
    """0: one for each core of Spark but one."""
    strategy: str = "insert_insert"
    read_only: bool = True
    signals: tuple[str, ...] = SIGNALS
    signal_table: str = ""
    signal_file: str = ""
    notifications: tuple[str, ...] = ("log", "in-process")
    notification_file: str = ""
    refresh_ms: int = 5_000
    """How often the catalog is looked at."""

    @property
    def heard_table(self) -> str:
        """The table whose rows are signals to us; empty when there is none."""
        return self.signal_table if "source" in self.signals or self.writes_windows else ""

    @property
    def writes_windows(self) -> bool:
        """Whether the source is told of windows."""
        return not self.read_only and bool(self.signal_table)


def read(values: Mapping[str, Any]) -> SnapshotSettings:
    """From the values of `SETTINGS`."""
    return SnapshotSettings(
        mode=values["snapshot.mode"],
        chunk_rows=values["incremental.snapshot.chunk.size"],
        target_ms=values["incremental.snapshot.chunk.target.ms"],
        parallelism=values["incremental.snapshot.parallelism"],
        strategy=values["incremental.snapshot.watermarking.strategy"],
        read_only=values["read.only"],
        signals=_channels("signal.enabled.channels", values, SIGNALS),
        signal_table=values["signal.data.collection"],
        signal_file=values["signal.file"],
        notifications=_channels("notification.enabled.channels", values, NOTIFICATIONS),
        notification_file=values["notification.file"],
    )


def _channels(name: str, values: Mapping[str, Any], known: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(part.strip() for part in values[name].split(",") if part.strip())
    if wrong := [channel for channel in found if channel not in known]:
        raise ConfigError(f"{name}: there is no channel {wrong[0]!r}.", hint=f"Known are: {', '.join(known)}.")
    return found
