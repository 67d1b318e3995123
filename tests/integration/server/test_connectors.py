"""Connectors over REST, as Kafka Connect's users know it: codes, shapes, secrets."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.server.conftest import MYSQL, MYSQL_OFFSETS, PASSWORD, SHOP, Client, Open
from tests.servers import Database
from tidelog.contracts import FAILURES
from tidelog.core.requirements import Obstacle
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.model.schema import Column, Table


def create(client: Client, name: str, config: dict[str, str], state: str | None = "STOPPED") -> tuple[int, dict]:  # type: ignore[type-arg]
    body = {"name": name, "config": config} | ({"initial_state": state} if state else {})
    answer = client.post("/connectors", json=body)
    return answer.status_code, answer.json()


def message(client: Client, method: str, path: str, code: int, **more: object) -> str:
    answer = client.request(method, path, **more)  # type: ignore[arg-type]
    told = answer.json()
    assert (answer.status_code, told["error_code"], sorted(told)) == (code, code, ["error_code", "message"])
    return str(told["message"])


def test_a_connector_is_created_looked_at_and_deleted(client: Client) -> None:
    assert client.get("/connectors").json() == []
    code, made = create(client, "shop", SHOP)
    assert (code, made["name"], made["tasks"], made["type"]) == (201, "shop", [], "source")
    assert client.get("/connectors").json() == ["shop"]
    assert client.get("/connectors/shop").json() == made
    assert client.get("/connectors/shop/config").json() == made["config"]
    assert client.get("/connectors/shop/tasks").json() == []
    assert client.get("/connectors/shop/topics").json() == {"shop": {"topics": []}}
    status = client.get("/connectors/shop/status").json()
    assert (status["connector"]["state"], status["tasks"], status["type"]) == ("STOPPED", [], "source")
    assert client.delete("/connectors/shop").status_code == 204
    assert client.get("/connectors").json() == []


def test_expanded_lists(shop: Client) -> None:
    found = shop.get("/connectors", params={"expand": ["status", "info"]}).json()
    assert found["erp"]["status"] == shop.get("/connectors/erp/status").json()
    assert found["erp"]["info"] == shop.get("/connectors/erp").json()
    assert list(shop.get("/connectors?expand=status").json()["erp"]) == ["status"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/connectors/none"),
        ("GET", "/connectors/none/status"),
        ("GET", "/connectors/none/config"),
        ("GET", "/connectors/none/offsets"),
        ("GET", "/connectors/none/offsets/history"),
        ("GET", "/connectors/none/metrics"),
        ("GET", "/connectors/none/notifications"),
        ("GET", "/connectors/none/snapshots"),
        ("GET", "/connectors/none/tables"),
        ("PUT", "/connectors/none/pause"),
        ("PUT", "/connectors/none/resume"),
        ("PUT", "/connectors/none/stop"),
        ("POST", "/connectors/none/restart"),
        ("DELETE", "/connectors/none"),
        ("DELETE", "/connectors/none/offsets"),
        ("GET", "/connectors/%2e%2e/offsets"),
        ("GET", "/connectors/a%00b"),
    ],
)
def test_an_unknown_name_is_a_404(shop: Client, method: str, path: str) -> None:
    assert "not found" in message(shop, method, path, 404)


def test_a_misspelt_name_gets_a_hint(shop: Client) -> None:
    assert "'shop'" in message(shop, "GET", "/connectors/shpo", 404)


def test_a_name_is_taken_once(shop: Client) -> None:
    code, told = create(shop, "shop", SHOP)
    assert (code, "shop" in told["message"]) == (409, True)


@pytest.mark.parametrize("name", ["..", "a/b", "", "-x", "a" * 65, "ä"])
def test_a_name_that_cannot_be_a_folder_is_refused(client: Client, name: str, tmp_path: Path) -> None:
    assert create(client, name, SHOP)[0] == 400
    assert not (tmp_path / "home").exists() or {p.name for p in (tmp_path / "home").iterdir()} <= {
        "tidelog.sqlite",
        "tidelog.sqlite-wal",
        "tidelog.sqlite-shm",
    }


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"database.hostnam": "x"}, "database.hostname"),
        ({"database.port": "many"}, "whole number"),
        ({"database.user": ""}, "database.user"),
        ({"sink.type": "detla"}, "delta"),
        ({"sink.path": ""}, "sink.path"),
        ({"stream.trigger": "soon"}, "duration"),
        ({"tasks.max": "2"}, "tasks.max"),
        ({"connector.class": "postgers"}, "postgres"),
        ({"slot.name": "UPPER"}, "slot.name"),
        ({"name": "other"}, "other"),
    ],
)
def test_a_config_that_is_wrong_is_told_what_is(client: Client, change: dict[str, str], word: str) -> None:
    code, told = create(client, "shop", SHOP | change)
    assert (code, word in told["message"]) == (400, True), told
    assert PASSWORD not in told["message"]


def test_numbers_and_truth_values_are_texts(client: Client) -> None:
    code, made = create(client, "shop", SHOP | {"database.port": 5432, "slot.failover": False})  # type: ignore[dict-item]
    assert (code, made["config"]["database.port"], made["config"]["slot.failover"]) == (201, "5432", "false")


def test_a_plugin_without_capture_can_only_be_stopped(client: Client) -> None:
    code, told = create(client, "erp", MYSQL, None)
    assert (code, "STOPPED" in told["message"]) == (400, True)
    assert create(client, "erp", MYSQL)[0] == 201
    for state in ("resume", "pause"):
        assert "isn't there" in message(client, "PUT", f"/connectors/erp/{state}", 409)
    assert client.put("/connectors/erp/stop").status_code == 204
    assert client.put("/connectors/new/config", json=MYSQL).status_code == 201
    assert client.get("/connectors/new/status").json()["connector"]["state"] == "STOPPED"


def test_secrets_are_hidden_and_kept(shop: Client, tmp_path: Path) -> None:
    config = shop.get("/connectors/shop/config").json()
    assert config["database.password"] == "****"
    config |= {"sink.path": "elsewhere"}
    assert shop.put("/connectors/shop/config", json=config).status_code == 200
    assert shop.get("/connectors/shop/config").json() == config
    stored = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("tidelog.sqlite*"))
    assert PASSWORD.encode() in stored
    assert shop.put("/connectors/shop/config", json=config | {"database.password": "other-pw"}).status_code == 200
    assert "****" in message(shop, "POST", "/connectors", 400, json={"name": "new", "config": config | {"name": "new"}})


def test_references_stay_as_they_are_written(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    config = SHOP | {"database.password": "${SHOP_PASSWORD}", "database.user": "${NOBODY_SET_THIS}"}
    code, made = create(client, "shop", config)
    assert (code, made["config"]["database.password"]) == (201, "${SHOP_PASSWORD}")
    assert "NOBODY_SET_THIS" in message(client, "POST", "/connectors/shop/snapshots", 400, json={"tables": ["a.b"]})


def test_what_a_reference_stands_for_is_never_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that repeats its value in its errors must not be a way to read the environment."""
    monkeypatch.setenv("A_SECRET_OF_THE_SERVER", PASSWORD)
    config = SHOP | {"database.port": "${A_SECRET_OF_THE_SERVER}", "name": "shop"}
    assert create(client, "shop", config)[0] == 201
    answers = [
        client.get("/connectors/shop/tables").text,
        client.post("/connectors/shop/snapshots", json={"tables": ["a.b"]}).text,
        client.post("/connector-plugins/postgres/check", json={"config": config}).text,
        client.put("/connector-plugins/postgres/config/validate", json=config).text,
    ]
    assert "****" in answers[0]
    assert PASSWORD not in "".join(answers)


