"""/metrics, /healthz and /readyz over a real socket, and clients that behave badly."""

from __future__ import annotations

import gzip
import http.client
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.supervisor_metrics import SupervisorMetrics
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.listening_sockets import bind_listener, port_of
from remoting.metrics import metrics_server
from remoting.metrics.metrics_server import MAX_ANSWERS, MAX_CONNECTIONS, MetricsServer
from store.control_slots import STORE_STATE, StoreState, refuse_writes
from tests.broker.broker_fakes import CONFIG
from tests.broker.metrics_world import OPENMETRICS, MetricsWorld, child, samples_of
from tests.support.deadline import wait_until, within


class ServerWorld(MetricsWorld):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._listening = bind_listener("127.0.0.1", 0, 1024, "metricsPort")
        self.port = port_of(self._listening)
        self.server = MetricsServer(self._listening, SupervisorMetrics(self.collector, CONFIG))
        self.server.start()

    def ask(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        response, body = self.ask(path)
        return response.status, body.decode()

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def stop(self) -> None:
        self.server.shutdown()
        self._listening.close()
        wait_until(lambda: handler_threads() == 0)
        self.close()


def handler_threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServerWorld]:
    made = ServerWorld(tmp_path)
    yield made
    made.stop()


def test_metrics(world: ServerWorld) -> None:
    world.set(table.MESSAGES_IN, 3, 'T"1', "Normal", "false")
    status, text = world.get("/metrics")
    assert status == 200
    found = samples_of(text)
    assert found["rocketmq_messages_in_total"] == {("false", "Normal", 'T"1'): 3}
    assert found["rocketmq_process_up"] == {("store",): 1, ("ha",): 1, ("remoting",): 1}


def test_openmetrics_and_gzip(world: ServerWorld) -> None:
    response, body = world.ask("/metrics?x=1", Accept=OPENMETRICS)
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "rocketmq_ready" in samples_of(body.decode(), is_openmetrics=True)
    headers = {"Accept-Encoding": "gzip"}
    response, body = world.ask("/metrics", **headers)
    assert response.headers["Content-Encoding"] == "gzip"
    assert "rocketmq_ready" in samples_of(gzip.decompress(body).decode())


@pytest.mark.parametrize("accept", ['application/openmetrics-text;version="1.0.0"', "a/b, */*;q=x"])
def test_two_headers_are_one(world: ServerWorld, accept: str) -> None:
    request = f"GET /metrics HTTP/1.1\r\nAccept: text/plain;q=0.5\r\nAccept: {accept}\r\n\r\n"
    with world.dial() as sock:
        sock.sendall(request.encode())
        answer = sock.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.0 200")
    assert (b"application/openmetrics-text" in answer) == ("openmetrics" in accept)


@pytest.mark.parametrize(
    ("accepts", "gets"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0, identity", False),
        ("deflate", False),
        ("", False),
    ],
)
def test_who_gets_gzip(world: ServerWorld, accepts: str, gets: bool) -> None:
    headers = {"Accept-Encoding": accepts}
    response, body = world.ask("/metrics", **headers)
    assert (response.headers["Content-Encoding"] == "gzip") == gets
    assert b"rocketmq_ready" in (gzip.decompress(body) if gets else body)


def test_healthz(world: ServerWorld) -> None:
    assert world.get("/healthz") == (200, "ok\n")
    world.children.append(child("namesrv", process=None))
    assert world.get("/healthz") == (503, "down: namesrv\n")


def test_readyz_says_what_is_missing(world: ServerWorld) -> None:
    counters = world.page.counters
    assert world.get("/readyz") == (503, "the store is not ready\n")
    counters[STORE_STATE], counters[REMOTING_READY] = StoreState.READY, 1
    assert world.get("/readyz?x=1") == (200, "ready\n")
    refuse_writes(world.page, 2, "no room")
    assert world.get("/readyz") == (503, "the store rejects writes: no room\n")


