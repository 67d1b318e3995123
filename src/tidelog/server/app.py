"""The application: routes, errors in Kafka Connect's form, and an OpenAPI that says what really comes back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from traceback import format_exception
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tidelog.engine import flat
from tidelog.errors import ConfigError, Conflict, NotFound, PositionLost, Refused, TidelogError, TransientError
from tidelog.model.version import __version__
from tidelog.server.auth import Access, Denied
from tidelog.server.guard import BODY, Guard, error
from tidelog.server.routes import connectors, offsets, plugins, snapshots, states, watch
from tidelog.server.service import Service

_CODES = {NotFound: 404, Conflict: 409, Refused: 400, ConfigError: 400, PositionLost: 400, TransientError: 503}
_PARTS = (watch, connectors, states, offsets, snapshots, plugins)
_LOG = logging.getLogger("tidelog.server")


def create_app(service: Service, access: Access | None = None) -> FastAPI:
    app = FastAPI(
        title="tidelog",
        version=__version__,
        description="Change data capture for Apache Spark: Kafka Connect's REST, and more.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_alive,
    )
    app.state.service = service
    app.state.access = access or Access()
    for part in _PARTS:
        app.include_router(part.router)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=str(watch.PAGE), check_dir=False))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    _answer_errors(app)
    app.add_middleware(Guard, access=app.state.access, failed=_unexpected)
    return app


@asynccontextmanager
async def _alive(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await run_in_threadpool(service.open)
    yield
    await run_in_threadpool(service.close)


# -- errors ----------------------------------------------------------------------------------------------------------


def _answer_errors(app: FastAPI) -> None:
    app.add_exception_handler(TidelogError, _ours)
    app.add_exception_handler(Denied, _denied)
    app.add_exception_handler(RequestValidationError, _misshapen)
    app.add_exception_handler(HTTPException, _of_http)


def _ours(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, TidelogError)
    code = next((code for kind, code in _CODES.items() if isinstance(exc, kind)), 500)
    if code == 500:
        _log(request, exc)
    return error(code, flat.scrubbed(str(exc), _secrets(request)))


def _denied(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, Denied)
    return error(exc.code, exc.sentence)


def _misshapen(request: Request, exc: Exception) -> Response:
    """What the body or the query should have been; never what it was, which may be a secret."""
    assert isinstance(exc, RequestValidationError)
    if any(found["loc"][0] == "path" for found in exc.errors()):
        return _of_http(request, HTTPException(404))
    if request.scope.get(BODY) is not None and not _says_json(request):
        return error(415, "The body does not say that it is JSON. Send the header Content-Type: application/json.")
    told = [f"{_place(found['loc'])}: {found['msg']}" for found in exc.errors()[:5]]
    return error(400, f"The request is not understood: {'; '.join(told)}. See /docs for its form.")


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _place(location: tuple[int | str, ...]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location[1:]]
    return "".join(parts).lstrip(".") or str(location[0])


def _of_http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    sentences = {
        404: f"There is nothing at {request.url.path[:200]}. See /docs for what there is.",
        405: f"{request.method} is not possible here. See /docs for what is.",
    }
    headers = {"allow": _allowed(request)} if exc.status_code == 405 else dict(exc.headers or {})
    return error(exc.status_code, sentences.get(exc.status_code, str(exc.detail)), headers)


def _allowed(request: Request) -> str:
    """Each method has a route of its own; who asks with another one wants to know all of them."""
    routes = [r for part in _PARTS for r in part.router.routes if isinstance(r, APIRoute)]
    matching = [r for r in routes if r.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


def _unexpected(request: Request, exc: Exception) -> Response:
    _log(request, exc)
    return error(500, f"Unexpected {type(exc).__name__}. The log of the service says where.")


def _log(request: Request, exc: Exception) -> None:
    trace = flat.scrubbed("".join(format_exception(exc)), _secrets(request))
    _LOG.error("%s %s\n%s", request.method, request.url.path, trace)


def _secrets(request: Request) -> list[str]:
    """Of the connector that was asked about, and of the config that was sent: an error may repeat one."""
    sent = request.scope.get(BODY)
    sent = sent.get("config", sent) if isinstance(sent, dict) else {}
    found = flat.secrets({k: v for k, v in sent.items() if isinstance(v, str)} if isinstance(sent, dict) else {})
    try:
        return found + flat.secrets(request.app.state.service.connector(request.path_params.get("name", "")).config)
    except TidelogError:
        return found


# -- OpenAPI ---------------------------------------------------------------------------------------------------------


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Without FastAPI's 422: a body that is not understood is a 400, as everywhere."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operation in _operations(found):
            operation["responses"].pop("422", None)
        for unused in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(unused, None)
        app.openapi_schema = found
    return app.openapi_schema


def _operations(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in found["paths"].values() for operation in path.values()]


def _docs(request: Request) -> HTMLResponse:
    """What can be asked, on one page that needs nothing from elsewhere."""
    rows = [
        f"<tr><td><code>{method.upper()}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(operation.get('description', ''))}</td></tr>"
        for path, methods in request.app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>tidelog API</title><h1>tidelog API</h1>'
    more = '<p>In full, for programs: <a href="/openapi.json">/openapi.json</a></p>'
    return HTMLResponse(f"{head}{more}<table>{''.join(rows)}</table></html>")
