"""The real driver over a wire that we hold: its own connection, cursor and JSON, and the connector on top."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mapepire_python.client.sql_job import SQLJob

from tests.iseries.driver import Server
from tests.iseries.run import OPTIONS
from tests.iseries.select import told
from tests.iseries.system import System
from tests.iseries.workload import ORDERS
from tidelog.connectors.iseries import client, connector
from tidelog.errors import ConfigError, PositionLost, TransientError

ROW = (7, "Äbc".ljust(8), ORDERS.fields[2].default(), ORDERS.fields[3].default(), None)


class Socket:
    """Answers the driver's requests as the server does: some rows with the first answer, the others when asked for."""

    def __init__(self, server: Server, refuse: str = "") -> None:
        self._server, self._refuse = server, refuse
        self._answers: list[str] = []
        self._left: dict[str, list[Any]] = {}

    def send(self, text: str) -> None:
        request = json.loads(text)
        assert "secret" not in text
        self._answers.append(json.dumps({"id": request["id"], **self._answer(request)}))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["type"]:
            case "connect" if self._refuse:
                return {"success": False, "error": self._refuse}
            case "connect":
                return {"success": True, "job": "000001/QUSER/QZDASOINIT"}
            case "prepare_sql_execute":
                return self._executed(request)
            case "sqlmore":
                return {"success": True, **self._taken(request["cont_id"], request["rows"])}
        return {"success": True}

    def _executed(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            rows = self._server.answer(request["sql"], request["parameters"] or [])
        except Exception as exc:  # noqa: BLE001  as the server tells it
            state = exc.__cause__.args[0]["sql_state"] if exc.__cause__ is not None else "38501"
            return {"success": False, "error": str(exc), "sql_rc": -443, "sql_state": state}
        names = [f"C{i}" for i in range(len(rows[0]) if rows else 1)]
        self._left[request["id"]] = [dict(zip(names, row, strict=True)) for row in rows]
        columns = [{"display_size": 10, "label": n, "name": n, "type": "VARCHAR"} for n in names]
        metadata = {"column_count": len(names), "columns": columns, "job": "j"}
        found = self._taken(request["id"], 1)
        return {"success": True, "has_results": True, "update_count": -1, "metadata": metadata, **found}

    def _taken(self, id: str, rows: int) -> dict[str, Any]:
        taken, self._left[id] = self._left[id][:rows], self._left[id][rows:]
        return {"data": taken, "is_done": not self._left[id]}

    def recv(self) -> str:
        return self._answers.pop(0)

    def close(self) -> None:
        self._answers = []


def wired(monkeypatch: pytest.MonkeyPatch, refuse: str = "") -> Server:
    server = Server(System([ORDERS]))
    monkeypatch.setattr(SQLJob, "_get_channel", lambda *_: Socket(server, refuse))
    return server


def test_rows_pass_through_the_real_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    server = wired(monkeypatch)
    source = connector.create(OPTIONS)
    tail = source.tail(source.prepare(), (), 1 << 20)
    for i in range(5):
        server.system.row("PT", ORDERS, i + 1, (i, *ROW[1:]))
    mixed = tail.poll(0, True)
    assert mixed is not None
    (block,) = mixed.blocks
    assert block.table is not None
    rows = source.decoder().typed(block.records, block.table, source.selection()).rows.to_pylist()
    assert [row["ID"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["CUSTOMER"] == ROW[1]
    tail.close()
    source.close()


def test_errors_pass_through_the_real_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    server = wired(monkeypatch)
    source = connector.create(OPTIONS)
    tail = source.tail(source.prepare(), (), 1 << 20)
    server.system.row("PT", ORDERS, 1, ROW)
    server.before = lambda sql: server.system.receivers.clear() if "DISPLAY_JOURNAL" in sql else None
    with pytest.raises(PositionLost, match="CPF7053"):
        tail.poll(0, True)


@pytest.mark.parametrize(
    ("text", "state", "expected"),
    [
        ("The object is not there.", "42704", ConfigError),
        ("Entry 42704 is in use.", "57033", TransientError),
    ],
)
def test_a_state_is_known_by_its_own_field(
    monkeypatch: pytest.MonkeyPatch, text: str, state: str, expected: type[Exception]
) -> None:
    server = wired(monkeypatch)
    source = connector.create(OPTIONS)
    source.prepare()

    def fail(_: str) -> None:
        raise told(text, state)

    server.before = fail
    with pytest.raises(expected, match=text):
        source.log_end()


def test_a_refused_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wired(monkeypatch, "The password is not correct for user READER: secret")
    with pytest.raises(ConfigError, match="refused reader") as refused:
        connector.create(OPTIONS).log_end()
    assert "secret" not in str(refused.value)


def test_a_server_that_is_away_is_waited_for() -> None:
    with pytest.raises(TransientError):
        connector.create({**OPTIONS, "database.hostname": "127.0.0.1", "database.port": "1"}).log_end()


def test_only_one_place_connects() -> None:
    assert client.CONNECT is client._connect
