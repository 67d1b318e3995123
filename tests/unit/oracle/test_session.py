"""Mining sessions against a simulated LogMiner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.database import Relation
from tests.oracle.driver import Server, cut, refuse
from tests.oracle.literals import Column
from tests.unit.oracle.conftest import Clock, settings
from tidelog.connectors.oracle import queries
from tidelog.connectors.oracle.config import Config
from tidelog.connectors.oracle.faults import ConnectionLost, LogMissing, LogReused, MiningFailed
from tidelog.connectors.oracle.session import Miner, Window
from tidelog.errors import PositionLost

Serve = Callable[..., Server]


def table(server: Server) -> Relation:
    columns = [Column("ID", "NUMBER", precision=10, scale=0, nullable=False), Column("NAME", "VARCHAR2", 20)]
    return server.database.create("INV", "ORDERS", columns, ["ID"])


def change(server: Server, relation: Relation, ids: range, thread: int = 1) -> int:
    """A transaction, whose commit all threads have left behind."""
    work = server.database.begin(thread)
    for n in ids:
        work.insert(relation, {"ID": n, "NAME": f"n{n}"})
    scn = work.commit()
    settle(server)
    return scn


def settle(server: Server) -> None:
    server.database.redo.advance(5)
    for thread in server.database.redo.threads.values():
        if thread.open:
            server.database.redo.flush(thread.number)


def archive(server: Server) -> None:
    for pending in server.database.redo.pending_archives():
        pending.ready = True


class Said:
    """The statements that reach the server, and what is done before some of them."""

    def __init__(self, server: Server) -> None:
        self.texts: list[str] = []
        self.then: dict[str, Callable[[], Any]] = {}
        server.before = self._before

    def _before(self, statement: str) -> None:
        self.texts.append(statement)
        for words, act in list(self.then.items()):
            if words in statement:
                act()

    def count(self, words: str) -> int:
        return sum(words in text for text in self.texts)


def read(miner: Miner, config: Config, window: Window) -> list[Any]:
    statement = queries.contents_buffered(config, window.start, window.end)
    return [row for batch in miner.rows(statement) for row in batch]


def test_a_pass_reads_what_every_thread_has_written(serve: Serve) -> None:
    server = serve(threads=2)
    orders, start, config = table(server), server.database.scn, settings()
    commit = change(server, orders, range(3))
    miner = Miner(config)
    window = miner.window(start, start)
    assert window is not None
    assert window.end >= commit
    assert window.switched
    rows = read(miner, config, window)
    assert [row[2] for row in rows][-4:] == [1, 1, 1, 7]
    assert miner.whole
    assert miner.window(start, window.end + 1000) is None


def test_files_stay_until_a_log_switch(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings())
    assert miner.window(start, start) is not None
    again = miner.window(start, start)
    assert again is not None
    assert not again.switched
    assert said.count("ADD_LOGFILE") == 1
    assert said.count("START_LOGMNR") == 2
    server.database.redo.switch(1)
    archive(server)
    settle(server)
    switched = miner.window(start, start)
    assert switched is not None
    assert switched.switched
    assert said.count("END_LOGMNR") == 2
    assert said.count("ADD_LOGFILE") == 3


def test_an_aged_session_is_begun_anew_maybe_with_its_connection(serve: Serve, clock: Clock) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    config = settings(log_mining_session_max_ms="5000", log_mining_restart_connection="true")
    said, miner = Said(server), Miner(config, clock=clock)
    assert miner.window(start, start) is not None
    clock.now += 4
    assert miner.window(start, start) is not None
    assert (said.count("ADD_LOGFILE"), len(server.connections)) == (1, 1)
    first = server.connections[0]
    clock.now += 2
    assert miner.window(start, start) is not None
    assert said.count("ADD_LOGFILE") == 2
    assert first.closed
    assert len(server.connections) == 1


def test_committed_data_has_no_end_but_that_of_the_query(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings(), committed=True)
    assert miner.window(start, start) is not None
    (begun,) = [text for text in said.texts if "START_LOGMNR" in text]
    assert "COMMITTED_DATA_ONLY" in begun
    assert "ENDSCN" not in begun


def test_a_reused_log_ends_the_result_and_twice_is_an_error(serve: Serve) -> None:
    server = serve()
    orders, start, config = table(server), server.database.scn, settings(query_fetch_size="1")
    change(server, orders, range(4))
    said, miner = Said(server), Miner(config)

    def reused() -> None:
        raise refuse(310, "archived log contains sequence 14; sequence 11 required")

    window = miner.window(start, start)
    assert window is not None

    def fetched() -> None:
        said.then = {"fetch": reused}

    said.then = {"tidelog contents": fetched}
    assert read(miner, config, window) == []
    assert not miner.whole
    said.then = {}
    window = miner.window(start, start)
    assert window is not None
    assert window.switched
    said.then = {"tidelog contents": fetched}
    with pytest.raises(LogReused):
        read(miner, config, window)


@pytest.mark.parametrize(("number", "kind"), [(1291, LogMissing), (1280, MiningFailed)])
def test_a_session_that_does_not_start_is_tried_five_times(serve: Serve, number: int, kind: type[Exception]) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings())

    def refused() -> None:
        raise refuse(number, "no")

    said.then["START_LOGMNR"] = refused
    for _ in range(5):
        assert miner.window(start, start) is None
    assert said.count("ADD_LOGFILE") == 5
    with pytest.raises(kind):
        miner.window(start, start)
    said.then.clear()
    assert miner.window(start, start) is not None


def test_a_range_that_is_refused_for_long_is_told(serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings(), clock=clock)

    def invalid() -> None:
        raise refuse(1281, "SCN range specified is invalid")

    said.then["START_LOGMNR"] = invalid
    for _ in range(9):
        assert miner.window(start, start) is None
    assert not caplog.records
    for _ in range(3):
        clock.now += 31
        assert miner.window(start, start) is None
    (warning,) = caplog.records
    assert f"from {start} to" in warning.getMessage()
    clock.now += 600
    with pytest.raises(PositionLost, match="ORA-01281"):
        miner.window(start, start)


def test_a_range_that_is_there_at_last_is_forgiven(serve: Serve, clock: Clock) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings(), clock=clock)

    def invalid() -> None:
        raise refuse(1281, "SCN range specified is invalid")

    for _ in range(3):
        said.then["START_LOGMNR"] = invalid
        clock.now += 500
        assert miner.window(start, start) is None
        said.then.clear()
        assert miner.window(start, start) is not None


def test_a_lost_connection_is_an_error_and_the_next_pass_has_another(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings())
    assert miner.window(start, start) is not None

    def lost() -> None:
        raise cut()

    said.then["V$THREAD"] = lost
    with pytest.raises(ConnectionLost):
        miner.window(start, start)
    said.then.clear()
    window = miner.window(start, start)
    assert window is not None
    assert window.switched
    assert said.count("connect") == 2


def test_a_dictionary_is_built_only_where_none_lies_in_the_range(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    config = settings(log_mining_strategy="redo_log_catalog", log_mining_log_backoff_initial_delay_ms="0")
    said, miner = Said(server), Miner(config)
    for _ in range(4):
        miner.window(start, start)
        archive(server)
        settle(server)
    assert said.count("DBMS_LOGMNR_D.BUILD") == 1
    assert miner.window(start, start) is not None
    other = Miner(config)
    assert other.window(start, start) is not None
    assert said.count("DBMS_LOGMNR_D.BUILD") == 1


def test_the_dictionary_is_in_the_session_wherever_it_lies(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    for n in range(3):
        change(server, orders, range(n, n + 1))
        server.database.redo.switch(1)
    server.database.build_dictionary()
    archive(server)
    settle(server)
    config = settings(log_mining_strategy="redo_log_catalog", log_mining_log_count_min="1")
    said, miner = Said(server), Miner(config)
    assert miner.window(start, start) is not None
    assert said.count("DBMS_LOGMNR_D.BUILD") == 0


def test_few_files_come_with_a_near_end_and_more_files_when_nothing_ends(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    for n in range(5):
        change(server, orders, range(n, n + 1))
        server.database.redo.switch(1)
    archive(server)
    settle(server)
    miner = Miner(settings(log_mining_log_count_min="1"))
    ends = []
    for _ in range(3):
        window = miner.window(start, start)
        assert window is not None
        ends.append(window.end)
    logs = server.database.redo.threads[1].logs
    assert ends == [log.next - 1 for log in logs[:3] if log.next is not None]


def test_rows_of_private_threads_can_be_told(serve: Serve) -> None:
    server = serve(threads=2)
    orders, start = table(server), server.database.scn
    server.database.redo.threads[2].enabled = "PRIVATE"
    change(server, orders, range(2))
    window = Miner(settings()).window(start, start)
    assert window is not None
    assert window.private == {2}


def test_closing_ends_the_session(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    said, miner = Said(server), Miner(settings())
    assert miner.window(start, start) is not None
    miner.close()
    assert said.count("END_LOGMNR") >= 1
    assert not server.connections
    miner.close()


def test_closing_a_lost_connection_is_no_error(serve: Serve) -> None:
    server = serve()
    orders, start = table(server), server.database.scn
    change(server, orders, range(2))
    miner = Miner(settings())
    assert miner.window(start, start) is not None
    server.cut()
    miner.close()
    assert miner.window(start, start) is not None