@pytest.mark.parametrize("path", ["/", "/nothing", "/metrics/x", "/../etc/passwd", "/METRICS"])
def test_other_paths(world: ServerWorld, path: str) -> None:
    assert world.get(path) == (404, "/metrics /healthz /readyz\n")


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/healthz", 200), ("/readyz", 503), ("/x", 404)]
)
def test_head_is_get_without_a_body(world: ServerWorld, path: str, status: int) -> None:
    response, body = world.ask(path, "HEAD")
    assert (response.status, body) == (status, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_other_methods_are_refused(world: ServerWorld) -> None:
    assert world.ask("/metrics", "POST")[0].status == 501
    assert world.get("/healthz")[0] == 200


def test_a_failed_collection_is_answered_and_logged(
    world: ServerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    labels = ("one label too few",)
    world.set(table.MESSAGES_IN, 3, *labels)
    status, text = world.get("/metrics")
    assert status == 500
    assert text.startswith("metrics collection failed: ValueError: rocketmq_messages_in_total")
    assert "one label too few" in text
    assert "Traceback" in caplog.text
    world.slots.hide(table.MESSAGES_IN.name, labels)
    assert world.get("/metrics")[0] == 200


def test_who_breaks_off_is_no_error(world: ServerWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for n in range(2_000):
        world.set(table.MESSAGES_IN, n, f"topic-{n}", "Normal", "false")
    for garbage in (b"", b"GET", b"\x16\x03\x01 TLS?\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"):
        with world.dial() as sock:
            sock.sendall(garbage)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert world.get("/healthz")[0] == 200
    wait_until(lambda: handler_threads() == 0)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def silent(sock: socket.socket) -> None:
    """Says nothing."""


def half_a_request(sock: socket.socket) -> None:
    sock.sendall(b"GET /metrics HTTP/1.1\r\nHost:")


def reads_nothing(sock: socket.socket) -> None:
    sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("behave", [silent, half_a_request, reads_nothing])
def test_slow_clients_do_not_pile_up(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch, behave: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 0.2)
    for n in range(2_000):
        world.set(table.MESSAGES_IN, n, f"a long name of a topic-{n}" * 5, "Normal", "false")
    slow = [world.dial() for _ in range(3 * MAX_CONNECTIONS)]
    try:
        for sock in slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            behave(sock)
        most = 0
        for _ in range(5):
            assert world.get("/healthz")[0] == 200
            most = max(most, handler_threads())
        assert world.get("/metrics")[0] == 200
        assert most <= MAX_CONNECTIONS
    finally:
        for sock in slow:
            sock.close()


def test_a_scrape_does_not_wait_for_idle_connections(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited but once for a place would wait for longer than the client does."""
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 60)
    idle = [world.dial() for _ in range(3 * MAX_CONNECTIONS)]
    try:
        assert world.get("/metrics")[0] == 200
        assert handler_threads() <= MAX_CONNECTIONS
        assert idle[0].recv(1) == b"", "the oldest was closed"
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert idle[-1].recv(12) == b"HTTP/1.0 200", "the newest was not"
    finally:
        for sock in idle:
            sock.close()


def test_who_is_answered_keeps_its_place_before_who_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "_LEAVING_S", 0.001)
    places = metrics_server.ConnectionSlots()
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 1)]
    ours = [pair[0] for pair in pairs]
    for sock in ours[:-1]:
        assert places.take(sock)
    with places.answer(ours[0]):
        assert not places.take(ours[-1]), "the thread of the closed one has not ended yet"
        assert ours[1].recv(1) == b""
        places.leave(ours[1])
        assert places.take(ours[-1])
        with pytest.raises(ConnectionAbortedError), places.answer(ours[1]):
            pass
        for pair in pairs:
            pair[1].sendall(b"x") if pair[0] is not ours[1] else None
        assert [sock.recv(1) for sock in ours if sock is not ours[1]] == [b"x"] * MAX_CONNECTIONS
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_many_scrapes_at_once_are_all_answered(world: ServerWorld) -> None:
    for n in range(500):
        world.set(table.MESSAGES_IN, n, f"topic-{n}", "Normal", "false")
    answers: list[int] = []

    def scrape() -> None:
        answers.append(world.get("/metrics")[0])

    threads = [threading.Thread(target=scrape) for _ in range(2 * MAX_ANSWERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * len(threads)


def test_shutdown_does_not_wait_for_clients(tmp_path: Path) -> None:
    world = ServerWorld(tmp_path)
    with world.dial() as sock:
        wait_until(lambda: handler_threads() == 1)
        within(5, world.stop)
        assert sock.recv(1) == b""


def test_a_request_that_never_ends_is_closed(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then keeps no connection open, whatever it belongs to."""
    monkeypatch.setattr(metrics_server, "_REQUEST_TIMEOUT_S", 0.5)
    for begin in (b"", b"GET /metrics HTTP/1.1\r\n"):
        with world.dial() as sock:
            sock.sendall(begin)

            def drip(sock: socket.socket = sock) -> bool:
                try:
                    sock.sendall(b"a")
                    sock.settimeout(0.05)
                    return sock.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            wait_until(drip)
            wait_until(lambda: handler_threads() == 0)
    assert world.get("/healthz")[0] == 200


def test_a_request_that_is_too_long_is_closed(world: ServerWorld) -> None:
    """Memory of a request is bounded, whatever its headers are."""
    with world.dial() as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")

        def closed() -> bool:
            try:
                sock.sendall(b"X: " + b"a" * 1_000 + b"\r\n")
            except OSError:
                return True
            return False

        wait_until(closed)
    wait_until(lambda: handler_threads() == 0)
    assert world.get("/healthz")[0] == 200