def test_some_settings_are_changed(shop: Client) -> None:
    answer = shop.patch("/connectors/shop/config", json={"topic.prefix": "web", "sink.path": "new"})
    assert answer.status_code == 200
    config = answer.json()["config"]
    assert (config["topic.prefix"], config["sink.path"], config["database.dbname"]) == ("web", "new", "shop")
    assert "topic.prefix" not in shop.patch("/connectors/shop/config", json={"topic.prefix": None}).json()["config"]


def test_what_is_not_delivered_is_named(shop: Client) -> None:
    home = Home.open("shop")
    notes = Table(7, "public", "notes", (Column("id", "int4"),))
    SetAside(home).add(notes, Obstacle("public.notes has no key.", "Give it a primary key."))
    letters = pa.Table.from_pylist([{"table": "public.prices", "reason": "column price"}] * 2, FAILURES)
    DeadLetters(home).count("q", 1, letters, kept=True)
    tables = {table["name"]: table for table in shop.get("/connectors/shop/tables").json()["tables"]}
    assert tables["public.notes"]["set_aside"] == "public.notes has no key. Give it a primary key."
    assert (tables["public.prices"]["undecodable"], tables["public.prices"]["set_aside"]) == (2, "")
    metrics = shop.get("/metrics").text
    assert 'tidelog_set_aside_tables{connector="shop"} 1' in metrics
    assert 'tidelog_undecodable_records{connector="shop",table="public.prices",fate="set_aside"} 2' in metrics


