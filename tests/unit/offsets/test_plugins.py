"""Databases by any of their names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog import connectors
from tidelog.connectors import PLUGINS
from tidelog.errors import ConfigError


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_is_found_by_each_of_its_names(plugin: connectors.Plugin) -> None:
    for name in plugin.names:
        assert connectors.plugin(name) is connectors.plugin(name.upper()) is plugin
        assert connectors.offsets(name) is connectors.offsets(plugin.name)
    assert plugin.title
    assert plugin.state.endswith(".")


def test_names_are_unique() -> None:
    names = [name.lower() for plugin in PLUGINS for name in plugin.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("postgers", "postgres"),
        ("my-sql", "mysql"),
        ("io.debezium.connector.mysql.MySQLConector", "io.debezium.connector.mysql.MySqlConnector"),
    ],
)
def test_a_name_that_is_almost_right(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="There is no connector") as caught:
        connectors.plugin(name)
    assert caught.value.hint == f"Did you mean {meant!r}?"


def test_a_name_that_is_nothing_like_it() -> None:
    with pytest.raises(ConfigError) as caught:
        connectors.offsets("qqq")
    assert "cassandra, db2," in caught.value.hint


@pytest.mark.parametrize("plugin", [p for p in PLUGINS if not p.captures], ids=lambda plugin: plugin.name)
def test_without_capture_only_offsets_are_managed(plugin: connectors.Plugin) -> None:
    assert not connectors.captures(plugin.name)
    for use in (lambda: connectors.create(plugin.name, {}), lambda: connectors.decoder(plugin.name)):
        with pytest.raises(ConfigError, match=r"can be managed, but capturing its changes isn't there yet"):
            use()


def test_what_captures() -> None:
    assert [p.name for p in PLUGINS if p.captures] == ["postgres", "oracle", "iseries"]
    assert connectors.captures("io.debezium.connector.postgresql.PostgresConnector")
    for name in ("postgresql", "oracle", "as400"):
        assert connectors.decoder(name)


def test_offsets_need_no_driver() -> None:
    code = (
        "import sys; from tidelog import connectors; [connectors.offsets(p.name) for p in connectors.PLUGINS];"
        "print([m for m in ('psycopg', 'pyspark', 'adbc_driver_postgresql', 'oracledb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
