"""Looking for log files in a database whose archiver takes its time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.oracle import redo
from tests.oracle.driver import Server
from tests.unit.oracle.conftest import Clock, settings
from tidelog.connectors.oracle.client import Session
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.logs import bound, gathering
from tidelog.connectors.oracle.logs.files import LogFile
from tidelog.connectors.oracle.logs.gathering import Gathering
from tidelog.connectors.oracle.logs.threads import Thread
from tidelog.errors import PositionLost, TransientError

Serve = Callable[..., Server]


def find(server: Server, looking: Gathering, scn: int, config: Config | None = None) -> list[LogFile] | None:
    assert server
    with Session(config or settings()) as session:
        return looking.find(session, scn, gathering.state(session))


def archived(server: Server, destination: int | None = None) -> None:
    for archive in server.database.redo.pending_archives():
        archive.ready = archive.ready or destination in (None, archive.destination)


def test_logs_of_all_threads_are_found(serve: Serve, clock: Clock) -> None:
    server = serve(threads=2)
    start = server.database.scn
    server.database.redo.switch(2)
    archived(server)
    found = find(server, Gathering(settings(), clock), start)
    assert found is not None
    assert [(f.thread, f.sequence, f.archived) for f in found] == [(1, 11, False), (2, 21, True), (2, 22, False)]


def test_a_group_that_was_never_used_is_not_the_oldest_log(serve: Serve) -> None:
    server = serve()
    with Session(settings()) as session:
        assert gathering.oldest(session, settings()) == server.database.redo.threads[1].logs[0].first


def test_a_late_archive_is_looked_for_again_after_a_while(serve: Serve, clock: Clock) -> None:
    server, looking = serve(), Gathering(settings(), clock)
    start = server.database.scn
    server.database.redo.switch(1)
    assert find(server, looking, start) is None
    archived(server)
    clock.now += 0.9
    assert find(server, looking, start) is None
    clock.now += 0.1
    assert find(server, looking, start)


def test_pauses_double_up_to_a_limit(serve: Serve, clock: Clock) -> None:
    config = settings(log_mining_log_backoff_max_delay_ms="3000", log_mining_log_query_max_retries="9")
    server, looking = serve(), Gathering(config, clock)
    start = server.database.scn
    server.database.redo.switch(1)
    waits = []
    for _ in range(4):
        assert find(server, looking, start, config) is None
        waits.append(looking._due - clock.now)
        clock.now = looking._due
    assert waits == [1.0, 2.0, 3.0, 3.0]


def test_a_log_that_is_still_online_is_not_lost(serve: Serve, clock: Clock) -> None:
    config = settings(log_mining_log_query_max_retries="0")
    server = serve()
    start = server.database.scn
    server.database.redo.switch(1)
    with pytest.raises(TransientError, match="11 of thread 1 is not archived yet"):
        find(server, Gathering(config, clock), start, config)


def test_an_archive_that_was_deleted_is_lost(serve: Serve, clock: Clock) -> None:
    config = settings(log_mining_log_query_max_retries="0")
    server = serve()
    start = server.database.scn
    for _ in range(4):
        server.database.redo.switch(1)
    archived(server)
    assert server.database.redo.delete_archives(start + 2)
    with pytest.raises(PositionLost, match=f"SCN {start} has been deleted") as told:
        find(server, Gathering(config, clock), start, config)
    assert "snapshot" in told.value.hint


def test_a_log_that_nobody_knows_is_lost(serve: Serve, clock: Clock) -> None:
    config = settings(log_mining_log_query_max_retries="0")
    server = serve()
    server.database.redo.threads[1].enabled_at = 0
    with pytest.raises(PositionLost, match="None of the log files contain SCN 5"):
        find(server, Gathering(config, clock), 5, config)
    with Session(config) as session, pytest.raises(PositionLost, match="SCN 5"):
        gathering.require(session, config, 5)
    with Session(config) as session:
        gathering.require(session, config, (gathering.oldest(session, config) or 0) - 1)


def test_destinations_are_preferred_in_their_order(serve: Serve, clock: Clock) -> None:
    server = serve(destinations=2)
    start = server.database.scn
    server.database.redo.switch(1)
    archived(server)
    config = settings(archive_destination_name="LOG_ARCHIVE_DEST_2,LOG_ARCHIVE_DEST_1")
    found = find(server, Gathering(config, clock), start, config)
    assert found is not None
    assert found[0].destination == "LOG_ARCHIVE_DEST_2"


def test_another_destination_that_is_faster_does_not_make_ours_lost(serve: Serve, clock: Clock) -> None:
    server = serve(destinations=2)
    start = server.database.scn
    server.database.redo.switch(1)
    archived(server, destination=1)
    config = settings(archive_destination_name="LOG_ARCHIVE_DEST_2", log_mining_log_query_max_retries="0")
    with pytest.raises(TransientError, match="not archived yet"):
        find(server, Gathering(config, clock), start, config)


def test_private_threads_are_left_out(serve: Serve, clock: Clock) -> None:
    server = serve(threads=2)
    server.database.redo.threads[2].enabled = "PRIVATE"
    found = find(server, Gathering(settings(), clock), server.database.scn)
    assert found is not None
    assert {f.thread for f in found} == {1}


def test_archives_alone_are_waited_for_without_an_end(serve: Serve, clock: Clock) -> None:
    config = settings(archive_log_only_mode="true", log_mining_log_query_max_retries="0")
    server, looking = serve(threads=2), Gathering(config, clock)
    start = server.database.scn
    server.database.redo.switch(1)
    archived(server)
    for _ in range(3):
        assert find(server, looking, start, config) is None
        clock.now += 10
    server.database.redo.switch(2)
    archived(server)
    found = find(server, looking, start, config)
    assert found is not None
    assert all(f.archived for f in found)


def test_the_last_log_of_a_closed_thread_is_waited_for(serve: Serve, clock: Clock) -> None:
    server, looking = serve(threads=2), Gathering(settings(), clock)
    start = server.database.scn
    server.database.redo.close(2)
    assert find(server, looking, start) is None
    archived(server)
    clock.now += 1
    found = find(server, looking, start)
    assert found is not None
    assert (2, 21) in {f.log for f in found}
    later = find(server, looking, server.database.scn + 1)
    assert later is not None
    assert {f.thread for f in later} == {1}


# -- how far


def test_the_slowest_thread_says_how_far(serve: Serve) -> None:
    server = serve()
    with Session(settings()) as session:
        slow, fast = Thread(1, last_redo_scn=server.database.scn - 5), Thread(2, last_redo_scn=server.database.scn)
        assert bound.upper(session, settings(), [slow, fast]) == slow.last_redo_scn - 1
        eager = settings(log_mining_redo_thread_scn_adjustment="0")
        assert bound.upper(session, eager, [slow, fast]) == slow.last_redo_scn
        assert bound.upper(session, settings(), [slow, fast], primary=False) > fast.last_redo_scn


def test_a_deviation_stays_behind_the_present(serve: Serve) -> None:
    server = serve()
    with Session(settings()) as session:
        behind = bound.upper(session, settings(log_mining_max_scn_deviation_ms="5000"), [], primary=False)
    assert behind <= redo.scn_of(redo.time_of(server.database.scn)) - 50


def test_archives_alone_end_where_the_newest_does(serve: Serve) -> None:
    server = serve()
    log = server.database.redo.threads[1].logs[0]
    server.database.redo.switch(1)
    archived(server)
    assert log.next is not None
    with Session(settings()) as session:
        assert bound.upper(session, settings(archive_log_only_mode="true"), []) == log.next - 1
