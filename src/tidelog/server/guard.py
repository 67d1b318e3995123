"""What every request passes before a route sees it, and every answer before it leaves.

A body is small, and is JSON that can be stored and written again: no endless nesting, no `NaN`, no half of a character.
Whatever fails, the answer is Kafka Connect's `{"error_code", "message"}`, one sentence and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.server.auth import Access, Denied

BODY_BYTES_MAX = 1 << 20
BODY = "tidelog.body"
"""Where the scope of a request has its body, as JSON says it."""
_DEPTH_MAX = 64
_HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
}


class Guard:
    def __init__(self, app: ASGIApp, access: Access, failed: Callable[[Request, Exception], Response]) -> None:
        """`failed` answers what no route has foreseen."""
        self._app = app
        self._access = access
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        send = _protected(send)
        try:
            self._access.require_own(scope["method"], Headers(scope=scope))
            body = await _body(scope, receive)
            scope[BODY] = _parsed(body) if body and body.strip() else None
        except Denied as denied:
            return await error(denied.code, denied.sentence)(scope, receive, send)
        if body is None:  # the client has gone
            return None
        path = scope["path"]
        if len(path) > 1 and path.endswith("/") and not path.startswith("/page/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        return await self._guarded(scope, _again(body, receive), send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as exc:  # noqa: BLE001  the last resort: a sentence instead of a stack trace
            answer = self._failed(Request(scope), exc)
            if not begun:
                await answer(scope, receive, send)


def error(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer in the form of Kafka Connect's."""
    more = {"www-authenticate": "Bearer"} if code == 401 else {}
    return JSONResponse({"error_code": code, "message": message}, code, headers={**more, **(headers or {})})


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        raise Denied(413, _TOO_LARGE)
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES_MAX:
            raise Denied(413, _TOO_LARGE)
        more = message.get("more_body", False)
    return b"".join(parts)


_TOO_LARGE = f"The body is larger than {BODY_BYTES_MAX >> 20} MiB. Send less at once."


def _parsed(body: bytes) -> Any:
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_number)
        _require_plain(value, _DEPTH_MAX)
        return value
    except (ValueError, RecursionError) as exc:
        reason = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)[:200]
        raise Denied(400, f"The body is not JSON that can be read: {reason}. Check quotes, commas and braces.") from exc


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _require_plain(value: Any, depth: int) -> None:
    """What cannot be stored or written again is refused here."""
    if depth == 0:
        raise RecursionError
    match value:
        case str():
            if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
                raise ValueError("a text holds NUL, or half of a surrogate pair")
        case float():
            if value in (float("inf"), float("-inf")):
                raise ValueError("a number is too large")
        case dict():
            for key, inner in value.items():
                _require_plain(key, depth)
                _require_plain(inner, depth - 1)
        case list():
            for inner in value:
                _require_plain(inner, depth - 1)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes: streams notice when their client goes."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _protected(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return with_headers
