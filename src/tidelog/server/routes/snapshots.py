"""Snapshots on demand, the signals that ask for them, and the notifications that tell how they go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from tidelog.engine import flat, requests
from tidelog.engine.definition import connector_of
from tidelog.engine.home import Home
from tidelog.engine.watching import walks
from tidelog.errors import Conflict
from tidelog.model.control import Told
from tidelog.server import models
from tidelog.server.news import NOTIFICATION, SIGNAL, shown
from tidelog.server.routes.asked import Asked, Name, Operator, Reader, answers, moment
from tidelog.server.service import Service

router = APIRouter(tags=["snapshots"])
After = Annotated[int, Query(ge=0, le=2**62, description="Only what was told after this number.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
_REFUSED = answers(404, 409)


@router.get("/connectors/{name}/signals", responses=answers(404))
def get_signals(name: Name, service: Asked, _: Reader, after: After = 0, limit: Limit = 100) -> models.Signals:
    """The signals that were sent through this service, oldest first."""
    service.connector(name)
    return models.Signals(
        signals=[_signal(told) for told in service.store.told(SIGNAL, name, after=after, limit=limit)]
    )


@router.post("/connectors/{name}/signals", status_code=201, responses=_REFUSED)
def send_signal(name: Name, body: models.NewSignal, service: Asked, _: Operator) -> models.SignalId:
    """Leave a signal; the connector follows it at once, or when it runs again."""
    return _left(service, name, body.type, body.data, body.id)


@router.get("/connectors/{name}/snapshots", responses=answers(404))
def get_snapshots(name: Name, service: Asked, _: Reader) -> models.Snapshots:
    """The tables that are being read or wait for it, and the snapshots that ended since the service runs."""
    service.connector(name)
    now = walks(Home.at(name))
    return models.Snapshots(
        paused=now.paused,
        tables=[models.Walk(**asdict(walk)) for walk in now.tables],
        ended=[models.EndedSnapshot(**asdict(ended)) for ended in reversed(service.ended(name))],
    )


@router.post("/connectors/{name}/snapshots", status_code=202, responses=_REFUSED)
def take_snapshot(name: Name, body: models.NewSnapshot, service: Asked, _: Operator) -> models.SignalId:
    """Read the present rows of tables once more, while the stream goes on."""
    data = requests.wanted(body.tables, where=body.where, surrogate_key=body.surrogate_key, blocking=body.blocking)
    return _left(service, name, "execute-snapshot", data, body.id)


@router.put("/connectors/{name}/snapshots/pause", status_code=202, responses=_REFUSED)
def pause_snapshots(name: Name, service: Asked, _: Operator) -> models.SignalId:
    """Let the snapshots rest; the stream goes on."""
    return _left(service, name, "pause-snapshot", {})


@router.put("/connectors/{name}/snapshots/resume", status_code=202, responses=_REFUSED)
def resume_snapshots(name: Name, service: Asked, _: Operator) -> models.SignalId:
    """Let the snapshots go on where they were."""
    return _left(service, name, "resume-snapshot", {})


@router.put("/connectors/{name}/snapshots/stop", status_code=202, responses=_REFUSED)
def stop_snapshots(
    name: Name, service: Asked, _: Operator, body: models.SnapshotTables | None = None
) -> models.SignalId:
    """End the snapshots of some tables, or all of them; what is delivered stays."""
    return _left(service, name, "stop-snapshot", {"data-collections": body.tables} if body and body.tables else {})


@router.get("/connectors/{name}/notifications", responses=answers(404))
def get_notifications(
    name: Name, service: Asked, _: Reader, after: After = 0, limit: Limit = 100
) -> models.Notifications:
    """What the connector has told, oldest first: the newest `limit` after a number."""
    service.news(name).take()
    found = service.store.told(NOTIFICATION, name, after=after, limit=limit)
    return models.Notifications(notifications=[models.Notification(**shown(told)) for told in found])


def _left(service: Service, name: str, type: str, data: Mapping[str, object], id: str = "") -> models.SignalId:
    with service.only(name) as connector:
        if not flat.plugin_of(connector.config).captures:
            raise Conflict(f"{name!r} cannot follow signals: it does not capture yet.", hint="Manage its offsets.")
        requests.require_heard(connector_of(service.definition(name)).snapshot_settings())
        left = requests.ask(Home.open(name), type, dict(data), id)
        service.store.tell(SIGNAL, Told(name, left, type, dict(data), time.time_ns() // 1000))
    return models.SignalId(id=left)


def _signal(told: Told) -> models.Signal:
    at = moment(told.at_us)
    return models.Signal(number=told.number, id=told.id, type=told.type, data=dict(told.data), at=at)
