"""RemotingClient against real sockets on the loopback: answers, deadlines, broken peers."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remoting import connect_attempt, connect_failures, remoting_client
from remoting.errors import (
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
    RequestError,
)
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.remoting_config import RemotingClientConfig
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from tests.remoting.fake_peer import DEADLINE_S, FakePeer, PeerConnection, echo
from tests.support.deadline import wait_until

TIMEOUT_MS = 4000
SHORT_MS = 100


def silent(connection: PeerConnection, command: RemotingCommand) -> None:
    """Never answer."""


class Outcome:
    """A callback that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[RemotingCommand | None, Exception | None]] = []
        self._done = threading.Event()

    def __call__(self, response: RemotingCommand | None, error: Exception | None) -> None:
        self.told.append((response, error))
        self._done.set()

    def wait(self) -> tuple[RemotingCommand | None, Exception | None]:
        assert self._done.wait(DEADLINE_S)
        assert len(self.told) == 1
        return self.told[0]

    def error(self) -> Exception | None:
        response, error = self.wait()
        assert response is None
        return error


@contextmanager
def running(
    config: RemotingClientConfig | None = None, routes: dict[int, Route] | None = None
) -> Iterator[RemotingClient]:
    client = RemotingClient(config or RemotingClientConfig(), routes=routes)
    client.start()
    try:
        yield client
    finally:
        client.shutdown()


@pytest.fixture
def client() -> Iterator[RemotingClient]:
    with running() as client:
        yield client


@pytest.fixture
def peer() -> Iterator[FakePeer]:
    with FakePeer() as peer:
        yield peer


def free_address() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


# -- answers -----------------------------------------------------------------------------------


def test_sync(client: RemotingClient, peer: FakePeer) -> None:
    request = RemotingCommand.request(10, {"a": "b"}, b"body")
    response = client.invoke_sync(peer.address, request, TIMEOUT_MS)
    assert (response.code, response.remark, response.body) == (0, "echo", b"body")
    assert response.ext_fields == {"a": "b"}
    assert response.opaque == request.opaque


def test_one_connection_for_each_address(client: RemotingClient, peer: FakePeer) -> None:
    with FakePeer() as other:
        for _ in range(3):
            client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
            client.invoke_sync(other.address, RemotingCommand.request(1), TIMEOUT_MS)
        assert len(peer.connections) == len(other.connections) == 1


def test_a_name_is_resolved(client: RemotingClient, peer: FakePeer) -> None:
    address = peer.address.replace("127.0.0.1", "localhost")
    assert client.invoke_sync(address, RemotingCommand.request(1), TIMEOUT_MS).code == 0


def test_the_same_command_can_be_sent_again(client: RemotingClient, peer: FakePeer) -> None:
    request = RemotingCommand.request(10)
    first = client.invoke_sync(peer.address, request, TIMEOUT_MS)
    second = client.invoke_sync(peer.address, request, TIMEOUT_MS)
    assert first.opaque != second.opaque


def test_answers_in_any_order(client: RemotingClient) -> None:
    waiting: list[RemotingCommand] = []

    def answer_backwards(connection: PeerConnection, command: RemotingCommand) -> None:
        waiting.append(command)
        if len(waiting) == 20:
            for request in reversed(waiting):
                connection.send(request.response(0, None, request.ext_fields))

    with FakePeer(answer_backwards) as peer:
        outcomes = [Outcome() for _ in range(20)]
        for number, outcome in enumerate(outcomes):
            request = RemotingCommand.request(1, {"n": str(number)})
            client.invoke_async(peer.address, request, TIMEOUT_MS, outcome)
        for number, outcome in enumerate(outcomes):
            response, error = outcome.wait()
            assert error is None
            assert response is not None
            assert response.ext_fields == {"n": str(number)}
        assert len(peer.connections) == 1


