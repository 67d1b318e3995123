"""Offsets: read, understood, changed, undone. The rules are those of `engine.control`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from tidelog.engine import flat
from tidelog.engine.control import Part, shown
from tidelog.model.control import Change
from tidelog.server import models
from tidelog.server.routes.asked import Asked, Name, Operator, Reader, answers, moment
from tidelog.server.service import Service

router = APIRouter(tags=["offsets"])
_ALTERED = "The offsets for this connector have been altered successfully"
_RESET = "The offsets for this connector have been reset successfully"
_REFUSED = answers(404, 409)


@router.get("/connectors/{name}/offsets", responses=answers(404))
def get_offsets(name: Name, service: Asked, _: Reader) -> models.Offsets:
    """How far the connector has come, by partition; allowed in any state."""
    service.connector(name)
    entries = [models.OffsetEntry(**entry) for entry in service.control.offsets(name)]
    return models.Offsets(offsets=entries)


@router.patch("/connectors/{name}/offsets", responses=_REFUSED)
def patch_offsets(name: Name, body: models.OffsetsEdit, service: Asked, who: Operator) -> models.Message:
    """Put other offsets in place, while the connector is STOPPED. The next start jumps there."""
    with service.only(name):
        service.control.alter(name, _edit(body), who=who, why=body.why)
    return _told(service, name, _ALTERED)


@router.delete("/connectors/{name}/offsets", responses=_REFUSED)
def delete_offsets(
    name: Name, service: Asked, who: Operator, why: Annotated[str, Query(max_length=1000)] = ""
) -> models.Message:
    """Take all offsets away, while the connector is STOPPED: the next start behaves as the first."""
    with service.only(name):
        service.control.delete(name, who=who, why=why)
    return _told(service, name, _RESET)


@router.post("/connectors/{name}/offsets/preview", responses=answers(404))
def preview_offsets(name: Name, body: models.OffsetsEdit, service: Asked, _: Reader) -> models.Preview:
    """What an edit would do: nothing is changed, and it is allowed in any state."""
    service.connector(name)
    found = service.control.preview(name, _edit(body))
    hidden = flat.secrets(service.connector(name).config)
    return models.Preview(
        possible=found.possible,
        parts=[models.PreviewPart(**_part(part, hidden)) for part in found.parts],
        problems=[models.Problem(**asdict(problem)) for problem in found.problems],
    )


@router.get("/connectors/{name}/offsets/history", responses=answers(404))
def get_history(
    name: Name,
    service: Asked,
    _: Reader,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="Only changes with a lower id.")] = None,
) -> models.Changes:
    """Every edit, the newest first."""
    service.connector(name)
    found = service.control.history(name, limit=limit, before=before)
    return models.Changes(changes=[models.Change(**_change(change)) for change in found])


@router.post("/connectors/{name}/offsets/undo", responses=_REFUSED)
def undo_offsets(name: Name, service: Asked, who: Operator, body: models.Reason | None = None) -> models.Message:
    """Take the last edit back, while the connector is STOPPED."""
    with service.only(name):
        changes = service.control.undo(name, who=who, why=body.why if body else "")
    numbers = ", ".join(str(change.undoes) for change in changes)
    return _told(service, name, f"Change {numbers} of the offsets was taken back.")


@router.get("/connectors/{name}/offsets/export", responses=answers(404))
def export_offsets(name: Name, service: Asked, _: Reader) -> models.Offsets:
    """The offsets as Kafka Connect takes them."""
    service.connector(name)
    return models.Offsets(**service.control.export(name))


@router.post("/connectors/{name}/offsets/import", responses=_REFUSED)
def import_offsets(name: Name, body: models.OffsetsEdit, service: Asked, who: Operator) -> models.Message:
    """Take over exported offsets, from here or from Kafka Connect, while the connector is STOPPED."""
    with service.only(name):
        service.control.load(name, _edit(body), who=who, why=body.why)
    return _told(service, name, "The offsets were imported.")


def _edit(body: models.OffsetsEdit) -> dict[str, Any]:
    return {"offsets": [entry.model_dump() for entry in body.offsets]}


def _told(service: Service, name: str, message: str) -> models.Message:
    service.events.tell("offsets", {"connector": name, "message": message})
    return models.Message(message=message)


def _part(part: Part, hidden: list[str]) -> dict[str, Any]:
    problems = [asdict(problem) for problem in part.problems]
    return {
        "partition": dict(part.partition),
        "before": shown(part.before),
        "after": shown(part.after),
        "direction": part.direction,
        "consequence": flat.scrubbed(part.consequence, hidden),
        "refused": flat.scrubbed(part.refused, hidden),
        "hint": flat.scrubbed(part.hint, hidden),
        "problems": problems,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "id": change.id,
        "partition": dict(change.partition),
        "action": change.action,
        "before": shown(change.before),
        "after": shown(change.after),
        "who": change.who,
        "why": change.why,
        "at": moment(change.at_us),
        "applied_at": None if change.applied_us is None else moment(change.applied_us),
        "undoes": change.undoes,
    }
