"""The simulator keeps to what is known of LogMiner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import oracledb
import pytest

from tests.oracle import redo
from tests.oracle.database import Database, Relation
from tests.oracle.driver import Connection, Cursor, Server
from tests.oracle.literals import Column
from tests.oracle.workload import OWNER, Traits, Workload

COLUMNS = [Column("ID", "NUMBER", 22, 10, 0, nullable=False), Column("NAME", "VARCHAR2", 4000)]


class Mine:
    """A database with two redo threads, and a session that mines it."""

    def __init__(self, threads: int = 2) -> None:
        self.database = Database(Random(7), threads=threads)
        self.table: Relation = self.database.create("SHOP", "T", COLUMNS, ["ID"])
        self.first = self.database.scn
        self.server = Server(self.database)
        self.connection: Connection = self.server.connect()

    def ask(self, sql: str, **binds: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(sql, binds)
        return cursor.fetchall() if cursor.description else []

    def add(self) -> None:
        files = "SELECT MEMBER FROM V$LOGFILE F JOIN V$LOG L ON L.GROUP# = F.GROUP# WHERE L.STATUS = 'CURRENT'"
        archived = "SELECT NAME FROM V$ARCHIVED_LOG WHERE NAME IS NOT NULL AND DEST_ID = 1"
        for (name,) in [*self.ask(files), *self.ask(archived)]:
            self.ask("BEGIN DBMS_LOGMNR.ADD_LOGFILE(:name, DBMS_LOGMNR.ADDFILE); END;", name=name)

    def start(self, scn: int | None = None, committed: bool = False) -> None:
        options = "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG" + (" + DBMS_LOGMNR.COMMITTED_DATA_ONLY" if committed else "")
        sql = f"BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :scn, OPTIONS => {options}); END;"
        self.ask(sql, scn=self.first if scn is None else scn)

    def rows(self, columns: str = "OPERATION_CODE, XID, SCN", where: str = "1 = 1") -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {columns} FROM V$LOGMNR_CONTENTS WHERE {where}")


@pytest.fixture
def mine() -> Mine:
    return Mine()


def refused(code: int) -> Any:
    return pytest.raises(oracledb.DatabaseError, match=f"ORA-{code:05}")


def test_mixed_rows_come_by_scn_and_committed_ones_by_commit(mine: Mine) -> None:
    a, b = mine.database.begin(1), mine.database.begin(2)
    a.insert(mine.table, {"ID": 1, "NAME": "a"})
    b.insert(mine.table, {"ID": 2, "NAME": "b"})
    a.insert(mine.table, {"ID": 3, "NAME": "a"})
    b.commit()
    a.commit()
    mine.add()
    mine.start()
    x, y = a.work.xid, b.work.xid
    assert [(code, xid) for code, xid, _ in mine.rows()] == [(6, x), (6, y), (1, x), (1, y), (1, x), (7, y), (7, x)]
    mine.start(committed=True)
    assert [(code, xid) for code, xid, _ in mine.rows()] == [(6, y), (1, y), (7, y), (6, x), (1, x), (1, x), (7, x)]


def test_rows_of_committed_transactions_know_their_commit_but_start_and_ddl_do_not(mine: Mine) -> None:
    a = mine.database.begin(1)
    a.insert(mine.table, {"ID": 1, "NAME": None})
    scn = a.commit()
    mine.database.alter(mine.table, [*COLUMNS, Column("X", "NUMBER", 22)], "alter table T add X number", 1)
    mine.add()
    mine.start(committed=True)
    shown = mine.rows("OPERATION_CODE, COMMIT_SCN, START_SCN")
    began = a.work.start_scn
    assert shown[:3] == [(6, None, began), (1, scn, began), (7, scn, began)]
    assert [commit is None for code, commit, _ in shown[3:] if code in (6, 5)] == [True, True]
    mine.start()
    assert {commit for _, commit, _ in mine.rows("OPERATION_CODE, COMMIT_SCN, START_SCN")} == {None}


def test_redo_is_seen_when_it_is_on_disk(mine: Mine) -> None:
    mine.database.redo.flush(2)
    a, b = mine.database.begin(1), mine.database.begin(2)
    b.insert(mine.table, {"ID": 1, "NAME": "late"})
    a.insert(mine.table, {"ID": 2, "NAME": "early"})
    a.commit()
    mine.add()
    mine.start()
    assert {xid for _, xid, _ in mine.rows()} == {a.work.xid}
    behind = dict(mine.ask("SELECT THREAD#, LAST_REDO_CHANGE# FROM V$THREAD"))
    assert behind[2] <= b.work.start_scn < behind[1]
    mine.database.redo.flush(2)
    assert {xid for _, xid, _ in mine.rows()} == {a.work.xid, b.work.xid}


def test_what_is_taken_back_is_told_twice_or_left_out(mine: Mine) -> None:
    a = mine.database.begin(1)
    kept = a.insert(mine.table, {"ID": 1, "NAME": "kept"})
    mark = a.savepoint()
    gone = a.insert(mine.table, {"ID": 2, "NAME": "gone"})
    a.update(mine.table, gone, {"NAME": "changed"})
    a.rollback_to(mark)
    a.commit()
    mine.add()
    mine.start()
    undo = [(1, kept, 0), (1, gone, 0), (3, gone, 0), (3, gone, 1), (2, gone, 1)]
    columns, changes = "OPERATION_CODE, ROW_ID, ROLLBACK", "OPERATION_CODE < 5"
    assert mine.rows(columns, changes) == undo
    mine.start(committed=True)
    assert mine.rows(columns, changes) == undo
    mine.database.shows_undone = False
    assert mine.rows(columns, changes) == [(1, kept, 0)]
    assert [row["NAME"] for _, row in mine.table.as_of(mine.database.scn)] == ["kept"]


def test_a_rollback_may_have_no_sequence_number(mine: Mine) -> None:
    a = mine.database.begin(1)
    a.insert(mine.table, {"ID": 1, "NAME": "gone"})
    a.rollback(nameless=True)
    mine.database.redo.flush(1)
    mine.add()
    mine.start()
    ids = [xid for _, xid, _ in mine.rows()]
    assert ids == [a.work.xid, a.work.xid, a.work.unknown, a.work.unknown]
    assert a.work.unknown.hex() == a.work.hex[:8] + "ffffffff"
    mine.start(committed=True)
    assert mine.rows() == []


def test_long_statements_go_on_in_further_rows(mine: Mine) -> None:
    a = mine.database.begin(1)
    a.insert(mine.table, {"ID": 1, "NAME": "x" * 9000})
    a.commit()
    mine.add()
    mine.start()
    found = mine.rows("CSF, SQL_REDO", "OPERATION_CODE = 1")
    assert [(csf, len(sql)) for csf, sql in found[:-1]] == [(1, 4000), (1, 4000)]
    assert found[-1][0] == 0
    assert "".join(sql for _, sql in found).endswith("x" * 100 + "');")


def test_a_transaction_that_began_below_the_range_lacks_its_beginning(mine: Mine) -> None:
    a = mine.database.begin(1)
    a.insert(mine.table, {"ID": 1, "NAME": "below"})
    mine.database.redo.advance(10)
    middle = mine.database.scn
    mine.database.redo.advance(10)
    a.insert(mine.table, {"ID": 2, "NAME": "above"})
    a.commit()
    mine.add()
    for committed in (False, True):
        mine.start(middle, committed=committed)
        assert [code for code, _, _ in mine.rows()] == [1, 7]


def test_two_commits_share_an_scn(mine: Mine) -> None:
    a, b = mine.database.begin(1), mine.database.begin(2)
    scn = a.commit()
    assert b.commit(scn) == scn
    mine.add()
    mine.start()
    assert [(xid, at) for _, xid, at in mine.rows(where="OPERATION_CODE = 7")] == [(a.work.xid, scn), (b.work.xid, scn)]


def test_a_marked_transaction_stays_open(mine: Mine) -> None:
    a = mine.database.begin(1)
    a.mark()
    mine.database.redo.flush(1)
    assert (a.work.xid,) in mine.ask("SELECT XID FROM V$TRANSACTION")
    mine.add()
    mine.start()
    assert [code for code, _, _ in mine.rows()] == [redo.START, redo.REPLICATION_MARKER]


def test_log_switches_and_archives(mine: Mine) -> None:
    before = mine.ask("SELECT SEQUENCE# FROM V$LOG WHERE STATUS = 'CURRENT' AND THREAD# = 1")
    mine.database.redo.switch(1)
    after = mine.ask("SELECT SEQUENCE# FROM V$LOG WHERE STATUS = 'CURRENT' AND THREAD# = 1")
    assert after[0][0] == before[0][0] + 1
    assert mine.ask("SELECT NAME FROM V$ARCHIVED_LOG") == []
    archive = mine.database.redo.pending_archives()[0]
    archive.ready = True
    low, high = mine.ask("SELECT FIRST_CHANGE#, NEXT_CHANGE# FROM V$ARCHIVED_LOG WHERE STATUS = 'A'")[0]
    assert (low, mine.ask("SELECT MAX(FIRST_CHANGE#) FROM V$LOG WHERE THREAD# = 1")) == (mine.first, [(high,)])
    mine.database.redo.delete_archives(high)
    assert mine.ask("SELECT NAME, STATUS FROM V$ARCHIVED_LOG") == [(None, "D")]
    with refused(1284):
        mine.ask("BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name); END;", name=archive.name)


def test_an_instance_that_comes_back_goes_on_with_the_next_sequence_after_a_gap(mine: Mine) -> None:
    mine.database.redo.close(2)
    closed = mine.ask("SELECT STATUS, CHECKPOINT_CHANGE# FROM V$THREAD WHERE THREAD# = 2")[0]
    assert closed == ("CLOSED", mine.database.scn)
    assert mine.ask("SELECT THREAD# FROM V$LOG WHERE STATUS = 'CURRENT'") == [(1,)]
    mine.database.redo.advance(100)
    mine.database.redo.reopen(2)
    first, second = mine.database.redo.threads[2].logs
    assert second.sequence == first.sequence + 1
    assert first.next is not None
    assert second.first > first.next + 50


def test_errors_of_sessions(mine: Mine) -> None:
    with refused(1307):
        mine.ask("BEGIN DBMS_LOGMNR.END_LOGMNR(); END;")
    with refused(1306):
        mine.rows()
    with refused(1292):
        mine.start()
    mine.add()
    with refused(1289):
        mine.add()
    with refused(1290):
        mine.ask("BEGIN DBMS_LOGMNR.REMOVE_LOGFILE(LOGFILENAME => '/nowhere'); END;")
    with refused(1291):
        mine.start(mine.first - 5)
    with refused(1281):
        mine.ask("BEGIN DBMS_LOGMNR.START_LOGMNR(:a, ENDSCN => :b); END;", a=mine.first + 9, b=mine.first + 2)
    mine.start()
    assert len(mine.ask("SELECT FILENAME FROM V$LOGMNR_LOGS WHERE FILENAME IS NOT NULL")) == 2
    mine.ask("BEGIN DBMS_LOGMNR.END_LOGMNR; END;")
    assert mine.ask("SELECT FILENAME FROM V$LOGMNR_LOGS") == []


def test_a_missing_sequence_is_a_missing_file(mine: Mine) -> None:
    for _ in range(2):
        mine.database.redo.advance(5)
        mine.database.redo.switch(1)
    first, second = mine.database.redo.pending_archives()
    first.ready = True
    mine.add()
    with refused(1291):
        mine.start()
    second.ready = True
    mine.ask("BEGIN DBMS_LOGMNR.ADD_LOGFILE(:name); END;", name=second.name)
    mine.start()


def test_an_online_file_that_was_used_again_is_found_out(mine: Mine) -> None:
    mine.add()
    mine.start()
    for _ in range(3):
        mine.database.redo.switch(1)
    with refused(310):
        mine.rows()


def test_a_lost_connection_takes_its_mining_session_along(mine: Mine) -> None:
    mine.add()
    mine.server.cut()
    with pytest.raises(oracledb.OperationalError, match="ORA-03113"):
        mine.rows()
    mine.connection = mine.server.connect()
    assert mine.ask("SELECT FILENAME FROM V$LOGMNR_LOGS") == []


def test_tables_are_read_as_of_an_scn(mine: Mine) -> None:
    a = mine.database.begin(1)
    place = a.insert(mine.table, {"ID": 1, "NAME": "one"})
    first = a.commit()
    b = mine.database.begin(1)
    b.update(mine.table, place, {"NAME": "two"})
    now = mine.database.scn
    asked = 'SELECT T."NAME" FROM "SHOP"."T" AS OF SCN :scn T WHERE T."ID" > :low ORDER BY 1 FETCH FIRST 5 ROWS ONLY'
    assert mine.ask(asked, scn=now, low=0) == [("one",)]
    later = b.commit()
    assert mine.ask(asked, scn=now, low=0) == [("one",)] if now < later else [("two",)]
    assert mine.ask(asked, scn=later, low=0) == [("two",)]
    assert mine.ask(asked, scn=first - 1, low=0) == []


def test_statements_are_understood_by_their_meaning(mine: Mine) -> None:
    a = mine.database.begin(1)
    scn = a.commit()
    mine.add()
    mine.start()
    one = "select xid from v$logmnr_contents where scn <= :b and operation_code in (7) and scn > :a"
    view = "SYS.V$LOGMNR_CONTENTS C"
    other = f"SELECT C.XID /* x */ FROM {view} WHERE (C.SCN BETWEEN :a + 1 AND :b) AND C.OPERATION_CODE = 7"
    assert mine.ask(one, a=scn - 1, b=scn) == mine.ask(other, a=scn - 1, b=scn) == [(a.work.xid,)]
    with refused(942):
        mine.ask("SELECT * FROM V$NOTHING")
    with refused(1008):
        mine.ask("SELECT XID FROM V$LOGMNR_CONTENTS WHERE SCN > :low")


def test_asking_for_the_scn_takes_one(mine: Mine) -> None:
    (first,), (second,) = (mine.ask("SELECT CURRENT_SCN FROM V$DATABASE")[0] for _ in range(2))
    assert second > first


def test_cursors_fetch_as_the_driver_does(mine: Mine) -> None:
    cursor: Cursor = mine.connection.cursor()
    cursor.execute("SELECT GROUP#, THREAD# FROM V$LOG WHERE STATUS <> 'UNUSED' ORDER BY 1")
    assert cursor.description is not None
    assert [d[0] for d in cursor.description] == ["GROUP#", "THREAD#"]
    assert len(cursor.fetchmany(1)) == 1
    assert len(cursor.fetchall()) == 1
    assert cursor.fetchone() is None


# -- the workload --------------------------------------------------------------------------------------------------


def played(seed: int, steps: int = 120, **traits: Any) -> Workload:
    rng = Random(seed)
    workload = Workload(rng, replace(Traits.of(rng), **traits))
    for _ in range(steps):
        workload.step()
    workload.settle()
    return workload


def counted(workload: Workload) -> Iterator[tuple[str, str, str]]:
    """What the redo says once everything is known, told apart from the model: transaction, table, row id."""
    open_: dict[bytes, list[tuple[str, str]]] = {}
    for entry in sorted((e for log in workload.database.redo.logs() for e in log.entries), key=lambda e: e.place):
        work = entry.work
        if work is None:
            continue
        mine = open_.setdefault(work.xid, [])
        if entry.code in (redo.INSERT, redo.UPDATE, redo.DELETE) and entry.owner == OWNER:
            if entry.rollback:
                last = max(n for n, (_, row_id) in enumerate(mine) if row_id == entry.row_id)
                del mine[last]
            else:
                mine.append((entry.table or "", entry.row_id))
        elif entry.code == redo.COMMIT:
            yield from ((work.hex, f"{OWNER}.{table}", row_id) for table, row_id in open_.pop(work.xid))


@pytest.mark.parametrize("seed", range(30))
def test_the_model_tells_what_the_redo_tells(seed: int) -> None:
    workload = played(seed, large=False, excluded=False)
    expected = [(e.xid, e.table) for e in workload.events(0)]
    assert [(xid, table) for xid, table, _ in counted(workload)] == expected
    assert len(expected) > 4


def test_a_seed_is_always_the_same_workload() -> None:
    assert played(5).events(0) == played(5).events(0)


def test_workloads_differ_and_have_all_that_is_asked_for() -> None:
    codes = {e.code for seed in range(40) for log in played(seed).database.redo.logs() for e in log.entries}
    assert codes >= set(redo.OPERATIONS) - {redo.INTERNAL, redo.DDL, redo.LOB_ERASE}
