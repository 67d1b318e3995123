"""Log files: which are collected, whether they are complete, and which a session takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.connectors.oracle.logs import files, threads
from tidelog.connectors.oracle.logs.consistency import archived_everywhere, trouble
from tidelog.connectors.oracle.logs.files import SCN_MAX, LogFile
from tidelog.connectors.oracle.logs.selector import Chosen, Selector
from tidelog.connectors.oracle.logs.threads import Thread
from tidelog.errors import TransientError

UNIT = 1000


def archive(sequence: int, first: int, end: int, thread: int = 1, size: int = UNIT, place: str = "") -> LogFile:
    return LogFile(f"arc{thread}_{sequence}{place}", first, end, sequence, thread, True, bytes=size, destination=place)


def online(sequence: int, first: int, thread: int = 1) -> LogFile:
    return LogFile(f"redo{thread}_{sequence}", first, SCN_MAX, sequence, thread, False, current=True, bytes=UNIT)


def names(found: Sequence[LogFile]) -> list[str]:
    return [file.name for file in found]


# -- collecting


def test_rows_of_the_views() -> None:
    row = ("/a", 100, None, "NO", "CURRENT", "ONLINE", 7, "NO", "NO", 2, 4096, None)
    found = files.of_row(row)
    assert (found.next, found.current, found.archived, found.log) == (SCN_MAX, True, False, (2, 7))
    row = ("/b", 50, 100, "YES", None, "ARCHIVED", 6, "YES", "NO", 2, 4096, "LOG_ARCHIVE_DEST_1")
    found = files.of_row(row)
    assert (found.archived, found.dictionary_begin, found.destination) == (True, True, "LOG_ARCHIVE_DEST_1")


def test_a_file_holds_its_first_scn_and_not_its_next() -> None:
    file = archive(1, 100, 200)
    assert [file.holds(scn) for scn in (99, 100, 199, 200)] == [False, True, True, False]


def test_an_archived_file_wins_over_an_online_one() -> None:
    found = files.collected([online(2, 200), archive(2, 200, 300), archive(1, 100, 200), online(3, 300)], 150)
    assert names(found) == ["arc1_1", "arc1_2", "redo1_3"]


def test_files_that_end_before_the_scn_are_left_out() -> None:
    found = files.collected([archive(1, 100, 200), archive(2, 200, 300), online(3, 300)], 200)
    assert names(found) == ["arc1_2", "redo1_3"]


def test_the_first_destination_that_has_a_log_gives_it() -> None:
    both = [archive(1, 1, 2, place="B"), archive(1, 1, 2, place="A"), archive(2, 2, 3, place="B")]
    assert names(files.collected(both, 0, ["A", "B"])) == ["arc1_1A", "arc1_2B"]
    assert names(files.collected(both, 0, ["B", "A"])) == ["arc1_1B", "arc1_2B"]


def test_threads_have_sequences_of_their_own() -> None:
    found = files.collected([archive(5, 1, 9, thread=1), archive(5, 1, 8, thread=2)], 0)
    assert len(found) == 2


def test_a_dictionary_has_a_beginning_and_an_end() -> None:
    begin = replace(archive(1, 1, 2), dictionary_begin=True)
    end = replace(archive(3, 3, 4), dictionary_end=True)
    assert files.has_dictionary([begin, archive(2, 2, 3), end])
    assert not files.has_dictionary([begin])
    assert not files.has_dictionary([end, replace(begin, sequence=4)])
    assert not files.has_dictionary([begin, replace(end, thread=2)])


# -- threads


def test_threads_of_the_view() -> None:
    found = threads.of_row((2, "CLOSED", "PRIVATE", 5, None, 7, 9, 1, "inst2"))
    assert found == Thread(2, False, "PRIVATE", 5, 0, 7, 9)
    assert found.private


def test_only_open_public_threads_say_how_far_the_redo_is_written() -> None:
    some = [Thread(1, last_redo_scn=90), Thread(2, open=False, last_redo_scn=10), Thread(3, last_redo_scn=80)]
    assert threads.flushed([*some, Thread(4, enabled="PRIVATE", last_redo_scn=5)]) == 80
    assert threads.flushed([Thread(1)]) is None


# -- consistency


def consistent(scn: int, thread: Thread, found: Sequence[LogFile], archives: Sequence[LogFile] = ()) -> bool:
    return trouble(scn, [thread], found, lambda _: archives) is None


def test_an_open_thread_must_have_logs_without_a_gap() -> None:
    assert not consistent(5, Thread(1), [])
    assert consistent(150, Thread(1), [archive(1, 100, 200), archive(2, 200, 300), online(3, 300)])
    assert not consistent(150, Thread(1), [archive(1, 100, 200), online(3, 300)])


def test_an_archive_that_is_late_is_waited_for() -> None:
    assert not consistent(150, Thread(1), [online(2, 200)])
    assert not consistent(150, Thread(1), [online(2, 200)], [archive(1, 100, 200)])


def test_a_thread_that_was_down_is_complete_when_its_sequences_are() -> None:
    since = [archive(8, 500, 510), online(9, 510)]
    assert consistent(300, Thread(1), since, [archive(7, 100, 200), archive(6, 50, 100)])
    assert not consistent(300, Thread(1), since, [archive(6, 50, 100)])


def test_a_thread_that_was_enabled_later_counts_from_there() -> None:
    late = Thread(1, enable_scn=250)
    assert consistent(150, late, [archive(2, 200, 300), online(3, 300)])
    assert not consistent(150, late, [archive(2, 200, 300), online(4, 400)])
    assert not consistent(150, late, [archive(1, 100, 200)])


@pytest.mark.parametrize("enabled", ["PUBLIC", "DISABLED"])
def test_a_closed_thread_needs_what_it_wrote(enabled: str) -> None:
    closed = Thread(1, open=False, enabled=enabled, checkpoint_scn=300, disable_scn=300)
    assert consistent(350, closed, [])
    assert consistent(150, closed, [])  # whether its last log waits for the archiver, gathering finds in V$LOG
    assert not consistent(150, closed, [archive(1, 100, 200)])
    assert not consistent(150, closed, [archive(2, 200, 301)])
    assert not consistent(150, closed, [online(5, 400)])  # it was opened again meanwhile
    assert consistent(150, closed, [archive(1, 100, 200), archive(2, 200, 301)])
    assert not consistent(150, closed, [archive(1, 100, 200), archive(3, 250, 301)])
    assert consistent(150, closed, [archive(1, 100, 301), archive(3, 400, 500)])
    assert not consistent(150, closed, [archive(1, 100, 200), archive(2, 200, 299)])
    assert not consistent(150, closed, [archive(2, 200, 301)])
    assert not consistent(350, closed, [archive(2, 200, 400)])


def test_a_disabled_thread_that_never_said_when_is_not_looked_at() -> None:
    assert consistent(350, Thread(1, open=False, enabled="DISABLED"), [archive(1, 1, 400), archive(3, 500, 600)])


def test_private_threads_do_not_count() -> None:
    assert consistent(5, Thread(1, enabled="PRIVATE"), [])


def test_an_scn_is_archived_when_every_open_thread_has_archived_it() -> None:
    both = [archive(1, 100, 200), archive(1, 100, 150, thread=2), online(2, 150, thread=2)]
    assert archived_everywhere(140, [Thread(1), Thread(2)], both)
    assert not archived_everywhere(160, [Thread(1), Thread(2)], both)
    assert archived_everywhere(160, [Thread(1), Thread(2, open=False)], both)


# -- choosing


def chosen(selector: Selector, found: Sequence[LogFile], *known: Thread) -> tuple[Chosen, Selector]:
    return selector.choose(found, known or (Thread(1),))


LOGS = (archive(1, 100, 200), archive(2, 200, 300), archive(3, 300, 400), online(4, 400))


def test_all_files_are_taken_unless_a_number_is_given() -> None:
    found, _ = chosen(Selector(0, UNIT), LOGS)
    assert found.files == LOGS
    assert (found.limit, found.capped) == (None, False)
    assert found.upper(1000) == 1000


def test_a_few_files_end_where_the_last_of_them_does() -> None:
    found, _ = chosen(Selector(2, UNIT), LOGS)
    assert found.files == LOGS[:2]
    assert (found.upper(1000), found.upper(250)) == (300, 250)


def test_small_files_count_by_their_size() -> None:
    small = [archive(n, 100 * n, 100 * n + 100, size=UNIT // 2) for n in range(1, 6)]
    found, _ = chosen(Selector(2, UNIT), small)
    assert len(found.files) == 4


def test_one_more_file_is_taken_while_nothing_changes() -> None:
    selector, counts = Selector(2, UNIT), []
    for _ in range(4):
        found, selector = chosen(selector, LOGS)
        counts.append(len(found.files))
    assert counts == [2, 3, 4, 4]
    found, selector = chosen(selector, [*LOGS[1:3], archive(4, 400, 500), archive(5, 500, 600), online(6, 600)])
    assert names(found.files) == ["arc1_2", "arc1_3"]


def test_the_thread_that_ends_first_ends_all() -> None:
    both = [*LOGS, archive(1, 100, 150, thread=2), archive(2, 150, 250, thread=2), online(3, 250, thread=2)]
    found, _ = chosen(Selector(2, UNIT), both, Thread(2), Thread(1))
    assert found.limit == 250
    assert len(found.files) == 4


def test_what_a_closed_thread_wrote_last_ends_nothing() -> None:
    both = [*LOGS, archive(1, 100, 150, thread=2)]
    found, _ = chosen(Selector(0, UNIT), both, Thread(1), Thread(2, open=False))
    assert found.limit is None
    assert len(found.files) == 5
    found, _ = chosen(Selector(0, UNIT), [*LOGS[:3], both[-1]], Thread(1), Thread(2, open=False))
    assert found.limit == 400


def test_an_open_thread_without_files_is_an_error() -> None:
    with pytest.raises(TransientError, match="thread 2"):
        chosen(Selector(2, UNIT), LOGS, Thread(1), Thread(2))
    assert chosen(Selector(2, UNIT), LOGS, Thread(1), Thread(2, open=False))[0].files
