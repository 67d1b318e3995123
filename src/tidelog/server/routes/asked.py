"""What the routes share: who asks, of which connector, and which answers a caller has to expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer

from tidelog.server import auth, models
from tidelog.server.service import Service

_BEARER = HTTPBearer(auto_error=False, description="Needed once the service has tokens: read, operate or admin.")
_MEANINGS = {
    400: "The request cannot be followed; the message says why.",
    401: "A token is needed.",
    403: "The token's role does not suffice, or the request comes from a foreign page.",
    404: "There is nothing of this name.",
    409: "Another call is busy with it, or its state does not allow this.",
    413: "The body is too large.",
    415: "The body does not say that it is JSON.",
    500: "tidelog made a mistake; its log says more.",
    503: "The source or the store cannot be reached at the moment.",
}
_ALWAYS = (400, 401, 403, 413, 415, 500, 503)


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that a route may answer with."""
    return {code: {"model": models.Error, "description": _MEANINGS[code]} for code in sorted({*codes, *_ALWAYS})}


def service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def needs(role: str) -> Callable[..., str]:
    """Whoever asks, by name, if the role suffices."""

    def holder(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> str:
        access: auth.Access = request.app.state.access
        return access.holder(role, request.headers.get("authorization", ""))

    return holder


Asked = Annotated[Service, Depends(service)]
Reader = Annotated[str, Depends(needs(auth.READ))]
Operator = Annotated[str, Depends(needs(auth.OPERATE))]
Admin = Annotated[str, Depends(needs(auth.ADMIN))]
Name = Annotated[str, Path(description="Name of the connector.", examples=["shop"])]
PluginName = Annotated[str, Path(description="postgres, or io.debezium.connector.postgresql.PostgresConnector.")]


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Kafka Connect takes numbers and truth values for texts; a null is left out."""
    return {key: _text(value) for key, value in config.items() if value is not None}


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def moment(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
