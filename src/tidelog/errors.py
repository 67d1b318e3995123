"""Every error tidelog raises, named by what the operator does next.

An error carries a `hint`: the cure, in one sentence. All of them pickle, because Spark carries them from
executors and planner processes to the driver.
"""

from __future__ import annotations

from typing import Self


class TidelogError(Exception):
    """The root. `message` says what happened, `hint` what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[TidelogError], message: str, hint: str) -> TidelogError:
    return kind(message, hint=hint)


class ConfigError(TidelogError):
    """Change a setting, then start again."""


class NotInstalled(ConfigError):
    """Install an extra, then start again."""


class NotFound(TidelogError):
    """There is nothing of this name: name something else."""


class Refused(TidelogError):
    """Not in this state, or not to that place: do first what the hint says."""


class Conflict(TidelogError):
    """Somebody else was faster: look again, then repeat."""


class TransientError(TidelogError):
    """Nothing to do: tidelog retries by itself."""

    awaited = "the database"
    """What is waited for meanwhile."""


class DatabaseAway(TransientError):
    """The database does not answer."""


class LockTimeout(TransientError):
    """Another session of the database holds a lock for longer than tidelog waits."""

    awaited = "a lock in the database"


class SlotBusy(TransientError):
    """The server does not give out the replication slot yet."""

    awaited = "the replication slot"


class LogLate(TransientError):
    """The part of the log that comes next cannot be read yet."""

    awaited = "the next part of the log"


class StoreAway(TransientError):
    """The store of control state does not answer."""

    awaited = "the store"


class TargetAway(TransientError):
    """The storage of the target does not answer."""

    awaited = "the target"


class SparkLost(TidelogError):
    """Spark's own process is gone: start again, in a new session. A service does so by itself."""


class PositionLost(TidelogError):
    """The log no longer holds what comes next: a person decides how to go on."""


class UnsupportedChange(TidelogError):
    """One change cannot be represented: change the table, a setting, or skip it."""


class CorruptState(TidelogError):
    """Files of tidelog's own are damaged beyond self-repair: stop."""


class StateLost(TidelogError):
    """The state folder of a running pipeline is gone: bring it back, or start over."""


class TableRefused(ConfigError, UnsupportedChange):
    """The sink cannot take one table: the others go on without it."""

    table = 0
    """Which one, by its id; known only in the process that raised it."""

    @classmethod
    def of(cls, table: int, message: str, *, hint: str) -> Self:
        refused = cls(message, hint=hint)
        refused.table = table
        return refused


class TargetLost(TableRefused):
    """A target table that the pipeline has filled is gone: its rows are read from the source again."""
