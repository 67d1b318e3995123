"""The flat config of Kafka Connect: what it means, what is hidden, what comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidelog.engine import definition as definitions
from tidelog.engine import flat
from tidelog.errors import ConfigError

CONFIG = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "database.user": "u",
    "database.password": "s3cret-word",
    "database.dbname": "shop",
    "sink.type": "delta",
    "sink.path": "s3://key:other-secret@bucket/lake",
    "stream.trigger": "1s",
    "journal.max.bytes": "1gb",
    "column.mask.hash.SHA-256.with.salt.Xyzzy": "public.t.ssn",
}


def test_a_config_means_a_definition() -> None:
    found = flat.definition("shop", CONFIG)
    assert (found.name, found.connector, found.sink["type"]) == ("shop", "postgres", "delta")
    assert found.source_options["database.dbname"] == "shop"
    assert not {"name", "tasks.max", "connector.class"} & found.source.keys()
    assert (found.limits.trigger_s, found.storage.bytes_max) == (1.0, 1 << 30)


def test_yaml_and_config_say_the_same() -> None:
    text = """
      name: shop
      source: {connector: postgres, database: {user: u, dbname: shop}, table.include.list: [a.b, c.d]}
      sink: {type: delta, path: lake}
    """
    raw = yaml.load(text, yaml.BaseLoader)
    assert flat.definition("shop", flat.written(raw)) == definitions.from_mapping(raw)


def test_references_stay_in_a_file_that_is_read(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\nsource: {connector: postgres, database.password: ${NOBODY_SET_THIS}}\n")
    assert flat.written(definitions.written(file))["database.password"] == "${NOBODY_SET_THIS}"


def test_secrets_are_hidden_and_come_back() -> None:
    shown = flat.shown(CONFIG)
    assert not [value for value in ("s3cret-word", "other-secret", "Xyzzy") if value in str(shown)]
    assert shown["database.user"] == "u"
    assert flat.kept(shown, CONFIG) == CONFIG
    assert flat.kept(shown | {"database.password": "new"}, CONFIG) == CONFIG | {"database.password": "new"}


@pytest.mark.parametrize("key", ["database.password", "sink.path", "column.mask.hash.SHA-256.with.salt.Xyzzy"])
def test_what_is_hidden_cannot_come_from_nowhere(key: str) -> None:
    shown = flat.shown({key: CONFIG[key]})
    with pytest.raises(ConfigError, match="Write it out"):
        flat.require_told(flat.kept(shown, {}))
    flat.require_told(CONFIG)


def test_references_are_shown_but_not_their_defaults() -> None:
    assert flat.shown({"database.password": "${PGPASSWORD}"}) == {"database.password": "${PGPASSWORD}"}
    assert flat.shown({"database.password": "${file:/run/pw}"}) == {"database.password": "${file:/run/pw}"}
    assert flat.shown({"database.password": "${PGPASSWORD:-s3cret}"}) == {"database.password": "****"}
    assert flat.shown({"database.password": "a${PGPASSWORD}"}) == {"database.password": "****"}


def test_a_sentence_loses_every_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "from-the-environment")
    (tmp_path / "pw").write_text("from-a-file\n")
    config = CONFIG | {"database.hostname": "${OF_THE_SERVER}.example", "database.sslkey": f"${{file:{tmp_path}/pw}}"}
    hidden = flat.secrets(config)
    said = "s3cret-word, key:other-secret, other-secret, Xyzzy, from-the-environment.example, from-a-file; u of shop"
    assert flat.scrubbed(said, hidden) == "****, ****, ****, ****, ****, ****; u of shop"


def test_a_config_without_a_plugin_says_so() -> None:
    with pytest.raises(ConfigError, match=r"connector\.class"):
        flat.plugin_of({})
    with pytest.raises(ConfigError, match="Did you mean"):
        flat.plugin_of({"connector.class": "postgress"})
