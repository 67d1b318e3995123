"""What the watch decides, on sockets whose other ends are played here."""

from __future__ import annotations

import _socket
import gc
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.patience import wait_until

from tidelog.connectors.postgres import server_watch
from tidelog.connectors.postgres.server_watch import Operation, Peer, ServerWatch

LONG_S = 600.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Takes connections as the kernel does for a frozen server: they open, and nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def unused_peer() -> Peer:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return socket.AF_INET, made.getsockname()


@contextmanager
def connected(listener: socket.socket, watch: ServerWatch) -> Iterator[Operation]:
    with socket.create_connection(listener.getsockname()) as connection:
        operation = Operation(connection.fileno(), 0.1)
        watch._operations.add(operation)
        try:
            yield operation
        finally:
            watch.remove(operation)


def is_cut(operation: Operation) -> bool:
    """Whether a thread that waits on the connection would hear of its end."""
    operation._socket.setblocking(False)
    try:
        return operation._socket.recv(1) == b""
    except BlockingIOError:
        return False


def make_silent(*operations: Operation, seconds: float = LONG_S) -> None:
    for operation in operations:
        operation.began_s -= seconds
        operation.active_s -= seconds
        operation.answered_s -= seconds


# -- which operations are ended ------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Peer]:
    """The servers that were asked; none of them answers."""
    peers: list[Peer] = []

    def note(peer: Peer, _: float) -> bool:
        peers.append(peer)
        return False

    monkeypatch.setattr(server_watch, "answers", note)
    return peers


def test_every_operation_that_waits_for_the_server_ends(listener: socket.socket, asked: list[Peer]) -> None:
    watch = ServerWatch()
    with connected(listener, watch) as silent, connected(listener, watch) as younger, ExitStack() as stack:
        paused = stack.enter_context(connected(listener, watch))
        make_silent(silent, paused)
        with paused.pause():
            watch.look()
            assert [is_cut(one) for one in (silent, younger, paused)] == [True, True, False]
            assert silent.unanswered_s == younger.unanswered_s >= LONG_S
            assert not paused.unanswered_s
        assert paused.silent_s(paused.active_s) == 0  # its pause was no silence
    assert asked == [(socket.AF_INET, listener.getsockname())]


def test_a_server_is_asked_after_a_long_silence_only(listener: socket.socket, asked: list[Peer]) -> None:
    watch = ServerWatch()
    with connected(listener, watch) as operation:
        make_silent(operation)
        operation.active_s += LONG_S
        watch.look()
        assert not asked
        assert not is_cut(operation)


