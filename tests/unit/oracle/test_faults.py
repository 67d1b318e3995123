from __future__ import annotations

import pickle

import oracledb
import pytest

from tests.unit.oracle.conftest import settings
from tidelog.connectors.oracle import client, faults
from tidelog.connectors.oracle.faults import classify
from tidelog.errors import ConfigError, TidelogError, TransientError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ORA-01291: missing log file", faults.LogMissing),
        ("ORA-01284: file /a cannot be opened\nORA-00308: cannot open archived log '/a'", faults.LogMissing),
        ("ORA-00310: archived log contains sequence 9; sequence 7 required", faults.LogReused),
        ("ORA-01307: no LogMiner session is currently active\nORA-06512: at line 1", faults.SessionGone),
        ("ORA-01280: Fatal LogMiner Error.", faults.MiningFailed),
        ("ORA-01281: SCN range specified is invalid", faults.RangeInvalid),
        ("ORA-01371: Complete LogMiner dictionary not found", faults.DictionaryMissing),
        ("ORA-08181: specified number is not a valid system change number", faults.ScnUnknown),
        ("ORA-01555: snapshot too old", faults.SnapshotTooOld),
        ("ORA-03113: end-of-file on communication channel", faults.ConnectionLost),
        ("DPY-4011: the database or network closed the connection", faults.ConnectionLost),
        ("DPY-4024: call timeout of 600000 ms exceeded", faults.ConnectionLost),
        ("ORA-00600: internal error code", TransientError),
        ("ORA-00604: error occurred at recursive SQL level 1\nORA-01017: invalid username", ConfigError),
        ("ORA-00604: error occurred at recursive SQL level 1", TransientError),
        ("ORA-01017: invalid credential or not authorized", ConfigError),
        ("ORA-00942: table or view does not exist", ConfigError),
        ("ORA-06550: line 1: PLS-00201: identifier 'DBMS_LOGMNR' must be declared", ConfigError),
        ("ORA-00933: SQL command not properly ended", ConfigError),
    ],
)
def test_each_error_has_its_kind_and_says_what_to_do(text: str, kind: type[TidelogError]) -> None:
    found = classify("db:1521/FREE", text)
    assert type(found) is kind
    assert found.hint
    assert type(pickle.loads(pickle.dumps(found))) is kind


def test_what_the_driver_takes_for_no_fault_of_the_statement_is_tried_again() -> None:
    assert type(classify("db", "ORA-28759: failure to open file", operational=True)) is TransientError


def test_the_reason_is_the_line_that_tells_most() -> None:
    said = "ORA-00604: error at level 1\nORA-01031: insufficient privileges.\nHelp: https://docs"
    assert faults.reason(said) == "ORA-01031: insufficient privileges"
    assert faults.reason("") == "connection lost"


def test_a_refused_login_does_not_tell_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> object:
        raise oracledb.DatabaseError("ORA-01017: invalid credential or not authorized; logon denied")

    monkeypatch.setattr(client, "CONNECT", refuse)
    with pytest.raises(ConfigError) as told:
        client.Session(settings())
    assert "a-secret-word" not in str(told.value)
    assert "database.password" in told.value.hint
