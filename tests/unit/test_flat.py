"""The flat config of Kafka Connect: what it means, what is hidden, what comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidelog.engine import definition as definitions
from tidelog.engine import flat
from tidelog.errors import ConfigError
from tidelog.server import validation

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


def test_a_journal_may_be_the_sources_own() -> None:
    """IBM i has journals too: what its connector declares is its own, whatever it begins with."""
    config = {
        "connector.class": "iseries",
        "database.hostname": "i",
        "database.user": "u",
        "journal.library": "LIB",
        "journal.name": "JRN",
        "journal.max.bytes": "1gb",
        "sink.type": "console",
    }
    found = flat.definition("shop", config)
    assert (found.source["journal.library"], found.source["journal.name"]) == ("LIB", "JRN")
    assert found.storage.bytes_max == 1 << 30


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
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "from-the-environment")
    (tmp_path / "pw").write_text("from-a-file\n")
    config = CONFIG | {
        "database.hostname": "${SECRET_OF_THE_SERVER}.example",
        "database.sslcert": f"${{file:{tmp_path}/pw}}",
    }
    hidden = flat.secrets(config)
    said = "s3cret-word, key:other-secret, other-secret, Xyzzy, from-the-environment.example, from-a-file; u of shop"
    assert flat.scrubbed(said, hidden) == "****, ****, ****, ****, ****, ****; u of shop"


def test_a_variable_is_no_secret_by_being_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "5444")
    monkeypatch.setenv("PGHOST", "db.example")
    config = CONFIG | {"database.port": "${PGPORT:-5432}", "database.hostname": "${PGHOST}"}
    said = "PostgreSQL at db.example:5444 says: connection refused."
    assert flat.scrubbed(said, flat.secrets(config)) == said


@pytest.mark.parametrize(
    ("setting", "variable", "value", "secret"),
    [
        ("database.password", "PGPORT", "5444", "5444"),
        ("database.hostname", "AWS_SECRET_ACCESS_KEY", "abcdef", "abcdef"),
        ("database.hostname", "DB_PW", "abcdef", "abcdef"),
        ("database.sslkey", "SOMETHING", "abcdef", "abcdef"),
        ("sink.storage.options.account_key", "SOMETHING", "abcdef", "abcdef"),
        ("database.hostname", "DATABASE_URL", "postgres://u:abcdef@host/db", "abcdef"),
        ("sink.path", "LAKE", "s3://id:abcdef@bucket/lake", "abcdef"),
        ("sink.path", "LAKE", "s3://bucket/lake?secret_key=abcdef", "abcdef"),
        ("column.mask.hash.SHA-256.with.salt.pepper", "SOMETHING", "abcdef", "abcdef"),
        ("database.url", "ADDRESS", "jdbc:oracle:thin:scott/abcdef@//host", "abcdef"),
    ],
)
def test_a_secret_of_a_variable_is_hidden_wherever_it_is_used(
    monkeypatch: pytest.MonkeyPatch, setting: str, variable: str, value: str, secret: str
) -> None:
    monkeypatch.setenv(variable, value)
    config = {"connector.class": "postgres", "database.port": "${PGPORT:-5432}", setting: f"${{{variable}}}"}
    told = flat.scrubbed(f"Cannot reach {value}.", flat.secrets(config))
    assert secret not in told


def test_a_secret_that_several_variables_make_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "someone")
    monkeypatch.setenv("WORD", "abcdef")
    hidden = flat.secrets({"connector.class": "postgres", "sink.path": "s3://${PGUSER}:${WORD}@bucket/lake"})
    assert flat.scrubbed("s3://someone:abcdef@bucket/lake, abcdef, bucket", hidden) == "****, ****, bucket"


def test_a_config_without_a_plugin_says_so() -> None:
    with pytest.raises(ConfigError, match=r"connector\.class"):
        flat.plugin_of({})
    with pytest.raises(ConfigError, match="Did you mean"):
        flat.plugin_of({"connector.class": "postgress"})


SALTED = {
    "column.mask.hash.SHA-256.with.salt.pepper": "public.t.a",
    "column.mask.hash.SHA-256.with.salt.sugar": "public.t.b",
}


def test_rules_that_differ_in_their_salt_alone_are_all_shown_and_kept() -> None:
    told = flat.shown(SALTED)
    assert len(told) == 2
    assert not any(salt in key for key in told for salt in ("pepper", "sugar"))
    assert flat.kept(told, SALTED) == SALTED
    assert [flat.real(key, SALTED) for key in told] == list(SALTED)


@pytest.mark.parametrize(
    ("key", "text", "secret"),
    [
        ("database.url", "jdbc:oracle:thin:scott/tiger@//host:1521/x", "tiger"),
        ("signal.consumer.sasl.jaas.config", 'PlainLoginModule required password="tiger";', "tiger"),
        ("schema.registry.basic.auth.user.info", "u:tiger", "tiger"),
        ("sink.storage.azure_storage_sas_key", "tiger", "tiger"),
        ("sink.storage.sse_customer_key_base64", "tiger", "tiger"),
        ("sink.path", "s3://AK:ti/ger@bucket/x", "ti/ger"),
        ("sink.path", "https://a/b?sig=tiger&x=1", "tiger"),
        ("database.url", "jdbc:x://h/d?user=u&password=tiger", "tiger"),
    ],
)
def test_secrets_in_odd_places(key: str, text: str, secret: str) -> None:
    assert secret not in str(flat.shown({key: text}))


@pytest.mark.parametrize("key", ["message.key.columns", "incremental.snapshot.chunk.size", "table.include.list"])
def test_what_is_no_secret_is_shown(key: str) -> None:
    assert flat.shown({key: "public.t:id"}) == {key: "public.t:id"}


def test_where_offsets_rest_is_not_for_a_config() -> None:
    """It would be lost without a word."""
    raw = {"name": "shop", "source": {"connector": "postgres"}, "offset.storage": "postgresql://u@h/offsets"}
    with pytest.raises(ConfigError, match="a server keeps those of all its connectors in one place"):
        flat.written(raw)


def test_settings_of_spark_are_not_for_a_config() -> None:
    """All connectors of a server share one session."""
    with pytest.raises(ConfigError, match="share one Spark session") as caught:
        flat.written({"name": "shop", "source": {"connector": "postgres"}, "spark": {"master": "yarn"}})
    assert "tidelog server --master" in caught.value.hint
    config = {"name": "shop", "connector.class": "postgres", "sink.type": "console", "spark.master": "yarn"}
    with pytest.raises(ConfigError, match="share one Spark session"):
        validation.require_valid(config)
