"""What a server has to withstand: bad bodies, foreign pages, missing tokens; and what it always says."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.integration.server.conftest import PASSWORD, SHOP, Client, Open
from tests.integration.server.test_connectors import message
from tests.patience import wall_seconds
from tidelog.server import auth
from tidelog.server.guard import BODY_BYTES_MAX

JSON = {"content-type": "application/json"}
TOKENS = """
read    reader-0123456789abcdef  page
operate operator-0123456789abcdef
# comment
admin   admin-0123456789abcdef  root
"""


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe",
        b'{"name": NaN}',
        b'{"name": 1e999}',
        b'{"name": "\\ud800"}',
        b'{"name": "a\\u0000b"}',
        b"[" * 100_000,
        b"1" * 5000,
    ],
)
def test_a_body_that_is_no_json_is_a_400(client: Client, body: bytes) -> None:
    assert "JSON" in message(client, "POST", "/connectors", 400, content=body, headers=JSON)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"x"', b'{"name": "a"}', b'{"name": 1, "config": {}}', b'{"name": "a", "config": {}, "x": 1}']
)
def test_a_body_of_another_shape_is_a_400(client: Client, body: bytes) -> None:
    assert message(client, "POST", "/connectors", 400, content=body, headers=JSON)


def test_a_body_that_is_too_large_is_a_413(client: Client) -> None:
    large = json.dumps({"name": "a" * BODY_BYTES_MAX, "config": {}}).encode()
    assert "MiB" in message(client, "POST", "/connectors", 413, content=large, headers=JSON)

    def chunks() -> object:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    assert "MiB" in message(client, "POST", "/connectors", 413, content=chunks(), headers=JSON)


def test_unknown_places_and_methods(client: Client) -> None:
    assert "/docs" in message(client, "GET", "/nowhere", 404)
    assert "/docs" in message(client, "DELETE", "/connectors", 405)
    assert client.delete("/connectors").headers["allow"] == "GET, POST"
    assert client.post("/connectors/x/config").headers["allow"] == "GET, PATCH, PUT"
    assert "/docs" in message(client, "GET", "/page/../service.py", 404)
    assert client.get("/connectors/").json() == []


def test_every_answer_is_protected(client: Client) -> None:
    for path in ("/", "/connectors", "/nowhere", "/docs"):
        headers = client.get(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_the_root_is_for_programs_and_for_people(client: Client) -> None:
    assert sorted(client.get("/").json()) == ["commit", "kafka_cluster_id", "version"]
    page = client.get("/", headers={"accept": "text/html,*/*"})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/")


def test_a_page_from_elsewhere_is_refused(client: Client) -> None:
    foreign = {"origin": "http://evil.example"}
    body = {"name": "shop", "config": SHOP, "initial_state": "STOPPED"}
    assert "elsewhere" in message(client, "POST", "/connectors", 403, json=body, headers=foreign)
    assert "elsewhere" in message(client, "POST", "/connectors", 403, json=body, headers={"origin": "null"})
    own = {"origin": str(client.base_url).rstrip("/")}
    assert client.post("/connectors", json=body, headers=own).status_code == 201
    assert "Host" in message(client, "GET", "/connectors", 403, headers={"host": "evil.example"})
    assert client.get("/connectors", headers={"host": "localhost:8083"}).status_code == 200


def test_what_nobody_has_foreseen_is_a_sentence_and_its_trace_tells_no_secret(
    shop: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError(f"it holds {PASSWORD}")

    monkeypatch.setattr(shop.service, "status", broken)
    assert "RuntimeError" in message(shop, "GET", "/connectors/shop/status", 500)
    assert "it holds ****" in caplog.text
    assert "Traceback" in caplog.text
    assert PASSWORD not in caplog.text + "".join(capfd.readouterr())


def test_tokens_and_their_roles(open_client: Open) -> None:
    client = open_client(auth.load(None, {"TIDELOG_TOKENS": TOKENS}))

    def code(method: str, path: str, token: str, **more: object) -> int:
        headers = {"authorization": f"Bearer {token}-0123456789abcdef"} if token else {}
        return int(client.request(method, path, headers=headers, **more).status_code)  # type: ignore[arg-type]

    body = {"name": "erp", "config": {"connector.class": "mysql"}, "initial_state": "STOPPED"}
    assert [code("GET", "/connectors", t) for t in ("", "nobody", "reader", "operator", "admin")] == [
        401,
        401,
        200,
        200,
        200,
    ]
    assert [code("POST", "/connectors", t, json=body) for t in ("", "reader", "operator", "admin")] == [
        401,
        403,
        403,
        201,
    ]
    assert [code("PUT", "/connectors/erp/stop", t) for t in ("", "reader", "operator")] == [401, 403, 204]
    assert [code("GET", path, "") for path in ("/metrics", "/events", "/connectors/erp/offsets")] == [401] * 3
    assert [code("GET", path, "") for path in ("/health", "/", "/openapi.json")] == [200] * 3
    offsets = {"offsets": [{"partition": {"server": "s"}, "offset": {"file": "mysql-bin.000001", "pos": 4}}]}
    assert code("PATCH", "/connectors/erp/offsets", "operator", json=offsets) == 200
    headers = {"authorization": "bearer admin-0123456789abcdef"}
    (change,) = client.get("/connectors/erp/offsets/history", headers=headers).json()["changes"]
    assert change["who"] == "operate"
    assert client.get("/connectors").headers["www-authenticate"] == "Bearer"


def test_the_live_events_tell_what_happens(shop: Client) -> None:
    heard = []
    with httpx.stream("GET", f"{shop.base_url}/events", timeout=wall_seconds()) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        shop.put("/connectors/shop/pause")
        for line in lines:
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: ")))
                break
    assert heard == [{"connector": "shop", "state": "PAUSED", "trace": ""}]


def test_validation_names_every_setting(client: Client) -> None:
    config = SHOP | {"name": "shop", "database.port": "many", "sink.path": ""}
    told = client.put("/connector-plugins/postgres/config/validate", json=config).json()
    assert (told["error_count"], told["groups"][0]) == (2, "Common")
    by_name = {info["definition"]["name"]: info for info in told["configs"]}
    assert by_name["database.password"]["value"]["value"] == "****"
    assert by_name["database.password"]["definition"]["type"] == "PASSWORD"
    assert by_name["database.port"]["value"]["errors"]
    assert by_name["sink.path"]["value"]["errors"]
    assert "initial" in by_name["snapshot.mode"]["value"]["recommended_values"]
    assert by_name["snapshot.mode"]["definition"]["group"] == "Snapshot"
    assert all(info["definition"]["documentation"] for info in told["configs"])
    other = client.put("/connector-plugins/mysql/config/validate", json=config)
    assert other.status_code == 400
    assert client.put("/connector-plugins/nosuch/config/validate", json=config).status_code == 400
    names = [d["name"] for d in client.get("/connector-plugins/postgres/config").json()]
    assert {"connector.class", "database.hostname", "sink.path", "stream.trigger", "journal.path"} <= set(names)


def test_a_source_that_is_away_is_a_finding(shop: Client) -> None:
    body = {"config": shop.get("/connectors/shop/config").json()}
    findings = shop.post("/connector-plugins/postgres/check", json=body).json()["findings"]
    assert "error" in {f["level"] for f in findings}
    findings = shop.post("/connector-plugins/mysql/check", json={"config": {"name": "x"}}).json()["findings"]
    assert [f["level"] for f in findings] == ["warning"]


def test_signals_are_left_for_the_next_run(shop: Client) -> None:
    path = "/connectors/shop/signals"
    assert shop.post(path, json={"type": "log", "data": {"message": "hello {}"}, "id": "one"}).json() == {"id": "one"}
    assert "used before" in message(shop, "POST", path, 400, json={"type": "pause-snapshot", "id": "one"})
    assert "execute-snapshot" in message(shop, "POST", path, 400, json={"type": "execute-snapshto"})
    assert [s["id"] for s in shop.get(path).json()["signals"]] == ["one"]
    for call in ("pause", "resume", "stop"):
        assert shop.put(f"/connectors/shop/snapshots/{call}").status_code == 202
    assert "does not capture" in message(shop, "PUT", "/connectors/erp/snapshots/pause", 409)
