"""The service behind a socket: an HTTP server in a thread of its own, so that the process keeps its signals."""

from __future__ import annotations

import socket
import threading

import uvicorn

from tidelog.errors import ConfigError
from tidelog.server.app import create_app
from tidelog.server.auth import Access
from tidelog.server.service import Service


class Served:
    """Listens from the beginning. When it ends, what runs is ended with it, and remembered."""

    def __init__(self, service: Service, listener: socket.socket, access: Access | None = None) -> None:
        self._service = service
        config = uvicorn.Config(
            create_app(service, access), log_config=None, access_log=False, timeout_graceful_shutdown=5, lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="tidelog-server", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def started(self) -> bool:
        return self._server.started

    def end(self) -> None:
        """First those who listen to events go, then the server, then the queries."""
        self._service.events.end()
        self._server.should_exit = True
        self._thread.join()


def listening(host: str, port: int) -> socket.socket:
    """A socket of our own, so that a port that is taken is a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # whoever reads the address and comes at once waits, and is not refused
    except (OSError, OverflowError) as exc:
        listener.close()
        reason = exc.strerror if isinstance(exc, OSError) else "a port is a number up to 65535"
        raise ConfigError(
            f"tidelog cannot listen on {host}:{port} ({reason}).", hint="Choose another --port or --host."
        ) from exc
    return listener


def address(listener: socket.socket) -> str:
    """Host and port, as a browser writes them."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
