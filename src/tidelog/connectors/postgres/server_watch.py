"""The watch over operations in flight: notices a server that no longer answers, although its connections stay open.

A frozen server (a hung virtual machine, stopped processes) closes nothing: the kernel, or a proxy, acknowledges every
packet, and a query waits for its answer forever. Silence alone proves nothing, because long queries, waits for locks
and the decoding of a huge transaction are silent too. So one thread per process looks after the operations in flight.
Where one has been silent for `SILENCE_S`, the thread asks the same server by a new connection. Any byte in answer means
that the server lives: the operation goes on, and the next question follows after the same time. Without an answer, the
operations that wait for this server are ended by a shutdown of their sockets: each fails in its own thread, as when its
connection breaks.

The question is PostgreSQL's request for TLS. A server answers it before it knows the user, also while it starts up or
has no connection left. It goes to the address of the connection in flight: the configured name may mean another server
by now.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_LOG = logging.getLogger("tidelog")

SILENCE_S = 30.0
"""An operation that has received nothing for so long gives reason to ask the server."""
_LOOKS_PER_SILENCE = 10
_RETRY_S = 1.0
"""A refusal comes at once, and may be the moment in which a proxy restarts."""
_TLS_REQUEST = struct.pack(">II", 8, 80877103)
_TLS_ACCEPTED = b"S"
_NO_ANSWER = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.EHOSTDOWN,
    errno.ENETUNREACH,
    errno.ENETDOWN,
}
"""Errors of a connection that tell of the server or the way to it. Others, such as too many open files, are ours."""

Peer = tuple[socket.AddressFamily, Any]
"""Where a connection leads: the kind of address, and the address."""


class Operation:
    """A query, a COPY or a replication stream: what its thread waits for. The thread writes, the watch reads; a single
    assignment needs no lock."""

    def __init__(self, fileno: int, connect_timeout_s: float) -> None:
        self._socket = duplicate_socket(fileno)
        """None where there is none: then the operation is not watched."""
        self._socket_in_use = threading.Lock()
        """Held while the watch uses the socket, or it is closed: its number may soon mean another file."""
        self._ended = False
        self.connect_timeout_s = connect_timeout_s
        self.began_s = time.monotonic()
        self.active_s = self.began_s
        """When it last received a byte, or began to wait."""
        self.answered_s = self.began_s
        """When the server last answered the watch."""
        self.paused = False
        """The thread does not wait for the server now."""
        self.unanswered_s = 0.0
        """How long the server had not answered when the watch ended the operation; 0: the watch did not."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While the body runs, the thread works with what has come."""
        self.paused = True
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """The thread waits for the server again."""
        if self.paused:
            self.active_s = time.monotonic()
            self.paused = False

    def silent_s(self, now_s: float) -> float:
        """How long neither the operation nor the watch has heard of the server."""
        return 0.0 if self.paused else now_s - max(self.active_s, self.answered_s)

    def find_peer(self) -> Peer | None:
        """None for a connection that has already failed."""
        with self._use_socket() as duplicate:
            try:
                return (duplicate.family, duplicate.getpeername()) if duplicate is not None else None
            except OSError:
                return None

    def cut(self, unanswered_s: float) -> None:
        with self._use_socket() as duplicate:
            if duplicate is None:
                return
            self.unanswered_s = unanswered_s
            with suppress(OSError):  # it failed by itself meanwhile
                duplicate.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _use_socket(self) -> Iterator[socket.socket | None]:
        with self._socket_in_use:
            yield None if self._ended else self._socket
        self._close_if_ended()

    def end(self) -> None:
        """Never waits. The garbage collector ends the operation of an abandoned generator in any thread and at any
        line, and the thread may be the one that uses the socket: then that one closes it."""
        self._ended = True
        self._close_if_ended()

    def _close_if_ended(self) -> None:
        if self._ended and self._socket is not None and self._socket_in_use.acquire(blocking=False):
            try:
                self._socket.close()
            finally:
                self._socket_in_use.release()


def duplicate_socket(fileno: int) -> socket.socket | None:
    """The socket under a number of its own, so that it stays valid when the driver closes its own; None where there is
    none, as with too many open files: a query without the watch is better than no query."""
    try:
        duplicate = os.dup(fileno)
        try:
            return socket.socket(fileno=duplicate)
        except OSError:
            os.close(duplicate)
            raise
    except OSError as exc:
        _LOG.debug("A socket is not watched: %s", exc)
        return None


