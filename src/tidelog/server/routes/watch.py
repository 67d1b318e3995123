"""Watching: the root, health, metrics, tables and the live events."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from tidelog.contracts import Scan
from tidelog.core.settings import utc_text
from tidelog.engine import flat
from tidelog.engine.dead_letters import DeadLetters
from tidelog.engine.definition import connector_of
from tidelog.engine.home import Home
from tidelog.engine.set_aside import SetAside
from tidelog.errors import TidelogError
from tidelog.model.version import __version__
from tidelog.server import metrics, models
from tidelog.server.routes.asked import Asked, Name, Reader, answers
from tidelog.server.service import FAILED, Service

router = APIRouter(tags=["watching"])
PAGE = files("tidelog.server") / "page"
_ESTIMATED_MAX = 200
_NO_PAGE = "This is tidelog. Its page is not installed here; the API is described at /docs."


@router.get(
    "/",
    responses={200: {"model": models.Root, "content": {"text/html": {}, "text/plain": {}}}, **answers()},
    response_model=None,
)
def root(request: Request) -> Response:
    """The web page when a browser asks, else what this is."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"version": __version__, "commit": "unknown", "kafka_cluster_id": "tidelog"})
    index = PAGE / "index.html"
    return HTMLResponse(index.read_text(encoding="utf-8")) if index.is_file() else PlainTextResponse(_NO_PAGE)


@router.get("/health", responses=answers())
def health(service: Asked, request: Request) -> models.Health:
    """Whether the service does its work: `degraded` when a connector has failed, its database does not answer, or the
    store is away. Why is told where no tokens are needed."""
    connectors = service.store.connectors()
    failed = [c.name for c in connectors if service.state(c)[0] == FAILED]
    sentences = [service.problem] if service.problem else []
    sentences += [f"Failed: {', '.join(failed)}."] if failed else []
    sentences += [sentence for c in connectors if (sentence := _unreachable(service, c.name))]
    told = "" if request.app.state.access.tokens else " ".join(sentences)  # it needs no token, so it tells no more
    return models.Health(status="degraded" if sentences else "ok", message=told)


def _unreachable(service: Service, name: str) -> str:
    since_us = service.progress(name).unreachable_since_us
    return f"The database of {name} has not answered since {utc_text(since_us)}." if since_us else ""


@router.get("/metrics", response_class=PlainTextResponse, responses=answers())
def prometheus(service: Asked, _: Reader) -> PlainTextResponse:
    """Metrics of all connectors for Prometheus."""
    return PlainTextResponse(metrics.text(service), media_type="text/plain; version=0.0.4")


@router.get("/connectors/{name}/metrics", responses=answers(404))
def get_metrics(name: Name, service: Asked, _: Reader) -> models.Metrics:
    """How the connector does now."""
    state, _why = service.state(service.connector(name))
    return models.Metrics(state=state, **asdict(service.latest(name)))


@router.get("/connectors/{name}/metrics/history", responses=answers(404))
def get_metrics_history(
    name: Name, service: Asked, _: Reader, seconds: Annotated[int, Query(ge=1, le=600)] = 600
) -> models.History:
    """How the connector did, second by second."""
    return models.History(points=[models.Point(**point) for point in service.history(name, seconds)])


@router.get("/connectors/{name}/tables", responses=answers(404))
def get_tables(name: Name, service: Asked, _: Reader) -> models.Tables:
    """The captured tables, with the events that were delivered and about how many rows they have."""
    service.connector(name)
    counts = service.counts(name)
    rows, message = _rows(service, name)
    home = Home.at(name)
    set_aside = {aside.name: str(aside) for aside in SetAside(home).all() if aside.waits}
    undecodable = {letters.table: letters.records for letters in DeadLetters(home).all()}
    tables = [
        models.Table(
            name=table,
            events=counts.get(table, 0),
            rows=rows.get(table),
            set_aside=set_aside.get(table, ""),
            undecodable=undecodable.get(table, 0),
        )
        for table in sorted({*rows, *counts, *set_aside, *undecodable})
    ]
    return models.Tables(tables=tables, message=message)


def _rows(service: Service, name: str) -> tuple[Mapping[str, int | None], str]:
    """By table; a source that cannot be asked is an answer too."""
    connector = service.connector(name)
    if not flat.plugin_of(connector.config).captures:
        return {}, "tidelog does not capture from it yet, so its tables are not known."
    try:
        with closing(connector_of(service.definition(name))) as source:
            tables = source.tables()
            found: dict[str, int | None] = dict.fromkeys(table.qualified for table in tables)
            for table in tables[:_ESTIMATED_MAX]:
                found[table.qualified] = max(0, source.estimate(Scan(table, table.key)))
            return found, ""
    except TidelogError as exc:
        return {}, flat.scrubbed(str(exc), flat.secrets(connector.config))


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events as they come."}, **answers()},
)
def listen(service: Asked, _: Reader) -> StreamingResponse:
    """What happens, live: `status`, `metrics`, `snapshot`, `notification` and `offsets`, each with its connector."""
    service.events.require_room()
    return StreamingResponse(service.events.listen(), media_type="text/event-stream")
