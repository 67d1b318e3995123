"""A tidelog server, asked over REST: what it answers, or the sentence with which it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from tidelog.errors import ConfigError, Conflict, NotFound, Refused, TidelogError, TransientError

DEFAULT = "http://127.0.0.1:8083"
_PATIENCE_S = 60
_KINDS: dict[int, type[TidelogError]] = {404: NotFound, 409: Conflict, 503: TransientError}


@dataclass(frozen=True)
class Server:
    url: str
    token: str = ""

    @staticmethod
    def named(url: str | None) -> Server:
        """The server at `url`, else the one that the environment names, else the one on this machine."""
        return Server(
            (url or os.environ.get("TIDELOG_SERVER") or DEFAULT).rstrip("/"), os.environ.get("TIDELOG_TOKEN", "")
        )

    def ask(self, method: str, *path: str, body: object = None, query: Sequence[tuple[str, str]] = ()) -> Any:
        """The answer, from JSON; None when there is nothing to say."""
        url = "/".join([self.url, *(quote(part, safe="") for part in path)])
        url += f"?{urlencode(query)}" if query else ""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with urlopen(Request(url, data, headers, method=method), timeout=_PATIENCE_S) as answer:
                text = answer.read()
        except HTTPError as exc:
            raise _refusal(exc) from exc
        except (URLError, OSError, ValueError) as exc:
            reason = getattr(exc, "reason", exc)
            raise ConfigError(
                f"The server {self.url} does not answer ({reason}).",
                hint="Start it with: tidelog server; or name another one with --server.",
            ) from exc
        return json.loads(text) if text else None


def _refusal(exc: HTTPError) -> TidelogError:
    text = exc.read().decode(errors="replace")
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The server answered {exc.code}: {text[:200]}"
    if exc.code == 401:
        return ConfigError(message, hint="Set TIDELOG_TOKEN to a token that the server knows.")
    return _KINDS.get(exc.code, Refused)(message)
