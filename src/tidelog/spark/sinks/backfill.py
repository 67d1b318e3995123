"""A target follows a change of the table's columns, and gets the values that only the source knows.

Law: what readers see changes in one commit. They find the old columns with their old values, or the new ones with all
values of the source. A run that ends before that commit has changed nothing, and the next one begins again.

The source answers as it is now. Where it has moved on and has such a column no more, or as another type, it has no
answer yet: the column is noted as `tidelog.pending`, and asked for again with each batch until it has, or until the log
has told what became of the column.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from tidelog.core.evolve import Plan
from tidelog.spark.sinks.asking import Asking
from tidelog.spark.sinks.target import Answers, Target

LOG = logging.getLogger("tidelog.sinks.delta")

PENDING = "tidelog.pending"


class _SourceMoved(Exception):
    """The source has changed the columns while they were read."""


def pending(target: Target) -> frozenset[str]:
    """The columns whose values the source still has to tell."""
    return frozenset(json.loads(target.properties().get(PENDING) or "[]"))


def note_pending(target: Target, columns: Collection[str]) -> None:
    if pending(target) != frozenset(columns):
        target.describe({PENDING: json.dumps(sorted(columns)) if columns else ""})


def follow(asking: Asking, plan: Plan, columns: Collection[str]) -> None:
    """Carry out the plan, with the values of `columns` from the source."""
    answered = asking.current(sorted(columns)) if columns else []
    if answered:
        try:
            answers = Answers(asking.key, tuple(answered), _answers(asking, answered))
            _carry_out(asking.target, plan, answers, set(columns) - set(answered))
            return
        except _SourceMoved:
            pass  # the target is as it was
    if set(columns) - pending(asking.target):
        LOG.warning(
            "%s: the source has changed %s again; its values are read when the log reaches that change",
            asking.table.qualified,
            ", ".join(sorted(columns)),
        )
    _carry_out(asking.target, plan, None, columns)


def _answers(asking: Asking, columns: Sequence[str]) -> Iterator[pa.Table]:
    yield from asking.all(columns)
    if asking.current(columns) != columns:
        raise _SourceMoved


def _carry_out(target: Target, plan: Plan, answers: Answers | None, unanswered: Collection[str]) -> None:
    note_pending(target, pending(target) | set(unanswered))  # before the new shape hides that they have to be asked
    if answers is not None or plan.added is None:
        target.rewrite(plan.steps, answers)
    elif plan.added:
        target.extend(plan.added)
    note_pending(target, unanswered)