def test_a_paused_connector_holds_its_name(shop: Client) -> None:
    assert shop.put("/connectors/shop/pause").status_code == 202
    status = shop.get("/connectors/shop/status").json()
    assert (status["connector"]["state"], [task["state"] for task in status["tasks"]]) == ("PAUSED", ["PAUSED"])
    assert shop.get("/connectors/shop/tasks/0/status").json()["state"] == "PAUSED"
    assert Home.at("shop").holder() is not None
    assert "no task 1" in message(shop, "GET", "/connectors/shop/tasks/1/status", 404)
    assert shop.post("/connectors/shop/restart").status_code == 204
    assert shop.post("/connectors/shop/restart?includeTasks=true").json()["connector"]["state"] == "PAUSED"
    assert shop.put("/connectors/shop/stop").status_code == 204
    assert Home.at("shop").holder() is None


def test_states_are_remembered(shop: Client, open_client: Open) -> None:
    shop.put("/connectors/shop/pause")
    shop.shut_down()
    assert Home.at("shop").holder() is None
    again = open_client()
    states = {name: again.get(f"/connectors/{name}/status").json()["connector"]["state"] for name in ("shop", "erp")}
    assert states == {"shop": "PAUSED", "erp": "STOPPED"}
    assert Home.at("shop").holder() is not None


def test_states_and_offsets_may_rest_in_postgres(open_client: Open, database: Database, tmp_path: Path) -> None:
    url = f"postgresql://{database.user}:{database.password}@{database.host}:{database.port}/{database.dbname}"
    first = open_client(storage=url)
    assert create(first, "erp", MYSQL)[0] == 201
    assert create(first, "shop", SHOP, "PAUSED")[0] == 201
    assert first.patch("/connectors/erp/offsets", json=MYSQL_OFFSETS).status_code == 200
    first.shut_down()
    again = open_client(storage=url)
    assert again.get("/connectors/erp/offsets").json() == MYSQL_OFFSETS
    assert again.get("/connectors/shop/status").json()["connector"]["state"] == "PAUSED"
    assert not list((tmp_path / "home").glob("tidelog.sqlite"))


def test_a_paused_connector_that_somebody_else_runs_says_so(shop: Client) -> None:
    with Home.open("shop").lock("run"):
        shop.put("/connectors/shop/pause")
        told = shop.get("/connectors/shop/status").json()["connector"]
        assert (told["state"], "Another process" in told["trace"]) == ("FAILED", True)


def test_calls_at_once_are_followed_one_by_one_or_told_to_come_again(shop: Client) -> None:
    codes: list[int] = []

    def flip(call: str) -> None:
        codes.append(shop.put(f"/connectors/shop/{call}").status_code)

    threads = [threading.Thread(target=flip, args=(call,)) for call in ("pause", "stop") * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {202, 204, 409}
    assert {202, 204} & set(codes)
    assert shop.put("/connectors/shop/stop").status_code == 204
    assert Home.at("shop").holder() is None


def test_a_busy_connector_answers_409(shop: Client) -> None:
    service = shop.service
    with service.only("shop"):
        assert "busy" in message(shop, "PUT", "/connectors/shop/pause", 409)
        assert shop.get("/connectors/shop/status").status_code == 200
    assert shop.put("/connectors/shop/pause").status_code == 202
