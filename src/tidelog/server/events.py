"""What happens, told to whoever listens (server-sent events).

Each listener has a short queue of its own. One that does not keep up is let go, so that nobody slow holds memory or
the others back; a browser comes again by itself and asks for what it missed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tidelog.errors import TransientError

TYPES = ("status", "metrics", "snapshot", "notification", "offsets")
_WAITING_MAX = 256
_LISTENERS_MAX = 64
_HEARTBEAT_S = 15.0


class _Listener:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[str | None] = asyncio.Queue(_WAITING_MAX)
        self.late = False

    def put(self, text: str | None) -> None:
        try:
            self.queue.put_nowait(text)
        except asyncio.QueueFull:
            self.late = True


class Events:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[_Listener] = []
        self._over = False

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        """From any thread, and without waiting."""
        self._put(f"event: {type}\ndata: {json.dumps(data)}\n\n")

    def end(self) -> None:
        """Let everybody go."""
        self._over = True
        self._put(None)

    async def listen(self) -> AsyncIterator[str]:
        """What is told from now on, with a sign of life while there is nothing to tell."""
        listener = self._join()
        try:
            yield ": listening\n\n"
            while not (listener.late or self._over):
                text = await _next(listener)
                if text is None:
                    return
                yield text
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def require_room(self) -> None:
        """Refuse one listener too many before an answer has begun."""
        if len(self._listeners) >= _LISTENERS_MAX:
            raise TransientError("Too many listen to the events already.", hint="Close some, or come again later.")

    def _join(self) -> _Listener:
        listener = _Listener()
        with self._lock:
            self._listeners.append(listener)
        return listener

    def _put(self, text: str | None) -> None:
        with self._lock:
            for listener in self._listeners:
                if not listener.loop.is_closed():
                    listener.loop.call_soon_threadsafe(listener.put, text)


async def _next(listener: _Listener) -> str | None:
    try:
        return await asyncio.wait_for(listener.queue.get(), _HEARTBEAT_S)
    except TimeoutError:
        return ": still here\n\n"
