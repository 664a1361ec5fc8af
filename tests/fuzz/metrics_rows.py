"""Rows: the metrics endpoint: what a client sends, and names of clients within label values."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from broker.metrics import metrics_table
from broker.metrics.supervisor_metrics import SupervisorMetrics
from remoting.metrics.http_accept import parse_accepted
from remoting.metrics.metrics_server import ConnectionSlots, _Handler, _Server
from remoting.metrics.metrics_text import MetricsText
from tests.broker.broker_fakes import CONFIG
from tests.broker.metrics_world import BASE, OPENMETRICS, MetricsWorld, families_of
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.target import Target

_ANSWERS = (b"HTTP/1.0 ", b"HTTP/1.1 ")


class _Socket:
    """A client's bytes; then it has closed."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.written = b""

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO()

    def settimeout(self, _seconds: float) -> None: ...

    def setsockopt(self, *_: Any) -> None: ...

    def recv_into(self, view: memoryview) -> int:
        return self._data.readinto(view)

    def sendall(self, data: bytes) -> None:
        self.written += data

    def shutdown(self, _how: int) -> None: ...

    def close(self) -> None: ...


class _Endpoint:
    """The handler of one connection, over a collector without processes."""

    def __init__(self, root: Path) -> None:
        self._world = MetricsWorld(root)
        self._slots = ConnectionSlots()
        site = SupervisorMetrics(self._world.collector, CONFIG)
        self._handler: Any = type("_Bound", (_Handler,), {"site": site, "slots": self._slots})
        self._server = mock.Mock(spec=_Server)

    def run(self, data: bytes) -> None:
        """Answered, or closed."""
        written = self._ask(data)
        is_http_09 = b"\r\n" not in written.partition(b" ")[0]
        assert not written or written.startswith(_ANSWERS) or is_http_09

    def _ask(self, data: bytes) -> bytes:
        sock = _Socket(data)
        self._slots.take(sock)
        try:
            self._handler(sock, ("10.0.0.1", 5), self._server)
        except OSError:
            pass
        finally:
            self._slots.leave(sock)
        return sock.written

    def check(self) -> None:
        """Somebody else is told that we live."""
        assert b" 200 " in self._ask(b"GET /healthz HTTP/1.1\r\n\r\n").partition(b"\n")[0]

    def close(self) -> None:
        """The shared memory."""
        self._world.close()


class _Labels:
    """Topics and groups with any names are counted; the text is one that Prometheus reads."""

    def __init__(self, root: Path) -> None:
        self._world = MetricsWorld(root, max_series=200)

    def run(self, data: bytes) -> None:
        """Names are separated by zero bytes; what a scrape says of them is what was counted."""
        names = {part.decode(errors="replace") for part in data.split(b"\0")[:20]}
        for name in names:
            self._world.set(metrics_table.MESSAGES_IN, 3, name, "Normal", "false")
        rows = [((name, "Normal", "false"), (3.0,)) for name in sorted(names)]
        for accept in ("", OPENMETRICS):
            text, _ = MetricsText(BASE).encode([(metrics_table.MESSAGES_IN, rows)], accept)
            families = families_of(text.decode(), is_openmetrics=bool(accept))
            shown = [each.labels["topic"] for family in families for each in family.samples]
            assert sorted(shown) == sorted(names)
        parse_accepted(data.decode("latin-1"))

    def check(self) -> None:
        """Whatever was counted, all of it can be scraped."""
        for metric, rows in self._world.collector.collect():
            assert metric.name
            assert all(rows)

    def close(self) -> None:
        """The shared memory."""
        self._world.close()


def _http_seeds() -> Sequence[bytes]:
    return [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: " + OPENMETRICS.encode() + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip;q=0.5, br\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"HEAD /readyz?x=1 HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /\r\n",
        b"OPTIONS * HTTP/1.1\r\nExpect: 100-continue\r\n\r\n",
    ]


def _label_seeds() -> Sequence[bytes]:
    return [b'T\0T"1\0a\\b\0a\nb', "ü\0\u2028\0😀".encode(), b"\0\xff\0 \0" + b"x" * 127]


def _mutate_http(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    if rng.random() < 0.2:
        lines = data.split(b"\r\n")
        lines.insert(rng.randint(0, len(lines)), rng.choice(tokens) * rng.choice((1, 1, 3, 120)))
        return b"\r\n".join(lines)
    return mutate_bytes(rng, data, tokens)


ROWS = (
    Target(
        name="metrics-http",
        what="bytes at the metrics port",
        world=_Endpoint,
        seeds=_http_seeds,
        rooms=("broker",),
        mutate=_mutate_http,
        tokens=lambda: [
            *(b"Accept: ", b"Accept-Encoding: gzip", b"/metrics", b"/readyz", b"HTTP/9.9"),
            *(b"HTTP/0.9", b'"', b";q=", b"Expect: 100-continue", b"\r\n\r\n", b" a: b"),
        ],
    ),
    Target(
        name="metrics-labels",
        what="names of topics as label values, read back by Prometheus' own parser",
        world=_Labels,
        seeds=_label_seeds,
        rooms=("broker", "ipc"),
        tokens=lambda: [b"\0", b'"', b"\\", b"\n", b"{", b"}", b",", b"\xe2\x80\xa8"],
        largest=1024,
    ),
)
