"""A TCP proxy that misbehaves on demand: it cuts connections, refuses new ones, stalls, and throttles.

Every connection is two threads, one per direction. The faults are plain switches, so a test reads like its story:

    with Proxy("127.0.0.1", server.port) as proxy:
        connect(port=proxy.port)
        proxy.cut()          # both ends see a reset
        proxy.refuse()       # whoever comes now is turned away ...
        proxy.accept()       # ... until here
        with proxy.stalled():   # connections stay open, nothing flows
            ...
        proxy.throttle(64_000)  # bytes per second in each direction of each connection; None lifts it
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

from tests.patience import wall_seconds

CHUNK_BYTES = 65_536
POLL_SECONDS = 0.1
Pair = tuple[socket.socket, socket.socket]
RESET = struct.pack("ii", 1, 0)  # linger on, for zero seconds: close sends RST instead of FIN


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards to `host`:`port`, which may be changed later."""

    def __init__(self, host: str, port: int):
        self.target = (host, port)
        self.accepted = 0
        self.bytes_down = 0
        self.bytes_up = 0
        self._pairs: list[Pair] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._rate: float | None = None
        self._cut_after: int | None = None
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host, self.port = self._listener.getsockname()[:2]
        self._threads = [threading.Thread(target=self._listen, daemon=True, name="proxy")]
        self._threads[0].start()

    def cut(self, *, reset: bool = True) -> int:
        """Break every open connection, by reset or by an orderly end; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                hang_up(end, reset=reset)
        return len(pairs)

    def cut_after(self, size: int) -> None:
        """Cut everything once, when `size` more bytes came down from the server: in mid-message, most likely."""
        with self._lock:
            self._cut_after = self.bytes_down + size

    def refuse(self) -> None:
        """Turn new connections away; the open ones live on."""
        self._refusing = True

    def accept(self) -> None:
        self._refusing = False

    def stall(self) -> None:
        """Keep connections open but let nothing through: a network that went away without a word."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        self.stall()
        try:
            yield
        finally:
            self.flow()

    def throttle(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def close(self) -> None:
        self._closed = True
        hang_up(self._listener)
        self.cut()
        self.flow()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refusing or (server := self._dial()) is None:
                hang_up(client, reset=True)
            else:
                self._join(client, server)

    def _dial(self) -> socket.socket | None:
        try:
            return socket.create_connection(self.target, timeout=wall_seconds(10))
        except OSError:
            return None

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        for end in pair:
            end.settimeout(POLL_SECONDS)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.append(pair)
        for source, sink, down in ((client, server, False), (server, client, True)):
            thread = threading.Thread(target=self._pump, args=(pair, source, sink, down), daemon=True, name="proxy")
            thread.start()
            self._threads.append(thread)

    def _pump(self, pair: Pair, source: socket.socket, sink: socket.socket, down: bool) -> None:
        with contextlib.suppress(OSError):  # the peer went, or we were cut
            while data := receive(source, self._portion()):
                self._hold(len(data))
                send(sink, data[: self._count(len(data), down)])
        self._forget(pair)

    def _portion(self) -> int:
        return CHUNK_BYTES if self._rate is None else max(1, min(CHUNK_BYTES, int(self._rate * POLL_SECONDS)))

    def _hold(self, size: int) -> None:
        while not self._flowing.wait(POLL_SECONDS):
            pass
        if self._rate:
            time.sleep(size / self._rate)

    def _count(self, size: int, down: bool) -> int:
        """Account for a portion; how much of it may pass. Reaching the `cut_after` mark cuts all connections."""
        with self._lock:
            if not down:
                self.bytes_up += size
                return size
            mark, before = self._cut_after, self.bytes_down
            self.bytes_down += size
            if mark is None or self.bytes_down < mark:
                return size
            self._cut_after = None
        self.cut()
        return max(0, mark - before)

    def _forget(self, pair: Pair) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._pairs.remove(pair)
        for end in pair:
            hang_up(end)


def receive(source: socket.socket, size: int) -> bytes:
    while True:
        with contextlib.suppress(TimeoutError):
            return source.recv(size)


def send(sink: socket.socket, data: bytes) -> None:
    """Like `sendall`, but wakes up to notice that the socket was closed meanwhile."""
    rest = memoryview(data)
    while rest:
        with contextlib.suppress(TimeoutError):
            rest = rest[sink.send(rest) :]


def hang_up(end: socket.socket, *, reset: bool = False) -> None:
    with contextlib.suppress(OSError):
        if reset:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)  # wakes the thread that waits on it
    with contextlib.suppress(OSError):
        end.close()
