"""/metrics, /healthz and /readyz of a program: its small HTTP server.

Runs on threads of its own in the program's process: one that accepts, and one for each connection;
the number of connections is small. A connection carries one request. A slow client keeps its
connection until another client needs the slot; connections without a request are closed first,
immediately, so that a scrape does not wait for idle connections. An error in a scrape is answered
and logged, and the server continues.

Tested by tests/broker/metrics/test_supervisor_metrics.py.
"""

from __future__ import annotations

import contextlib
import enum
import gzip
import http.server
import io
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from remoting.metrics.http_accept import parse_accepted

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
"""Maximum number of connections, most of them idle. Beyond that each new one closes the oldest."""
MAX_ANSWERS: Final = 16
"""Maximum number of concurrent responses with all metrics, which may be large."""
_PATIENCE_S: Final = 1.0
"""How long one of these may take while others wait."""
_LEAVING_S: Final = 2.0
"""How long the thread of a closed connection may take to end."""
_REQUEST_TIMEOUT_S: Final = 10.0
"""How long a request may take until it has arrived as a whole, and then its response."""
_LONGEST_REQUEST: Final = 16_384
"""Bytes of a request with its headers."""
_QUIET_S: Final = 60.0
"""Minimum interval between log lines about too many connections."""
_LONGEST: Final = 8192
"""Maximum length of an Accept header that is read."""
_GZIP_LEVEL: Final = 1
_PLAIN: Final = "text/plain; charset=utf-8"


class Said(NamedTuple):
    """What a program says of its health, or whether it is ready."""

    is_fine: bool
    """200, else 503."""
    text: str
    """One line: why not, or what else there is to know."""


class Site(Protocol):
    """What is served. Called by many threads."""

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type, for this Accept header."""

    def health(self) -> Said:
        """/healthz: whether it runs."""

    def readiness(self) -> Said:
        """/readyz: whether it should get requests."""


class _State(enum.Enum):
    """State of a connection."""

    IDLE = enum.auto()
    """Its request has not arrived yet."""
    WAITS = enum.auto()
    """It waits for a slot for a response with all metrics."""
    ANSWERED = enum.auto()
    """Its response is being built or sent."""


class ConnectionSlots:
    """The slots for connections, the oldest first. Guarded by: its condition, which is notified
    when a connection leaves or is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads = 0
        """Includes the threads of closed connections, until they end."""
        self._answers = 0
        self._served: dict[socket.socket, tuple[_State, float]] = {}
        """The state of each connection, and since when (monotonic s)."""
        self._logged_s = -_QUIET_S

    def take(self, connection: socket.socket) -> bool:
        """Take a slot for `connection`; if there is none, close the oldest connection without a
        request and wait for its thread to end. False if no slot became free."""
        with self._changed:
            if self._threads >= MAX_CONNECTIONS:
                self._close_oldest(_State.IDLE, _State.WAITS)
            if not self._changed.wait_for(lambda: self._threads < MAX_CONNECTIONS, _LEAVING_S):
                return False
            self._threads += 1
            self._served[connection] = (_State.IDLE, time.monotonic())
        return True

    def leave(self, connection: socket.socket) -> None:
        """The connection's thread has ended."""
        with self._changed:
            self._served.pop(connection, None)
            self._threads -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def answer(self, connection: socket.socket) -> Iterator[None]:
        """Take a slot for a response with all metrics, first come, first served. A slow client
        loses it while others wait. Raises ConnectionAbortedError if this connection was closed."""
        with self._changed:
            self._note(connection, _State.WAITS)
            while not self._changed.wait_for(lambda: self._is_next(connection), _PATIENCE_S):
                self._close_oldest(_State.ANSWERED, held_s=_PATIENCE_S)
            self._note(connection, _State.ANSWERED)
            self._answers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._answers -= 1
                self._changed.notify_all()

    def close_all(self) -> None:
        """Close all connections, which wakes their threads."""
        with self._changed:
            for connection in self._served:
                _shut(connection)

    # -- under the condition -------------------------------------------------------------------

    def _is_next(self, connection: socket.socket) -> bool:
        """Whether the connection can stop waiting: it is its turn, or it was closed."""
        if connection not in self._served:
            return True
        waiting = (each for each, (state, _) in self._served.items() if state is _State.WAITS)
        return self._answers < MAX_ANSWERS and next(waiting) is connection

    def _note(self, connection: socket.socket, state: _State) -> None:
        if connection not in self._served:
            raise ConnectionAbortedError("closed, since others are waiting")
        self._served[connection] = (state, time.monotonic())

    def _close_oldest(self, *states: _State, held_s: float = 0) -> None:
        """Close the oldest connection in the first of these states that any connection has been in
        for `held_s`."""
        until_s = time.monotonic() - held_s
        for wanted in states:
            for connection, (state, since_s) in self._served.items():
                if state is wanted and since_s <= until_s:
                    del self._served[connection]
                    _shut(connection)
                    self._changed.notify_all()
                    self._log_closed(state)
                    return

    def _log_closed(self, state: _State) -> None:
        """Log at most once a minute, since a client may open thousands of connections a second."""
        now_s = time.monotonic()
        if now_s - self._logged_s >= _QUIET_S:
            self._logged_s = now_s
            log.warning("metrics: too many connections, closed the oldest one (%s)", state.name)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("metrics: %s", error)