def test_nobody_answers_for_another_peer(client: RemotingClient, peer: FakePeer) -> None:
    """Numbers are counted up: one of several peers knows what the others are asked with."""

    def forge(connection: PeerConnection, command: RemotingCommand) -> None:
        connection.send(asked.commands[0].response(ResponseCode.SUCCESS, "forged"))
        echo(connection, command)

    with FakePeer(silent) as asked, FakePeer(forge) as other:
        outcome = Outcome()
        client.invoke_async(asked.address, RemotingCommand.request(10), TIMEOUT_MS, outcome)
        asked.wait_for(commands=1)
        response = client.invoke_sync(other.address, RemotingCommand.request(10), TIMEOUT_MS)
        assert response.remark == "echo"
        assert outcome.told == []


def test_many_threads(client: RemotingClient, peer: FakePeer) -> None:
    wrong: list[str] = []

    def work(name: str) -> None:
        for number in range(50):
            request = RemotingCommand.request(1, {"n": f"{name}-{number}"})
            response = client.invoke_sync(peer.address, request, TIMEOUT_MS)
            if response.ext_fields != request.ext_fields:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S * 2)
    assert not wrong
    assert len(peer.commands) == 200
    assert len(peer.connections) == 1


def test_large_bodies_both_ways(client: RemotingClient, peer: FakePeer) -> None:
    body = bytes(range(256)) * 8192
    response = client.invoke_sync(peer.address, RemotingCommand.request(1, None, body), TIMEOUT_MS)
    assert response.body == body


def test_binary_answers_are_understood(client: RemotingClient) -> None:
    def answer(connection: PeerConnection, command: RemotingCommand) -> None:
        response = command.response(0, "r", {"a": "b"})
        response.serialize_type = SerializeType.ROCKETMQ
        connection.send(response)

    with FakePeer(answer) as peer:
        response = client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
        assert response.serialize_type is SerializeType.ROCKETMQ
        assert (response.remark, response.ext_fields) == ("r", {"a": "b"})


def test_oneway(client: RemotingClient, peer: FakePeer) -> None:
    request = RemotingCommand.request(15)
    client.invoke_oneway(peer.address, request, TIMEOUT_MS)
    peer.wait_for(commands=1)
    assert peer.commands[0].is_oneway
    assert peer.commands[0].code == 15


# -- deadlines ---------------------------------------------------------------------------------


def test_sync_timeout_closes_the_connection_and_the_next_call_makes_a_new_one(
    client: RemotingClient,
) -> None:
    with FakePeer(silent) as peer:
        with pytest.raises(RemotingTimeoutError, match=peer.address):
            client.invoke_sync(peer.address, RemotingCommand.request(1), SHORT_MS)
        assert peer.connections[0].closed.wait(DEADLINE_S)
        peer.answer = echo
        assert client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS).code == 0
        assert len(peer.connections) == 2


def test_late_answer_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    held: list[RemotingCommand] = []

    def hold_first(connection: PeerConnection, command: RemotingCommand) -> None:
        if not held:
            held.append(command)
            return
        connection.send(held[0].response(0, "late"))
        echo(connection, command)

    config = RemotingClientConfig(client_close_socket_if_timeout=False)
    with running(config) as client, FakePeer(hold_first) as peer:
        with pytest.raises(RemotingTimeoutError):
            client.invoke_sync(peer.address, RemotingCommand.request(1), SHORT_MS)
        with caplog.at_level(logging.INFO):
            response = client.invoke_sync(peer.address, RemotingCommand.request(2), TIMEOUT_MS)
        assert response.remark == "echo"
        assert f"opaque {held[0].opaque}" in caplog.text
        assert len(peer.connections) == 1


