"""States: what a connector does, and being told to do something else."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from tidelog.errors import NotFound
from tidelog.model.control import PAUSED, RUNNING, STOPPED
from tidelog.server import models
from tidelog.server.routes.asked import Asked, Name, Operator, Reader, answers
from tidelog.server.service import Service

router = APIRouter(tags=["states"])
Number = Annotated[int, Path(ge=0, le=1_000_000, description="Always 0: a connector has one task.")]


@router.get("/connectors/{name}/status", responses=answers(404), response_model_exclude_none=True)
def get_status(name: Name, service: Asked, _: Reader) -> models.Status:
    """What the connector does, and why when it does not."""
    return models.Status(**service.status(name))


@router.put("/connectors/{name}/pause", status_code=202, response_class=Response, responses=answers(404, 409))
def pause(name: Name, service: Asked, _: Operator) -> Response:
    """End the query and keep the name: nobody else can run it, and its offsets cannot be changed."""
    service.become(name, PAUSED)
    return Response(status_code=202)


@router.put("/connectors/{name}/resume", status_code=202, response_class=Response, responses=answers(404, 409))
def resume(name: Name, service: Asked, _: Operator) -> Response:
    """Run a connector that was paused or stopped."""
    service.become(name, RUNNING)
    return Response(status_code=202)


@router.put("/connectors/{name}/stop", status_code=204, responses=answers(404, 409))
def stop(name: Name, service: Asked, _: Operator) -> Response:
    """End the query and let everything go: now the offsets can be changed."""
    service.become(name, STOPPED)
    return Response(status_code=204)


Truth = Annotated[bool, Query()]


@router.post(
    "/connectors/{name}/restart",
    status_code=204,
    responses={**answers(404, 409), 202: {"model": models.Status, "description": "With includeTasks or onlyFailed."}},
)
def restart(
    name: Name, service: Asked, _: Operator, includeTasks: Truth = False, onlyFailed: Truth = False
) -> Response:
    """End the query and start it anew; what is paused or stopped stays so."""
    service.restart(name, only_failed=onlyFailed)
    if not (includeTasks or onlyFailed):
        return Response(status_code=204)
    return JSONResponse(service.status(name), 202)


@router.get("/connectors/{name}/tasks/{task}/status", responses=answers(404), response_model_exclude_none=True)
def get_task_status(name: Name, task: Number, service: Asked, _: Reader) -> models.TaskState:
    """The state of a task."""
    return models.TaskState(**_task(service, name, task))


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=204, responses=answers(404, 409))
def restart_task(name: Name, task: Number, service: Asked, _: Operator) -> Response:
    """Restart the task, which is the connector."""
    _task(service, name, task)
    service.restart(name)
    return Response(status_code=204)


def _task(service: Service, name: str, number: int) -> dict[str, Any]:
    tasks = [task for task in service.status(name)["tasks"] if task["id"] == number]
    if not tasks:
        raise NotFound(f"Connector {name} has no task {number}.", hint="It has one, 0, unless it is stopped.")
    found: dict[str, Any] = tasks[0]
    return found