class _Server(http.server.ThreadingHTTPServer):
    """Accepts on an existing socket, with a bounded number of threads."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, handler: type[_Handler], slots: ConnectionSlots
    ) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.slots = slots

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.slots.take(request):
            try:
                super().process_request(request, client_address)
            except RuntimeError:
                self.slots.leave(request)  # No thread could be started.
                raise
        else:
            log.warning("metrics: %s: rejected, too many connections", client_address[0])
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("metrics: %s: %s", client_address, error)
        else:
            log.error("metrics: %s", client_address, exc_info=error)


class _RequestBytes(io.RawIOBase):
    """What a client sends: no more than a request has, and not for longer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until_s = time.monotonic() + _REQUEST_TIMEOUT_S
        self._left = _LONGEST_REQUEST

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Raises TimeoutError, ConnectionAbortedError (too long): the connection is closed."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole request within {_REQUEST_TIMEOUT_S:g} s")
        if not self._left:
            raise ConnectionAbortedError(f"a request of more than {_LONGEST_REQUEST} bytes")
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, one request. `site` and `slots` are set by a subclass."""

    site: Site
    slots: ConnectionSlots

    def setup(self) -> None:
        """The request, and then the response, have _REQUEST_TIMEOUT_S each."""
        super().setup()
        self.connection.settimeout(_REQUEST_TIMEOUT_S)
        self.rfile.close()
        self.rfile = io.BufferedReader(_RequestBytes(self.connection))

    def parse_request(self) -> bool:
        """The request has arrived as a whole, or is refused."""
        understood = super().parse_request()
        self.connection.settimeout(_REQUEST_TIMEOUT_S)
        return understood

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            with self.slots.answer(self.connection):
                self._metrics()
        elif path == "/healthz":
            self._say(self.site.health())
        elif path == "/readyz":
            self._say(self.site.readiness())
        else:
            self._text(404, "/metrics /healthz /readyz")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _metrics(self) -> None:
        try:
            text, content_type = self.site.text(self._header_text("Accept"))
        except Exception as error:
            log.exception("metrics collection failed")
            self._text(500, f"metrics collection failed: {type(error).__name__}: {error}")
            return
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        codings = parse_accepted(self._header_text("Accept-Encoding"))
        if any(name == "gzip" and quality > 0 for name, _, quality in codings):
            text = gzip.compress(text, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        self._send(200, text, headers)

    def _header_text(self, name: str) -> str:
        """The headers of that name joined, truncated to _LONGEST."""
        return ",".join(self.headers.get_all(name, []))[:_LONGEST]

    def _say(self, said: Said) -> None:
        self._text(200 if said.is_fine else 503, said.text)

    def _text(self, status: int, text: str) -> None:
        self._send(status, f"{text}\n".encode(), {"Content-Type": _PLAIN})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug("metrics: %s: %r", self.address_string(), format % args)


class MetricsServer:
    """The HTTP server. `start` and `shutdown` on one thread, which is none of its own."""

    def __init__(self, listening: socket.socket, site: Site) -> None:
        """listening: a listening socket, which stays its owner's."""
        listening.setblocking(True)
        slots = ConnectionSlots()
        handler = type("_BoundHandler", (_Handler,), {"site": site, "slots": slots})
        self._server = _Server(listening, handler, slots)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="MetricsServer", daemon=True
        )

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.slots.close_all()
