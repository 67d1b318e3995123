"""Offsets over REST: the codes and shapes of Kafka Connect, and what tidelog adds."""

from __future__ import annotations

import threading

from tests.integration.server.conftest import MYSQL_OFFSETS, Client
from tests.integration.server.test_connectors import message

ERP = "/connectors/erp/offsets"
LATER = {"offsets": [{"partition": {"server": "inventory"}, "offset": {"file": "mysql-bin.000003", "pos": 999}}]}


def test_offsets_are_set_read_undone_and_removed(shop: Client) -> None:
    assert shop.get(ERP).json() == {"offsets": []}
    assert "altered" in shop.patch(ERP, json=MYSQL_OFFSETS).json()["message"]
    assert shop.get(ERP).json() == MYSQL_OFFSETS
    shop.patch(ERP, json=LATER | {"why": "a poison event"})
    assert shop.get(ERP).json() == LATER
    assert shop.post(f"{ERP}/undo", json={"why": "it was none"}).status_code == 200
    assert shop.get(ERP).json() == MYSQL_OFFSETS
    changes = shop.get(f"{ERP}/history").json()["changes"]
    assert [(c["action"], c["why"], c["who"]) for c in changes] == [
        ("undo", "it was none", "local"),
        ("set", "a poison event", "local"),
        ("set", "", "local"),
    ]
    older = shop.get(f"{ERP}/history", params={"before": changes[1]["id"], "limit": 5}).json()["changes"]
    assert older == changes[2:]
    assert "reset" in shop.delete(ERP).json()["message"]
    assert shop.get(ERP).json() == {"offsets": []}


def test_an_exported_file_is_imported_elsewhere(shop: Client) -> None:
    shop.patch(ERP, json=MYSQL_OFFSETS)
    exported = shop.get(f"{ERP}/export").json()
    shop.post("/connectors", json={"name": "copy", "config": {"connector.class": "mysql"}, "initial_state": "STOPPED"})
    assert shop.post("/connectors/copy/offsets/import", json=exported).status_code == 200
    assert shop.get("/connectors/copy/offsets").json() == MYSQL_OFFSETS
    assert shop.get("/connectors/copy/offsets/history").json()["changes"][0]["action"] == "import"


def test_a_typing_mistake_is_told_where_it_is(shop: Client) -> None:
    wrong = {"offsets": [{"partition": {"server": "inventory"}, "offset": {"file": "mysql-bin.000003", "poz": 1}}]}
    preview = shop.post(f"{ERP}/preview", json=wrong).json()
    assert not preview["possible"]
    assert ("poz" in preview["problems"][0]["path"], "pos" in preview["problems"][0]["hint"]) == (True, True)
    assert "poz" in message(shop, "PATCH", ERP, 400, json=wrong)
    assert shop.get(ERP).json() == {"offsets": []}


def test_only_a_stopped_connector_is_changed(shop: Client) -> None:
    shop.put("/connectors/shop/pause")
    body = {"offsets": [{"partition": {"server": "shop"}, "offset": {"lsn": 1}}]}
    for method, path in (("PATCH", ""), ("POST", "/import")):
        assert "PAUSED" in message(shop, method, f"/connectors/shop/offsets{path}", 400, json=body)
    for method, path in (("DELETE", ""), ("POST", "/undo")):
        assert "PAUSED" in message(shop, method, f"/connectors/shop/offsets{path}", 400)
    assert shop.get("/connectors/shop/offsets").status_code == 200


def test_nothing_to_undo(shop: Client) -> None:
    assert "undo" in message(shop, "POST", f"{ERP}/undo", 404)


def test_two_edits_at_once_are_one_after_the_other(shop: Client) -> None:
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda body=body: codes.append(shop.patch(ERP, json=body).status_code))  # type: ignore[misc]
        for body in (MYSQL_OFFSETS, LATER) * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {200, 409}
    changes = shop.get(f"{ERP}/history").json()["changes"]
    assert len(changes) == codes.count(200)
    assert [c["before"] for c in changes[:-1]] == [c["after"] for c in changes[1:]]


def test_every_plugin_has_a_schema_of_its_offsets(shop: Client) -> None:
    plugins = shop.get("/connector-plugins").json()
    assert len(plugins) == 11
    for plugin in plugins:
        by_class = shop.get(f"/connector-plugins/{plugin['class']}/offset-schema").json()
        assert by_class == shop.get(f"/connector-plugins/{plugin['name']}/offset-schema").json()
        assert by_class["properties"]["offsets"]["items"]["properties"]["offset"]
    assert "no connector" in message(shop, "GET", "/connector-plugins/nosuch/offset-schema", 404)
