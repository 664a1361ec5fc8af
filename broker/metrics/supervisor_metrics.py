"""/metrics, /healthz and /readyz of the whole broker: the supervisor's small HTTP server.

Runs on threads of its own in the supervisor process: one that accepts, and one for each
connection, of which there are few. A connection carries one request. Whoever is slow keeps its
place until another wants it; who has not asked for anything yet is the first to lose it, at once,
so that a scrape does not wait for idle connections. An error in a scrape is answered and logged,
the server goes on.
"""

from __future__ import annotations

import contextlib
import enum
import gzip
import http.server
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from broker.metrics.http_accept import parse_accepted
from broker.metrics.metrics_collector import BrokerCollector
from broker.metrics.metrics_text import MetricsText
from broker.settings.broker_config import BrokerConfig

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
"""At the same time, most of them without a request. Beyond that each new one ends the oldest."""
MAX_ANSWERS: Final = 16
"""Texts of all metrics, which may be large, at the same time."""
_PATIENCE_S: Final = 1.0
"""How long one of these may take while others wait as long."""
_LEAVING_S: Final = 2.0
"""How long the thread of a connection that was closed may take to end."""
_REQUEST_TIMEOUT_S: Final = 10.0
_QUIET_S: Final = 60.0
"""Pause between log lines about too many connections."""
_LONGEST: Final = 8192
"""Characters that are read of what a client accepts."""
_GZIP_LEVEL: Final = 1
_PLAIN: Final = "text/plain; charset=utf-8"
_NODE_TYPE: Final = "broker"


class _State(enum.Enum):
    """What a connection is at."""

    IDLE = enum.auto()
    """Its request is not there yet."""
    WAITS = enum.auto()
    """It waits for a place among those that get all metrics."""
    ANSWERED = enum.auto()
    """Its text is made or sent."""


class Places:
    """The connections that are served, the oldest first. Guarded by: its condition, which is told
    of whoever leaves or is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads = 0
        """Those of closed connections included, until they end."""
        self._answers = 0
        self._served: dict[socket.socket, tuple[_State, float]] = {}
        """What each is at, and since when (monotonic s)."""
        self._told_s = -_QUIET_S

    def take(self, connection: socket.socket) -> bool:
        """A place for `connection`; where there is none, that of the oldest which has not asked
        for anything: the thread that accepts waits for nobody but one that ends. False: none
        became free."""
        with self._changed:
            if self._threads >= MAX_CONNECTIONS:
                self._close_oldest(_State.IDLE, _State.WAITS)
            if not self._changed.wait_for(lambda: self._threads < MAX_CONNECTIONS, _LEAVING_S):
                return False
            self._threads += 1
            self._served[connection] = (_State.IDLE, time.monotonic())
        return True

    def leave(self, connection: socket.socket) -> None:
        """Its thread is done."""
        with self._changed:
            self._served.pop(connection, None)
            self._threads -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def answer(self, connection: socket.socket) -> Iterator[None]:
        """A place among those that get all metrics, whose texts are large; first come, first
        served. Who takes long loses it while others wait. Raises ConnectionAbortedError when this
        one was closed."""
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
        """Wake every thread that waits for its client."""
        with self._changed:
            for connection in self._served:
                _shut(connection)

    # -- under the condition -------------------------------------------------------------------

    def _is_next(self, connection: socket.socket) -> bool:
        """Whether it need not wait any longer: it is its turn, or it was closed."""
        if connection not in self._served:
            return True
        waiting = (each for each, (state, _) in self._served.items() if state is _State.WAITS)
        return self._answers < MAX_ANSWERS and next(waiting) is connection

    def _note(self, connection: socket.socket, state: _State) -> None:
        if connection not in self._served:
            raise ConnectionAbortedError("closed, since others wait")
        self._served[connection] = (state, time.monotonic())

    def _close_oldest(self, *states: _State, held_s: float = 0) -> None:
        """Of the first of these states that any connection has been in for so long."""
        until_s = time.monotonic() - held_s
        for wanted in states:
            for connection, (state, since_s) in self._served.items():
                if state is wanted and since_s <= until_s:
                    del self._served[connection]
                    _shut(connection)
                    self._changed.notify_all()
                    self._tell(state)
                    return

    def _tell(self, state: _State) -> None:
        """Once a minute: whoever fills the places may do so a thousand times a second."""
        now_s = time.monotonic()
        if now_s - self._told_s >= _QUIET_S:
            self._told_s = now_s
            log.warning("metrics: too many connections, the oldest is closed (%s)", state.name)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("metrics: %s", error)


class _Server(http.server.ThreadingHTTPServer):
    """Accepts on a socket that exists already; bounded in its threads."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[_Handler]) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.places = Places()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.places.take(request):
            try:
                super().process_request(request, client_address)
            except RuntimeError:
                self.places.leave(request)  # No thread could be started.
                raise
        else:
            log.warning("metrics: %s: no place for it", client_address[0])
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("metrics: %s: %s", client_address, error)
        else:
            log.error("metrics: %s", client_address, exc_info=error)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection, one request. `site` is set by a subclass."""

    timeout = _REQUEST_TIMEOUT_S
    site: SupervisorMetrics

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            with self.site.places.answer(self.connection):
                self._metrics()
        elif path == "/healthz":
            down = self.site.collector.processes_down()
            self._say(503 if down else 200, f"down: {', '.join(down)}" if down else "ok")
        elif path == "/readyz":
            reason = self.site.collector.ready_reason()
            self._say(503 if reason else 200, reason or "ready")
        else:
            self._say(404, "/metrics /healthz /readyz")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _metrics(self) -> None:
        try:
            text, content_type = self.site.text(self._said("Accept"))
        except Exception as error:
            log.exception("metrics: they could not be collected")
            self._say(500, f"metrics could not be collected: {type(error).__name__}: {error}")
            return
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        codings = parse_accepted(self._said("Accept-Encoding"))
        if any(name == "gzip" and quality > 0 for name, _, quality in codings):
            text = gzip.compress(text, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        self._send(200, text, headers)

    def _said(self, name: str) -> str:
        """The headers of that name, as one; what is said beyond _LONGEST is not heard."""
        return ",".join(self.headers.get_all(name, []))[:_LONGEST]

    def _say(self, status: int, text: str) -> None:
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


class SupervisorMetrics:
    """The HTTP server. `start` and `shutdown` on the supervisor's main thread."""

    def __init__(
        self, listening: socket.socket, collector: BrokerCollector, broker: BrokerConfig
    ) -> None:
        self.collector = collector
        self._text = MetricsText((broker.broker_cluster_name, _NODE_TYPE, broker.broker_name))
        listening.setblocking(True)
        handler = type("_BoundHandler", (_Handler,), {"site": self})
        self._server = _Server(listening, handler)
        self.places = self._server.places
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="MetricsServer", daemon=True
        )

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def shutdown(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self.places.close_all()

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type."""
        return self._text.encode(self.collector.collect(), accept)