class ServerWatch:
    """The operations in flight of this process, and the thread that looks after them."""

    def __init__(self) -> None:
        self._operations: set[Operation] = set()
        """Without a lock: to add, to discard and to copy are single steps of the interpreter. The garbage collector may
        end an operation at any other moment, also in the thread that looks through them."""
        self._lock = threading.RLock()
        """One thread is started."""
        self._thread: threading.Thread | None = None

    def add(self, operation: Operation) -> None:
        self._operations.add(operation)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="tidelog-server-watch", daemon=True)
            try:
                thread.start()
            except RuntimeError as exc:  # no thread is left; the next operation tries again
                _LOG.debug("Connections are not watched: %s", exc)
                return
            self._thread = thread

    def remove(self, operation: Operation) -> None:
        self._operations.discard(operation)
        operation.end()

    def forget_all(self) -> None:
        """In a child process: the connections belong to the parent, and only the copies of their sockets are closed."""
        for operation in tuple(self._operations):
            operation.end()

    def _run(self) -> None:
        while True:
            time.sleep(SILENCE_S / _LOOKS_PER_SILENCE)
            self.look()

    def look(self) -> None:
        """Ask each server of which an operation has heard nothing for too long."""
        now_s = time.monotonic()
        silent = [operation for operation in tuple(self._operations) if operation.silent_s(now_s) >= SILENCE_S]
        doubted = {peer: operation for operation in silent if (peer := operation.find_peer()) is not None}
        for peer, operation in doubted.items():
            self._ask(peer, operation.connect_timeout_s)

    def _ask(self, peer: Peer, timeout_s: float) -> None:
        asked_s = time.monotonic()
        has_answered = answers(peer, timeout_s)
        now_s = time.monotonic()
        operations = [operation for operation in tuple(self._operations) if operation.find_peer() == peer]
        # A server that sends on an older connection lives, whatever keeps it from taking new ones.
        if has_answered or any(operation.began_s < asked_s < operation.active_s for operation in operations):
            for operation in operations:
                operation.answered_s = now_s
            return
        waiting = [one for one in operations if not one.paused and one.active_s <= asked_s]
        unanswered_s = max((one.silent_s(now_s) for one in waiting), default=0.0)
        for operation in waiting:
            operation.cut(unanswered_s)
        if waiting:
            _LOG.info("The server at %s has not answered for %.0f s: connections cut", peer[1], unanswered_s)


def answers(peer: Peer, timeout_s: float) -> bool:
    """Whether the server sends anything to a new connection. The attempts are repeated until the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if _request_tls(peer, deadline_s):
                return True
        except OSError as exc:
            if not isinstance(exc, TimeoutError) and exc.errno not in _NO_ANSWER:
                return True  # nothing was learnt, and an operation is ended for a reason only
        if time.monotonic() + _RETRY_S >= deadline_s:
            return False
        time.sleep(_RETRY_S)


def _request_tls(peer: Peer, deadline_s: float) -> bool:
    """Whether a byte came. A proxy whose server is gone accepts a connection, and closes it without one."""
    family, address = peer
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(_left(deadline_s))
        connection.connect(address)
        connection.sendall(_TLS_REQUEST)
        connection.settimeout(_left(deadline_s))
        answer = connection.recv(1)
        if answer == _TLS_ACCEPTED:
            _complete_handshake(connection, deadline_s)
        return bool(answer)


def _complete_handshake(connection: socket.socket, deadline_s: float) -> None:
    """A server logs a handshake that is broken off; after it, it takes the end in silence. Nothing is sent, so the
    certificate does not matter, and neither does a failure: the server has answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError):
        connection.settimeout(_left(deadline_s))
        with context.wrap_socket(connection) as encrypted:
            encrypted.unwrap()  # reads what the server has sent, else the end would be a reset


def _left(deadline_s: float) -> float:
    return max(0.01, deadline_s - time.monotonic())


_watch = ServerWatch()


def begin_operation(fileno: int, connect_timeout_s: float) -> Operation:
    """Watch a connection until `end_operation`, which comes before the connection is closed or used otherwise."""
    operation = Operation(fileno, connect_timeout_s)
    _watch.add(operation)
    return operation


def end_operation(operation: Operation) -> None:
    _watch.remove(operation)


@contextmanager
def watch_operation(fileno: int, connect_timeout_s: float) -> Iterator[Operation]:
    operation = begin_operation(fileno, connect_timeout_s)
    try:
        yield operation
    finally:
        end_operation(operation)


def _start_anew() -> None:
    """A forked child has neither the thread nor the connections, and perhaps a lock that nobody releases."""
    global _watch
    inherited, _watch = _watch, ServerWatch()
    inherited.forget_all()


os.register_at_fork(after_in_child=_start_anew)