def test_an_answer_counts_for_all_operations(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[Peer] = []
    monkeypatch.setattr(server_watch, "answers", lambda peer, _: answered.append(peer) is None)
    watch = ServerWatch()
    with connected(listener, watch) as first, connected(listener, watch) as second:
        make_silent(first, second)
        watch.look()
        watch.look()
        assert len(answered) == 1
        assert not is_cut(first)
        assert not is_cut(second)


def test_a_server_that_sends_on_an_older_connection_lives(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it takes no new ones."""
    watch = ServerWatch()
    with connected(listener, watch) as silent, connected(listener, watch) as stream:
        make_silent(silent, stream)

        def receive(*_: object) -> bool:
            stream.active_s += 2 * LONG_S
            return False

        monkeypatch.setattr(server_watch, "answers", receive)
        watch.look()
        assert not is_cut(silent)


def test_another_server_is_left_alone(listener: socket.socket, asked: list[Peer]) -> None:
    watch = ServerWatch()
    with (
        socket.create_server(("127.0.0.1", 0)) as other_listener,
        connected(listener, watch) as silent,
        connected(other_listener, watch) as other,
    ):
        make_silent(silent)
        watch.look()
        assert is_cut(silent)
        assert not is_cut(other)
    assert len(asked) == 1


def test_a_forked_child_cuts_nothing(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = ServerWatch()
    monkeypatch.setattr(server_watch, "_watch", inherited)
    with socket.create_connection(listener.getsockname()) as connection:
        operation = Operation(connection.fileno(), 0.1)
        inherited._operations.add(operation)
        with inherited._lock, operation._socket_in_use:  # held by the parent's threads when it forked
            server_watch._start_anew()
        assert not server_watch._watch._operations
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        server_watch.end_operation(operation)  # it began before the fork


class Cycle:
    """Only the garbage collector frees what it holds."""

    def __init__(self, held: object) -> None:
        self.held, self.itself = held, self


@pytest.mark.usefixtures("asked")
def test_the_garbage_collector_may_end_an_operation_at_any_line(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the thread of the watch, while it looks at that operation."""
    watch = ServerWatch()
    used: list[socket.socket] = []

    def abandoned() -> Iterator[Operation]:
        with connected(listener, watch) as operation:
            yield operation

    def getpeername(used_socket: socket.socket) -> object:
        used.append(used_socket)
        gc.collect()
        return _socket.socket.getpeername(used_socket)

    monkeypatch.setattr(socket.socket, "getpeername", getpeername)
    with connected(listener, watch) as silent:
        copy = abandoned()
        make_silent(silent, next(copy))
        cycle = Cycle(copy)
        del copy, cycle
        looking = threading.Thread(target=watch.look, daemon=True)
        looking.start()
        wait_until(lambda: not looking.is_alive(), "the end of the look")
        assert watch._operations == {silent}
        assert is_cut(silent)
    assert len(used) > 1
    assert {one.fileno() for one in used} == {-1}, "every copy of a socket is closed"


def test_the_watch_begins_as_soon_as_a_thread_can_be_started(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watch = ServerWatch()
    with ExitStack() as stack, socket.create_connection(listener.getsockname()) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            watch.add(first := Operation(connection.fileno(), 0.1))
        watch.add(second := Operation(connection.fileno(), 0.1))
        for operation in (first, second):
            stack.callback(watch.remove, operation)
        assert watch._operations == {first, second}
        assert watch._thread is not None
        assert watch._thread.is_alive()


# -- what is an answer ---------------------------------------------------------------------------------------------


@contextmanager
def played(listener: socket.socket, respond: Callable[[socket.socket], object]) -> Iterator[Peer]:
    """A server that answers each connection so."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                respond(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield socket.AF_INET, listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not thread.is_alive(), "the server's end")


@pytest.mark.parametrize("answer", [b"N", b"S", b"E", b"S and no TLS after it"])
def test_any_byte_is_an_answer(listener: socket.socket, answer: bytes) -> None:
    def respond(connection: socket.socket) -> None:
        assert connection.recv(8) == server_watch._TLS_REQUEST
        connection.sendall(answer)

    with played(listener, respond) as peer:
        assert server_watch.answers(peer, LONG_S)


def test_a_frozen_server_does_not_answer(listener: socket.socket) -> None:
    assert not server_watch.answers((socket.AF_INET, listener.getsockname()), 0.1)


def test_a_refusal_is_no_answer(unused_peer: Peer) -> None:
    assert not server_watch.answers(unused_peer, 0.1)


def test_a_proxy_without_its_server_does_not_answer(listener: socket.socket) -> None:
    with played(listener, lambda connection: connection.recv(8)) as peer:
        assert not server_watch.answers(peer, 0.1)


def test_a_proxy_that_restarts_is_asked_again(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "_RETRY_S", 0.01)
    replies = iter([b"", b"", b"N"])

    def respond(connection: socket.socket) -> None:
        connection.recv(8)
        connection.sendall(next(replies))

    with played(listener, respond) as peer:
        assert server_watch.answers(peer, LONG_S)


def test_a_failure_of_our_own_proves_nothing(monkeypatch: pytest.MonkeyPatch, unused_peer: Peer) -> None:
    def fail(*_: object) -> socket.socket:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(socket, "socket", fail)
    assert server_watch.answers(unused_peer, LONG_S)


def test_the_answer_counts_where_tls_fails(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ssl.SSLError("no common cipher")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", fail)
    with played(listener, lambda connection: connection.sendall(b"S")) as peer:
        assert server_watch.answers(peer, LONG_S)
