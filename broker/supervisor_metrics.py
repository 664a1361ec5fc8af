"""/metrics, /healthz and /readyz of the whole broker: the supervisor's small HTTP server.

Runs on threads of its own in the supervisor process: one that accepts, and one for each
connection, of which there are few. A connection carries one request. Whoever is slow keeps its
place until another wants it. An error in a scrape is answered and logged, the server goes on.
"""

from __future__ import annotations

import gzip
import http.server
import logging
import socket
import sys
import threading
from typing import Any, Final

from prometheus_client.exposition import gzip_accepted

from broker.broker_config import BrokerConfig
from broker.metrics_collector import BrokerCollector
from broker.metrics_text import MetricsText

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 16
"""At the same time; more wait in the listening socket's backlog."""
_PATIENCE_S: Final = 1.0
"""How long a connection waits for a place before the oldest loses its own."""
_LEAVING_S: Final = 2.0
"""How long that one's thread may take to end; it may be within a scrape."""
_REQUEST_TIMEOUT_S: Final = 10.0
_GZIP_LEVEL: Final = 1
_PLAIN: Final = "text/plain; charset=utf-8"
_NODE_TYPE: Final = "broker"


class _Places:
    """The connections that are served. Guarded by: its lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        self._served: dict[socket.socket, None] = {}

    def take(self, connection: socket.socket) -> bool:
        """A place for `connection`, if need be that of the oldest; False: none became free."""
        if not self._free.acquire(timeout=_PATIENCE_S):
            self._close_oldest()
            if not self._free.acquire(timeout=_LEAVING_S):
                return False
        with self._lock:
            self._served[connection] = None
        return True

    def leave(self, connection: socket.socket) -> None:
        """Its thread is done."""
        with self._lock:
            del self._served[connection]
        self._free.release()

    def close_all(self) -> None:
        """Wake every thread that waits for its client."""
        with self._lock:
            for connection in self._served:
                _shut(connection)

    def _close_oldest(self) -> None:
        with self._lock:
            connection = next(iter(self._served), None)
            if connection is not None:
                log.warning("metrics: %s connections, the oldest is closed", len(self._served))
                _shut(connection)


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
        self.places = _Places()

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
            text, content_type = self.site.text(self.headers.get("Accept", ""))
        except Exception as error:
            log.exception("metrics: they could not be collected")
            self._say(500, f"metrics could not be collected: {type(error).__name__}: {error}")
            return
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if gzip_accepted(self.headers.get("Accept-Encoding", "")):
            text = gzip.compress(text, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        self._send(200, text, headers)

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
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="MetricsServer", daemon=True
        )

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def shutdown(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.places.close_all()

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type."""
        return self._text.encode(self.collector.collect(), accept)
