from __future__ import annotations

import pytest

from tests.unit.oracle.conftest import OPTIONS, settings
from tidelog.connectors.oracle import config
from tidelog.connectors.oracle.config import Accounts, Pauses
from tidelog.connectors.oracle.settings import SETTINGS
from tidelog.errors import ConfigError


def test_a_password_is_never_shown() -> None:
    found = settings(snapshot_database_password="another-secret")
    assert "secret" not in repr(found)
    assert [s.name for s in SETTINGS if s.secret] == ["database.password", "snapshot.database.password"]


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"log\.mining\.strategy"):
        config.read({**OPTIONS, "log.mining.stategy": "hybrid"})


def test_a_name_is_declared_once() -> None:
    names = [s.name for s in SETTINGS]
    assert len(names) == len(set(names))


def test_a_jdbc_url_leads_to_the_same_place() -> None:
    assert settings(database_url="jdbc:oracle:thin:@//db:1521/FREE").dsn == "db:1521/FREE"
    assert settings(database_url="@(DESCRIPTION=(ADDRESS=(HOST=h)))").dsn == "(DESCRIPTION=(ADDRESS=(HOST=h)))"
    assert settings().dsn == "localhost:1521/FREE"


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:oracle:thin:scott/tiger@//h:1521/s",
        "jdbc:oracle:oci:scott/tiger@h",
        "scott/ti@ger@h:1521/s",
        "tcps://h:1521/s?wallet_password=tiger",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"database\.url") as told:
        settings(database_url=url)
    assert "tiger" not in f"{told.value} {told.value.hint}"
    assert "database.password" in told.value.hint


def test_the_signal_table_may_name_its_database() -> None:
    for written in ("INV.SIGNALS", "FREEPDB1.INV.SIGNALS", "freepdb1.INV.SIGNALS"):
        assert settings(signal_data_collection=written).snapshot.signal_table == "INV.SIGNALS"
    assert settings(signal_data_collection="FREE.I.S", database_pdb_name="").snapshot.signal_table == "I.S"
    with pytest.raises(ConfigError, match="FREEPDB1 is captured"):
        settings(signal_data_collection="OTHER.INV.SIGNALS")


def test_times_are_seconds() -> None:
    found = settings(log_mining_session_max_ms="1500", log_mining_sleep_time_max_ms="9000")
    assert (found.session_max_s, found.pauses.max_s) == (1.5, 9.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"log.mining.username.include.list": "A", "log.mining.username.exclude.list": "B"}, "both"),
        ({"log.mining.clientid.include.list": "A", "log.mining.track.client.id": "false"}, r"track\.client\.id"),
        ({"log.mining.strategy": "dictionary_from_file"}, r"path\.dictionary"),
        ({"log.mining.query.filter.mode": "in", "table.include.list": r"INV\.O.*"}, "regular expression"),
        ({"log.mining.query.filter.mode": "regex", "table.include.list": "A" * 509}, "longer than 512 bytes"),
        ({"log.mining.query.filter.mode": "in", "table.include.list": r"\QINV.O\E"}, "regular expression"),
        ({"log.mining.query.filter.mode": "regex", "table.include.list": r"INV\.\p{Lu}+"}, "Oracle does not know"),
        ({"skipped.operations": "c,x"}, r"skipped\.operations"),
        ({"database.connection.adapter": "xstream"}, "xstream"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config.read({**OPTIONS, **options})


def test_plain_names_may_be_written_as_expressions() -> None:
    found = settings(log_mining_query_filter_mode="in", table_include_list=r"INV\.ORDERS,INV.A$B")
    assert found.filter_mode == "in"


def test_accounts() -> None:
    some = Accounts(include_users=("app",), exclude_clients=("batch",))
    assert some.takes("APP", None)
    assert not some.takes("OTHER", None)
    assert not some.takes("APP", "BATCH")
    assert some.takes("UNKNOWN", "x")
    assert some.takes(None, None)
    assert not Accounts(exclude_users=("APP",)).takes("app", None)


def test_pauses_grow_while_nothing_is_found_and_shrink_otherwise() -> None:
    pauses = Pauses(1.0, 0.0, 3.0, 0.25)
    assert pauses.after(1.0, False) == 1.25
    assert pauses.after(2.9, False) == 3.0
    assert pauses.after(3.0, True) == 0.75
    assert pauses.after(0.1, True) == 0.0
