"""Known mistakes, put into the connector on purpose: the campaign has to notice each of them.

Each is what somebody might well have written, or what another system has shipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.run import BUFFERED, UNBUFFERED
from tidelog.connectors.oracle import (
    buffered,
    config,
    dispatch,
    pending,
    position,
    queries,
    row,
    session,
    unbuffered,
    watermark,
)
from tidelog.connectors.oracle.logs import bound, gathering
from tidelog.errors import TidelogError, UnsupportedChange
from tidelog.journal import buffer

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def splits_an_scn(patch: Patch) -> None:
    """Mine up to the last SCN on disk, although more may be logged with that very SCN."""
    real = bound.upper
    patch.setattr(session, "upper", lambda *args, **options: real(*args, **options) + 1)


def trusts_the_present(patch: Patch) -> None:
    """Mine up to the present SCN, whatever the redo threads have on disk."""
    patch.setattr(bound, "flushed", lambda _: None)


def forgets_what_was_open(patch: Patch) -> None:
    """A first start reads from its own SCN on, and loses the beginning of open transactions."""
    real = pending.look

    def look(asked: Any) -> pending.Start:
        scn = real(asked).scn
        return pending.Start(scn, {}, scn)

    patch.setattr(pending, "look", look)


def asks_once_for_the_scn(patch: Patch) -> None:
    """What commits between the question for the SCN and the one for open transactions is in neither answer."""

    def look(session: Any) -> pending.Start:
        scn = int(session.one(queries.CURRENT_SCN))
        rows = session.query(queries.open_transactions(rac=pending.is_cluster(session)))
        return pending.Start(scn, {int.from_bytes(xid, "big", signed=True): begun for xid, begun in rows}, scn)

    patch.setattr(pending, "look", look)


def moves_on_with_each_commit(patch: Patch) -> None:
    """A restart reads from the last commit on, not from where the oldest open transaction began."""
    patch.setattr(buffered.BufferedTail, "_low", lambda _, scn: scn)
    patch.setattr(unbuffered.UnbufferedTail, "_low", lambda _, scn: scn)


def counts_all_as_ended(patch: Patch) -> None:
    """The low watermark passes transactions that are still open."""
    patch.setattr(watermark.Watermark, "look", lambda _, low, read: max(low, read))


def keeps_what_was_taken_back(patch: Patch) -> None:
    """Undo rows are ignored."""
    patch.setattr(dispatch.Dispatch, "_undo", lambda *_: None)


def ignores_undo_without_a_name(patch: Patch) -> None:
    """Undo rows whose transaction is known by its slot alone are ignored."""

    def ignore(_: Any, __: Any, ___: Any, kinds: Any, ____: Any, place: int, _____: int) -> None:
        kinds.undo[place] = False

    patch.setattr(buffered.BufferedTail, "_undo_partly_named", ignore)


def ends_no_rollbacks(patch: Patch) -> None:
    """A rollback does not end its transaction."""
    patch.setattr(buffered.BufferedTail, "_end_rollback", lambda *_: None)


def waits_for_a_full_name(patch: Patch) -> None:
    """A rollback whose transaction is known by its slot alone does not end it."""
    patch.setattr(buffered.BufferedTail, "_candidates", lambda _, xid: [] if position.is_partial(xid) else [xid])
    patch.setattr(watermark, "_end_partly_named", lambda *_: None)


def knows_commits_by_scn_alone(patch: Patch) -> None:
    """Of two commits that share an SCN, the second counts as delivered once the first is."""
    real = position.Commits.handled

    def handled(self: Any, thread: int, scn: int, xid: int) -> bool:
        known = self._threads.get(thread)
        return real(self, thread, scn, xid) or (known is not None and known[0] >= scn)

    patch.setattr(position.Commits, "handled", handled)


def delivers_again(patch: Patch) -> None:
    """What the offset lists as delivered is not asked."""
    patch.setattr(position.Commits, "handled", lambda *_: False)


def cuts_statements(patch: Patch) -> None:
    """A statement that goes on in the next fetch ends with the first."""
    patch.setattr(row.Feed, "_complete", lambda _, rows: len(rows))


def reads_past_the_kept(patch: Patch) -> None:
    """A persistent restart goes on where the reader stood, without the transactions that were kept."""
    patch.setattr(buffer.Buffer, "_restore", _restored_empty)


def _restored_empty(self: Any, state: Any) -> None:
    if state is not None:
        self._resume = state.resume


def forgets_the_beginning(patch: Patch) -> None:
    """Kept transactions are read again as well: their first part counts twice."""
    real = buffered.BufferedTail.__init__

    def init(self: Any, *args: Any) -> None:
        real(self, *args)
        oldest = self._open.oldest()
        self._read = self._held = self._read if oldest is None else min(self._read, oldest + 1)
        self._floor = self._read + 1

    patch.setattr(buffered.BufferedTail, "__init__", init)


def takes_any_logs(patch: Patch) -> None:
    """Files are not looked at for what is missing: an archive that is late counts as nothing."""
    patch.setattr(gathering, "trouble", lambda *_: None)
    with contextlib.suppress(AttributeError):
        patch.setattr(gathering, "_at_the_edges", lambda *_: None)


def lets_markers_hold(patch: Patch) -> None:
    """A replication product's marker does not end its transaction."""
    patch.setattr(buffered, "_ENDS", [7, 36])


