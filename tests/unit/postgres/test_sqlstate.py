"""What a driver's error means to whoever has to do something about it."""

from __future__ import annotations

import pytest

from tidelog.connectors.postgres import sqlstate
from tidelog.connectors.postgres.config import Config, read
from tidelog.errors import ConfigError, PositionLost, TransientError


@pytest.fixture
def config() -> Config:
    return read({"database.user": "u", "database.password": "secret", "database.dbname": "shop"})


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("55000", 'can no longer get changes from replication slot "tidelog"'),
        ("42704", 'replication slot "tidelog" does not exist'),
        ("", "This slot has been invalidated because it exceeded the maximum reserved size"),
    ],
)
def test_a_slot_that_is_gone_says_how_to_go_on(config: Config, state: str, text: str) -> None:
    found = sqlstate.error(config, state, text)
    assert isinstance(found, PositionLost)
    assert "`tidelog offsets delete`" in found.hint


@pytest.mark.parametrize(
    ("state", "kind"),
    [("42501", ConfigError), ("28P01", ConfigError), ("55006", TransientError), ("57P01", TransientError)],
)
def test_the_state_tells_what_a_setting_cures(config: Config, state: str, kind: type[Exception]) -> None:
    assert isinstance(sqlstate.error(config, state, "no"), kind)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("22012", ConfigError),
        ("42703", ConfigError),
        ("40001", TransientError),
        ("57014", TransientError),
        ("", TransientError),
        ("\0\0\0\0\0", TransientError),
    ],
)
def test_rows_in_bulk_are_tried_again_unless_the_state_forbids_it(
    config: Config, state: str, kind: type[Exception]
) -> None:
    """Also where the driver has none to tell."""
    found = sqlstate.in_bulk(config, state, "[libpq] Execution error [PGRES_FATAL_ERROR]: ERROR:  Nein.\n")
    assert isinstance(found, kind)
    assert "Nein" in str(found)


def test_of_several_addresses_the_one_that_a_setting_cures_is_told() -> None:
    text = (
        'connection to server at "::1", port 5432 failed: Connection refused\n'
        'connection to server at "127.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "u"'
    )
    assert sqlstate.reason_of(text) == 'password authentication failed for user "u"'
