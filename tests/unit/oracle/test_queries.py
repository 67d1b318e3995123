from __future__ import annotations

import pytest

from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import queries


def test_columns_stand_in_their_order_and_some_can_be_left_out() -> None:
    assert queries.columns(settings())[:3] == ("SCN", "SQL_REDO", "OPERATION_CODE")
    assert queries.columns(settings())[21:] == queries.OPTIONAL
    some = settings(log_mining_track_rs_id="false", log_mining_track_start_timestamp="false")
    assert queries.columns(some)[21:] == ("COMMIT_TIMESTAMP", "USERNAME", "CLIENT_ID")


def test_ranges() -> None:
    mixed = queries.contents_buffered(settings(), 10, 20)
    assert "SCN > :low AND SCN <= :high" in mixed.sql
    assert mixed.binds == {"low": 10, "high": 20, "pdb": "FREEPDB1"}
    committed = queries.contents_unbuffered(settings(), 10, 20)
    assert "COMMIT_SCN >= :low AND COMMIT_SCN < :high" in committed.sql
    assert "COMMIT_SCN IS NULL AND OPERATION_CODE IN (5, 6, 34)" in committed.sql


def test_a_database_without_containers_has_no_container() -> None:
    plain = queries.contents_buffered(settings(database_pdb_name=""), 1, 2)
    assert "SRC_CON_NAME" not in plain.sql
    assert "pdb" not in plain.binds


def test_large_values_are_asked_for_only_if_wanted() -> None:
    assert queries.codes(settings()) == (1, 2, 3, 255)
    assert set(queries.codes(settings(lob_enabled="true"))) >= {9, 10, 11, 29, 68, 70, 71, 91, 92, 93}


def test_tables_are_filtered_by_names_or_expressions_or_not_at_all() -> None:
    def where(mode: str, tables: str = r"INV\.A,INV\.B") -> str:
        found = settings(
            log_mining_query_filter_mode=mode,
            table_include_list=tables,
            signal_data_collection="INV.SIGNALS",
            schema_exclude_list="SYS.*",
        )
        return queries.contents_buffered(found, 1, 2).sql

    assert "INV" not in where("none")
    assert "SEG_OWNER || '.' || TABLE_NAME IN ('INV.A', 'INV.B')" in where("in")
    name = "SEG_OWNER || '.' || TABLE_NAME"
    either = rf"(REGEXP_LIKE({name}, '^(INV\.A)$', 'c') OR REGEXP_LIKE({name}, '^(INV\.O''B)$', 'c'))"
    assert either in where("regex", r"INV\.A,INV\.O'B")
    assert "NOT (REGEXP_LIKE(SEG_OWNER, '^(SYS.*)$', 'c'))" in where("regex")
    assert "= 'INV.SIGNALS'" in where("regex")
    assert "TABLE_NAME LIKE 'OBJ#%'" in where("in")


def test_lists_are_asked_in_portions() -> None:
    """A list has at most a thousand entries, and a pattern at most 512 bytes."""
    many = ",".join(f"INV.T{n}" for n in range(1001))
    named = settings(log_mining_query_filter_mode="in", table_include_list=many)
    sql = queries.contents_buffered(named, 1, 2).sql
    assert ", 'INV.T999') OR SEG_OWNER || '.' || TABLE_NAME IN ('INV.T1000')" in sql
    without = settings(log_mining_query_filter_mode="in", table_exclude_list=many)
    assert "NOT (SEG_OWNER || '.' || TABLE_NAME IN ('INV.T0', " in queries.contents_buffered(without, 1, 2).sql
    matched = settings(log_mining_query_filter_mode="regex", table_include_list=many)
    assert queries.contents_buffered(matched, 1, 2).sql.count("REGEXP_LIKE") == 1001
    users = settings(log_mining_username_exclude_list=",".join(f"U{n}" for n in range(1001)))
    assert ", 'U999') OR UPPER(USERNAME) IN ('U1000')" in queries.contents_buffered(users, 1, 2).sql


def test_accounts_are_filtered_but_the_unknown_stay() -> None:
    sql = queries.contents_buffered(settings(log_mining_username_exclude_list="batch"), 1, 2).sql
    assert "(USERNAME IS NULL OR USERNAME = 'UNKNOWN' OR NOT (UPPER(USERNAME) IN ('BATCH')))" in sql


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("online_catalog", ("DICT_FROM_ONLINE_CATALOG", "NO_ROWID_IN_STMT")),
        ("hybrid", ("DICT_FROM_ONLINE_CATALOG", "NO_ROWID_IN_STMT")),
        ("redo_log_catalog", ("DICT_FROM_REDO_LOGS", "DDL_DICT_TRACKING", "NO_ROWID_IN_STMT")),
    ],
)
def test_options_of_a_strategy(strategy: str, expected: tuple[str, ...]) -> None:
    found = settings(log_mining_strategy=strategy)
    assert queries.options(found, committed=False) == expected
    assert queries.options(found, committed=True) == (*expected, "COMMITTED_DATA_ONLY")


def test_a_session_may_lack_bounds_and_may_have_a_dictionary() -> None:
    plain = queries.start_logmnr(settings(), 5, None, committed=True)
    assert "ENDSCN" not in plain.sql
    assert plain.binds == {"start_scn": 5}
    filed = settings(log_mining_strategy="dictionary_from_file", log_mining_path_dictionary="/u/dict.ora")
    started = queries.start_logmnr(filed, 5, 9, committed=False)
    assert "DICTFILENAME => :dictionary" in started.sql
    assert started.binds == {"start_scn": 5, "end_scn": 9, "dictionary": "/u/dict.ora"}


def test_logs_follow_the_settings() -> None:
    both = queries.logs(settings(), 7)
    assert "STATUS = 'CURRENT'" in both.sql
    assert "S.TYPE = 'LOCAL'" in both.sql
    alone = queries.logs(settings(archive_log_only_mode="true", archive_log_hours="4"), 7).sql
    assert "V$LOGFILE" not in alone
    assert "FIRST_TIME >= SYSDATE - 4/24" in alone
    named = queries.logs(settings(archive_destination_name="LOG_ARCHIVE_DEST_3, LOG_ARCHIVE_DEST_1"), 7).sql
    assert "S.DEST_NAME IN ('LOG_ARCHIVE_DEST_3', 'LOG_ARCHIVE_DEST_1')" in named


def test_texts_cannot_leave_their_quotes() -> None:
    assert queries.literal("a'b") == "'a''b'"
    assert queries.identifier('a"b') == '"a""b"'
    assert queries.container('P"1') == 'ALTER SESSION SET CONTAINER = "P""1"'