def test_async_timeout_keeps_the_connection(client: RemotingClient) -> None:
    with FakePeer(silent) as peer:
        outcome = Outcome()
        before = time.monotonic()
        client.invoke_async(peer.address, RemotingCommand.request(1), SHORT_MS, outcome)
        assert isinstance(outcome.error(), RemotingTimeoutError)
        assert time.monotonic() - before >= SHORT_MS / 1000 - 0.005
        assert not peer.connections[0].closed.is_set()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all(client: RemotingClient, peer: FakePeer, timeout_ms: int) -> None:
    outcome = Outcome()
    with pytest.raises(RemotingTooMuchRequestError):
        client.invoke_sync(peer.address, RemotingCommand.request(1), timeout_ms)
    client.invoke_async(peer.address, RemotingCommand.request(1), timeout_ms, outcome)
    assert isinstance(outcome.error(), RemotingTooMuchRequestError)
    with pytest.raises(RemotingTooMuchRequestError):
        client.invoke_oneway(peer.address, RemotingCommand.request(1), timeout_ms)
    assert peer.commands == []


def test_async_permits() -> None:
    config = RemotingClientConfig(client_async_semaphore_value=1)
    with running(config) as client, FakePeer(silent) as peer:
        first, second, third = Outcome(), Outcome(), Outcome()
        client.invoke_async(peer.address, RemotingCommand.request(1), 3 * SHORT_MS, first)
        client.invoke_async(peer.address, RemotingCommand.request(2), SHORT_MS, second)
        assert "no free permit" in str(second.error())
        assert isinstance(first.error(), RemotingTimeoutError)
        peer.answer = echo
        for connection in peer.connections:
            connection.close()
        client.invoke_async(peer.address, RemotingCommand.request(3), TIMEOUT_MS, third)
        third.wait()


def test_oneway_permits_come_back() -> None:
    config = RemotingClientConfig(client_oneway_semaphore_value=1)
    with running(config) as client, FakePeer() as peer:
        nobody = free_address()
        for _ in range(3):
            client.invoke_oneway(nobody, RemotingCommand.request(1), TIMEOUT_MS)
            client.invoke_oneway(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
        peer.wait_for(commands=3)


# -- peers that are not there, or break --------------------------------------------------------


def test_nobody_listens(client: RemotingClient) -> None:
    address = free_address()
    with pytest.raises(RemotingConnectError, match=f"{address}: connect failed: .*refused"):
        client.invoke_sync(address, RemotingCommand.request(1), TIMEOUT_MS)
    outcome = Outcome()
    client.invoke_async(address, RemotingCommand.request(1), TIMEOUT_MS, outcome)
    assert isinstance(outcome.error(), RemotingConnectError)


def test_a_peer_that_is_gone_for_days_is_a_line_a_minute(
    client: RemotingClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warnings() -> int:
        return sum(
            address in one.getMessage() for one in caplog.records if one.levelname != "DEBUG"
        )

    address = free_address()
    for quiet_ms in (60_000, 0):
        monkeypatch.setattr(connect_failures, "QUIET_MS", quiet_ms)
        caplog.clear()
        for _ in range(3):
            with pytest.raises(RemotingConnectError):
                client.invoke_sync(address, RemotingCommand.request(1), TIMEOUT_MS)
        assert warnings() == (1 if quiet_ms else 3)


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "127.0.0.1:70000"])
def test_addresses_that_are_none(client: RemotingClient, address: str) -> None:
    with pytest.raises(RemotingConnectError, match="not an address"):
        client.invoke_sync(address, RemotingCommand.request(1), TIMEOUT_MS)


