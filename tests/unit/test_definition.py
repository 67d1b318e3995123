"""A definition says the same in YAML and in Python, ignores nothing and shows no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog.engine.definition import Definition, from_mapping, load
from tidelog.errors import ConfigError

ISSUE = r"""
name: shop
source: {connector: postgres, database.hostname: localhost, database.port: 5432, database.user: u, database.password: ${PGPASSWORD}, database.dbname: shop, table.include.list: "public\\..*"}
sink: {type: delta, path: ./lake}
"""  # noqa: E501

MINIMAL: dict[str, Any] = {"name": "n", "source": {"connector": "postgres"}, "sink": {"type": "delta"}}


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def test_the_yaml_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3: {cret}")
    definition = load(write(tmp_path, ISSUE))
    assert definition.name == "shop"
    assert definition.connector == "postgres"
    assert definition.source_options == {
        "database.hostname": "localhost",
        "database.port": "5432",
        "database.user": "u",
        "database.password": "s3: {cret}",
        "database.dbname": "shop",
        "table.include.list": r"public\..*",
    }
    assert definition.sink == {"type": "delta", "path": "./lake"}
    assert definition.sink_options == {"path": "./lake"}


def test_scalars_stay_what_was_written(tmp_path: Path) -> None:
    text = """
name: n
source:
  connector: postgres
  database: {password: 00123, port: 5432}
  slot.failover: true
  snapshot: off
  at: 12:30
  blank:
  table.include.list: [a, b]
sink: {type: delta}
"""
    source = load(write(tmp_path, text)).source
    assert source == {
        "connector": "postgres",
        "database.password": "00123",
        "database.port": "5432",
        "slot.failover": "true",
        "snapshot": "off",
        "at": "12:30",
        "blank": "",
        "table.include.list": "a,b",
    }


def test_python_values_become_the_same_texts() -> None:
    source = {"connector": "postgres", "a": True, "b": 5432, "c": None, "d": 1.5, "e": ("x", "y"), "f": Path("/p")}
    texts = from_mapping({**MINIMAL, "source": source}).source
    assert texts == {"connector": "postgres", "a": "true", "b": "5432", "c": "", "d": "1.5", "e": "x,y", "f": "/p"}


def test_references_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "here")
    text = "name: n-${WHERE}\nsource: {connector: postgres, x: '${WHERE}/${NOT_SET:-a, b}'}\nsink: {type: delta}\n"
    definition = load(write(tmp_path, text))
    assert definition.name == "n-here"
    assert definition.source["x"] == "here/a, b"


def test_limits_and_storage_have_types() -> None:
    definition = from_mapping(
        {
            **MINIMAL,
            "stream": {"maxEventsPerTrigger": 1000, "trigger": "1s"},
            "journal": {"max.bytes": "1gb", "mode": "transient", "compression": "none"},
        }
    )
    assert (definition.limits.events, definition.limits.bytes, definition.limits.trigger_s) == (1000, None, 1.0)
    storage = definition.storage
    assert (storage.bytes_max, storage.memory_bytes, storage.persistent) == (1 << 30, 64 << 20, False)
    assert storage.compression is None


def test_defaults() -> None:
    storage = from_mapping(MINIMAL).storage
    assert (storage.path, storage.bytes_max, storage.persistent) == ("", 4 << 30, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sinc": {}}, r"has no setting 'sinc'\. Did you mean 'sink'\?"),
        ({"name": ""}, "has no name"),
        ({"name": "../x"}, "cannot be the name of a folder"),
        ({"name": "a b"}, "cannot be the name of a folder"),
        ({"source": None}, "has no source. Add one such as source: {connector: postgres, …}"),
        ({"sink": {}}, "has no sink"),
        ({"sink": {"path": "x"}}, "The section sink says no type. Add type: delta"),
        ({"source": "postgres"}, "source must hold settings"),
        ({"source": {"connector": "postgres", "x": object}}, "which is not a text"),
        ({"stream": {"maxEventPerTrigger": 5}}, "Did you mean 'maxEventsPerTrigger'"),
        ({"stream": {"trigger": "soon"}}, "trigger: 'soon' is not valid"),
        ({"journal": {"max.bytes": "lots"}}, "max.bytes: 'lots' is not valid"),
        ({"journal": {"mode": "persistant"}}, "Did you mean 'persistent'"),
    ],
)
def test_a_mistake_is_told_with_its_cure(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping({**MINIMAL, **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: n\nsource: {connector: postgres\n", "is not YAML: line"),
        ("name: n\nname: m\n", "line 2: name is written twice"),
        ("just words", "holds no definition"),
        ("", "holds no definition"),
        ("name: n\nsource:\n\tconnector: x\n", "line 3"),
    ],
)
def test_broken_yaml_says_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"The file nowhere\.yaml cannot be read \(No such file or directory\)"):
        load("nowhere.yaml")


def test_no_secret_is_shown() -> None:
    secrets = {
        "database.password": "hunter2",
        "column.mask.hash.SHA-256.with.salt.hunter2": "public.t.c",
    }
    sink = {"type": "delta", "path": "s3://key:hunter2@bucket/x", "storage.aws_secret_access_key": "hunter2"}
    definition = from_mapping({**MINIMAL, "source": {"connector": "postgres", **secrets}, "sink": sink})
    assert "hunter2" not in repr(definition)
    assert definition.redacted()["source"]["database.password"] == "****"
    assert definition.redacted()["sink"]["path"] == "s3://****@bucket/x"


def test_a_definition_is_a_value() -> None:
    assert from_mapping(MINIMAL) == Definition("n", {"connector": "postgres"}, {"type": "delta"})


def test_settings_of_spark_get_their_own_names() -> None:
    spark = {"master": "spark://h:7077", "packages": ["a:b:1", "c:d:2"], "conf": {"spark.executor.memory": "2g"}}
    definition = from_mapping({**MINIMAL, "spark": spark})
    assert definition.spark_conf == {
        "spark.master": "spark://h:7077",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.executor.memory": "2g",
    }
    assert from_mapping(MINIMAL).spark_conf == {}
    for wrong in ({"mastr": "yarn"}, {"conf": {"executor.memory": "2g"}}):
        with pytest.raises(ConfigError, match="section spark has no setting"):
            from_mapping({**MINIMAL, "spark": wrong})
    secret = from_mapping({**MINIMAL, "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": "abc"}}})
    assert "abc" not in repr(secret)
