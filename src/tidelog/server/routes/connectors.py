"""Connectors: created, looked at, configured anew, removed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from tidelog.engine import flat
from tidelog.errors import ConfigError
from tidelog.model.control import STOPPED, Connector
from tidelog.server import models
from tidelog.server.routes.asked import Admin, Asked, Name, Reader, answers, texts
from tidelog.server.service import Service

router = APIRouter(tags=["connectors"])
_NOTHING: list[str] = []


def info(service: Service, connector: Connector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "config": flat.shown(connector.config),
        "tasks": tasks(service, connector),
        "type": "source",
    }


def tasks(service: Service, connector: Connector) -> list[dict[str, Any]]:
    """One, unless it is stopped."""
    stopped = service.state(connector)[0] == STOPPED
    return [] if stopped else [{"connector": connector.name, "task": 0}]


@router.get("/connectors", responses=answers())
def list_connectors(
    service: Asked, _: Reader, expand: Annotated[list[str], Query(description="status, info, or both.")] = _NOTHING
) -> list[str] | dict[str, dict[str, Any]]:
    """The names of all connectors, or, expanded, what there is to say of each."""
    if not expand:
        return service.names()
    return {connector.name: _expanded(service, connector, expand) for connector in service.store.connectors()}


def _expanded(service: Service, connector: Connector, expand: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if "status" in expand:
        said["status"] = service.status_of(connector)
    if "info" in expand:
        said["info"] = info(service, connector)
    return said


@router.post("/connectors", status_code=201, responses=answers(409))
def create_connector(body: models.NewConnector, service: Asked, _: Admin, response: Response) -> models.ConnectorInfo:
    """Create a connector. It starts at once unless `initial_state` says otherwise."""
    if not flat.named(body.name):
        raise ConfigError(
            f"The name {body.name[:80]!r} cannot be the name of a connector.",
            hint="Use letters, digits, '.', '_' and '-', starting with a letter or digit, up to 64.",
        )
    made = service.create(body.name, texts(body.config), body.initial_state)
    response.headers["location"] = f"/connectors/{made.name}"
    return models.ConnectorInfo(**info(service, made))


@router.get("/connectors/{name}", responses=answers(404))
def get_connector(name: Name, service: Asked, _: Reader) -> models.ConnectorInfo:
    """A connector's config and tasks."""
    return models.ConnectorInfo(**info(service, service.connector(name)))


@router.delete("/connectors/{name}", status_code=204, responses=answers(404, 409))
def delete_connector(name: Name, service: Asked, _: Admin) -> None:
    """End a connector and forget it. Its offsets and their history stay: one of the same name goes on from there."""
    service.delete(name)


@router.get("/connectors/{name}/config", responses=answers(404))
def get_config(name: Name, service: Asked, _: Reader) -> dict[str, str]:
    """The config; secrets are hidden."""
    return flat.shown(service.connector(name).config)


@router.put(
    "/connectors/{name}/config",
    responses={**answers(409), 201: {"model": models.ConnectorInfo, "description": "It was created."}},
)
def put_config(name: Name, config: models.Config, service: Asked, _: Admin, response: Response) -> models.ConnectorInfo:
    """Replace the config, and start a running connector with it; or create a connector, which starts. One whose plugin
    does not capture yet is created STOPPED."""
    if not flat.named(name):
        raise ConfigError(
            f"The name {name[:80]!r} cannot be the name of a connector.",
            hint="Use letters, digits, '.', '_' and '-', starting with a letter or digit, up to 64.",
        )
    connector, created = service.configure(name, texts(config))
    if created:
        response.status_code = 201
        response.headers["location"] = f"/connectors/{name}"
    return models.ConnectorInfo(**info(service, connector))


@router.patch("/connectors/{name}/config", responses=answers(404, 409))
def patch_config(name: Name, config: models.Config, service: Asked, _: Admin) -> models.ConnectorInfo:
    """Change some settings; null removes one."""
    before = service.connector(name)
    given = flat.kept(texts(config), before.config)
    removed = {flat.real(key, before.config) for key, value in config.items() if value is None}
    merged = {key: text for key, text in before.config.items() if key not in removed} | given
    connector, _created = service.configure(name, merged, before)
    return models.ConnectorInfo(**info(service, connector))


@router.get("/connectors/{name}/tasks", responses=answers(404))
def get_tasks(name: Name, service: Asked, _: Reader) -> list[models.TaskConfig]:
    """The tasks: one, unless the connector is stopped."""
    connector = service.connector(name)
    config = flat.shown(connector.config)
    return [models.TaskConfig(id=models.Task(**task), config=config) for task in tasks(service, connector)]


@router.get("/connectors/{name}/topics", responses=answers(404))
def get_topics(name: Name, service: Asked, _: Reader) -> dict[str, dict[str, list[str]]]:
    """The tables that this service has delivered events of, as topics."""
    connector = service.connector(name)
    prefix = connector.config.get("topic.prefix") or connector.config.get("database.dbname", name)
    return {name: {"topics": sorted(f"{prefix}.{table}" for table in service.counts(name))}}


@router.put("/connectors/{name}/topics/reset", status_code=202, response_class=Response, responses=answers(404))
def reset_topics(name: Name, service: Asked, _: Admin) -> Response:
    """Kafka Connect's clients may ask for it; there is nothing to reset."""
    service.connector(name)
    return Response(status_code=202)