def test_unknown_host(client: RemotingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_args: object, **_kwargs: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "name not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(RemotingConnectError, match="cannot resolve the host"):
        client.invoke_sync("nowhere.invalid:1", RemotingCommand.request(1), TIMEOUT_MS)


def test_every_address_of_a_name_is_tried(
    client: RemotingClient, peer: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_targets(_address: str) -> list[connect_attempt.SocketTarget]:
        return connect_attempt.resolve(free_address()) + connect_attempt.resolve(peer.address)

    monkeypatch.setattr(remoting_client, "resolve", two_targets)
    assert client.invoke_sync("name:1", RemotingCommand.request(1), TIMEOUT_MS).code == 0


@contextmanager
def deaf_address() -> Iterator[str]:
    """An address whose backlog is full: a connect neither succeeds nor fails."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        address = listening.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        yield f"127.0.0.1:{address[1]}"
        for filler in fillers:
            filler.close()


def test_connect_timeout() -> None:
    config = RemotingClientConfig(connect_timeout_millis=SHORT_MS)
    with running(config) as client, deaf_address() as address:
        before = time.monotonic()
        with pytest.raises(RemotingConnectError, match="timed out"):
            client.invoke_sync(address, RemotingCommand.request(1), TIMEOUT_MS)
        assert time.monotonic() - before < TIMEOUT_MS / 1000


def test_deadline_while_connecting(
    client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    with deaf_address() as address:
        with pytest.raises(RemotingTimeoutError):
            client.invoke_sync(address, RemotingCommand.request(1), SHORT_MS)
        client.invoke_oneway(address, RemotingCommand.request(7), SHORT_MS)
        wait_until(lambda: "oneway request 7 not sent" in caplog.text)
        outcome = Outcome()
        client.invoke_async(address, RemotingCommand.request(1), TIMEOUT_MS, outcome)
        client.shutdown()
        assert outcome.error() is not None


def test_peer_closes_while_calls_wait(client: RemotingClient) -> None:
    def close(connection: PeerConnection, command: RemotingCommand) -> None:
        if command.code == 2:
            connection.close()

    with FakePeer(close) as peer:
        outcome = Outcome()
        client.invoke_async(peer.address, RemotingCommand.request(1), TIMEOUT_MS, outcome)
        with pytest.raises(RemotingSendRequestError, match="closed by the peer"):
            client.invoke_sync(peer.address, RemotingCommand.request(2), TIMEOUT_MS)
        assert isinstance(outcome.error(), RemotingSendRequestError)
        peer.answer = echo
        assert client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS).code == 0


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1) + bytes(8),
        struct.pack(">ii", 100, 9 << 24 | 4),
        struct.pack(">ii", 8, 4) + b"{,}]",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_peer_that_speaks_something_else(client: RemotingClient, garbage: bytes) -> None:
    with (
        FakePeer(lambda connection, _: connection.send_bytes(garbage)) as peer,
        pytest.raises(RemotingSendRequestError, match="frame"),
    ):
        client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)


def test_callback_that_raises_ends_nothing(
    client: RemotingClient, peer: FakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_response: RemotingCommand | None, _error: Exception | None) -> None:
        raise ValueError("broken on purpose")

    client.invoke_async(peer.address, RemotingCommand.request(1), TIMEOUT_MS, broken)
    wait_until(lambda: "broken on purpose" in caplog.text)
    assert client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS).code == 0


def test_a_callback_may_call_again(client: RemotingClient, peer: FakePeer) -> None:
    outcome = Outcome()

    def again(_response: RemotingCommand | None, _error: Exception | None) -> None:
        client.invoke_async(peer.address, RemotingCommand.request(2), TIMEOUT_MS, outcome)

    client.invoke_async(peer.address, RemotingCommand.request(1), TIMEOUT_MS, again)
    assert outcome.wait()[1] is None


def test_command_that_cannot_be_written(client: RemotingClient, peer: FakePeer) -> None:
    outcome = Outcome()
    request = RemotingCommand.request(1, {"a": "\ud800"})
    client.invoke_async(peer.address, request, TIMEOUT_MS, outcome)
    assert "cannot hold" in str(outcome.error())


# -- what the peer asks of us ------------------------------------------------------------------


class Processor:
    """Serves by code; remembers the thread."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        self.threads.append(threading.current_thread().name)
        if request.code == 221:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, "nobody")
        if request.code == 309:
            raise ValueError("broken on purpose")
        return request.response(0, connection.remote_address, None, b"info")


@pytest.mark.parametrize(
    ("code", "oneway", "expected", "remark"),
    [
        (307, False, 0, "127.0.0.1:"),
        (221, False, 206, "nobody"),
        (309, False, 1, "ValueError: broken on purpose"),
        (4711, False, 3, " request type 4711 not supported"),
        (220, True, None, ""),
        (40, True, None, ""),
        (39, False, 0, "127.0.0.1:"),
        (326, False, 2, "[OVERLOAD]system busy"),
    ],
)
def test_requests_of_the_peer(code: int, oneway: bool, expected: int | None, remark: str) -> None:
    processor = Processor()
    routes = {known: Route(processor) for known in (307, 221, 309, 40)}
    routes[39] = Route(processor, "pool")
    routes[326] = Route(processor, "full")
    client = RemotingClient(
        RemotingClientConfig(),
        routes=routes,
        executors={"pool": RequestExecutor("pool", 1, 1), "full": RequestExecutor("full", 1, 0)},
    )
    client.start()
    asked = RemotingCommand.request(code, oneway=oneway)

    def ask_first(connection: PeerConnection, command: RemotingCommand) -> None:
        if not command.is_response:
            connection.send(asked)
            echo(connection, command)

    try:
        with FakePeer(ask_first) as peer:
            client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
            if expected is None:
                client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
                assert not any(command.is_response for command in peer.commands)
                return
            peer.wait_for(commands=2)
            answer = peer.commands[1]
            assert answer.is_response
            assert (answer.opaque, answer.code) == (asked.opaque, expected)
            assert answer.remark is not None
            assert answer.remark.startswith(remark)
            if code == 39:
                assert processor.threads == ["pool_0"]
    finally:
        client.shutdown()


def test_a_route_without_its_executor() -> None:
    with pytest.raises(ValueError, match="request code 39: no executor named pool"):
        RemotingClient(RemotingClientConfig(), routes={39: Route(Processor(), "pool")})


# -- life --------------------------------------------------------------------------------------


def test_shutdown_fails_what_waits_and_is_idempotent() -> None:
    with FakePeer(silent) as peer:
        client = RemotingClient(RemotingClientConfig())
        client.start()
        outcome = Outcome()
        client.invoke_async(peer.address, RemotingCommand.request(1), TIMEOUT_MS, outcome)
        peer.wait_for(commands=1)
        client.shutdown()
        assert isinstance(outcome.error(), RemotingSendRequestError)
        assert peer.connections[0].closed.wait(DEADLINE_S)
        client.shutdown()
        with pytest.raises(RemotingSendRequestError, match="not running"):
            client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
        late = Outcome()
        client.invoke_async(peer.address, RemotingCommand.request(1), TIMEOUT_MS, late)
        assert isinstance(late.error(), RemotingSendRequestError)


def test_a_client_that_was_not_started(peer: FakePeer) -> None:
    client = RemotingClient(RemotingClientConfig())
    with pytest.raises(RemotingSendRequestError, match="not running"):
        client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
    client.shutdown()


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch, peer: FakePeer) -> None:
    monkeypatch.setattr(remoting_client, "IDLE_SCAN_MS", 20)
    with running(RemotingClientConfig(client_channel_max_idle_time_seconds=1)) as client:
        client.invoke_sync(peer.address, RemotingCommand.request(1), TIMEOUT_MS)
        assert peer.connections[0].closed.wait(DEADLINE_S)


def test_the_end_of_a_connection_is_told() -> None:
    told: list[str] = []
    peer = FakePeer()
    client = RemotingClient(RemotingClientConfig())
    client.connection_listener = told.append
    client.start()
    try:
        client.invoke_sync(peer.address, RemotingCommand.request(10), TIMEOUT_MS)
        assert told == []
        peer.stop()
        wait_until(lambda: told == [peer.address])
    finally:
        client.shutdown()