def captures_everybody(patch: Patch) -> None:
    """Users who are left out are not."""
    patch.setattr(queries, "_accounts", lambda _: [])
    patch.setattr(config.Accounts, "takes", lambda *_: True)


def forgets_who_was_left_out(patch: Patch) -> None:
    """A restart reads from after the START of a transaction that is left out: nobody knows its user any more."""
    patch.setattr(buffered.BufferedTail, "_oldest", lambda tail: tail._open.oldest())


def recalls_nobody(patch: Patch) -> None:
    """A persistent restart does not look who was left out before it."""
    real = buffered.BufferedTail.__init__

    def init(self: Any, *args: Any) -> None:
        real(self, *args)
        self._read = self._held
        self._floor = self._read + 1

    patch.setattr(buffered.BufferedTail, "__init__", init)


FAULTS: dict[str, tuple[Fault, str]] = {
    "splits-an-scn": (splits_an_scn, BUFFERED),
    "trusts-the-present": (trusts_the_present, BUFFERED),
    "trusts-the-present-unbuffered": (trusts_the_present, UNBUFFERED),
    "forgets-what-was-open": (forgets_what_was_open, BUFFERED),
    "asks-once-for-the-scn": (asks_once_for_the_scn, BUFFERED),
    "moves-on-with-each-commit": (moves_on_with_each_commit, BUFFERED),
    "counts-all-as-ended": (counts_all_as_ended, UNBUFFERED),
    "keeps-what-was-taken-back": (keeps_what_was_taken_back, BUFFERED),
    "keeps-what-was-taken-back-unbuffered": (keeps_what_was_taken_back, UNBUFFERED),
    "ignores-undo-without-a-name": (ignores_undo_without_a_name, BUFFERED),
    "ends-no-rollbacks": (ends_no_rollbacks, BUFFERED),
    "waits-for-a-full-name": (waits_for_a_full_name, BUFFERED),
    "waits-for-a-full-name-unbuffered": (waits_for_a_full_name, UNBUFFERED),
    "knows-commits-by-scn-alone": (knows_commits_by_scn_alone, UNBUFFERED),
    "delivers-again": (delivers_again, UNBUFFERED),
    "cuts-statements": (cuts_statements, BUFFERED),
    "reads-past-the-kept": (reads_past_the_kept, BUFFERED),
    "forgets-the-beginning": (forgets_the_beginning, BUFFERED),
    "takes-any-logs": (takes_any_logs, BUFFERED),
    "lets-markers-hold": (lets_markers_hold, BUFFERED),
    "forgets-who-was-left-out": (forgets_who_was_left_out, BUFFERED),
    "recalls-nobody": (recalls_nobody, BUFFERED),
    "captures-everybody": (captures_everybody, BUFFERED),
    "captures-everybody-unbuffered": (captures_everybody, UNBUFFERED),
}
REFUSED: dict[str, type[TidelogError]] = {"cuts-statements": UnsupportedChange}
"""Where a mistake is not told by wrong events: the reading refuses to go on."""
