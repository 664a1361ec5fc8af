"""A server with a gate: whom it is asked about, on which port, and what a refused peer hears."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import FastHandler, FastRoutes, RemotingServer
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from remoting.selector_loop import SelectorLoop
from tests.support.frame_decoder import FrameDecoder

ON_LOOP, IN_POOL, FAST, UNKNOWN = 1, 2, 310, 99


class Gate:
    """Refuses requests without a word, and remembers who was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        self.asked.append((request.code, threading.current_thread().name))
        if "word" not in request.ext_fields:
            raise RequestError(ResponseCode.NO_PERMISSION, f"say it, {connection.remote_address}")


class Echo:
    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        return request.response(0, "served")


def ask(address: tuple[str, int], command: RemotingCommand) -> RemotingCommand:
    decoder = FrameDecoder()
    with socket.create_connection(address, timeout=5) as sock:
        sock.sendall(encode_command(command))
        while (answer := decoder.next_command()) is None:
            data = sock.recv(65536)
            assert data, "closed"
            decoder.feed(data)
    return answer


@contextmanager
def serving(gate: Gate, fast: FastHandler | None = None) -> Iterator[list[tuple[str, int]]]:
    """Addresses of a main port and of one with a table of its own."""
    loop = SelectorLoop("loop")
    pool = RequestExecutor("pool", 1, 10)
    routes = {ON_LOOP: Route(Echo()), IN_POOL: Route(Echo(), "pool"), FAST: Route(Echo())}
    server = RemotingServer(
        loop,
        RequestDispatcher(routes, {"pool": pool}, gate=gate.check),
        fast_routes=FastRoutes(json=((b'{"code":310', fast),) if fast else ()),
    )
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    server.add_listener(sockets[0])
    server.add_listener(sockets[1], {ON_LOOP: routes[ON_LOOP]})
    server.start()
    loop.start()
    try:
        yield [sock.getsockname() for sock in sockets]
    finally:
        loop.call_soon_threadsafe(server.shutdown)
        loop.stop()
        loop.close()
        for sock in sockets:
            sock.close()


def test_a_request_passes_or_is_answered_by_the_gate() -> None:
    gate = Gate()
    with serving(gate) as (main, vip):
        for address in (main, vip):
            refused = ask(address, RemotingCommand.request(ON_LOOP))
            assert refused.code == ResponseCode.NO_PERMISSION
            assert (refused.remark or "").startswith("say it, 127.0.0.1:")
            assert ask(address, RemotingCommand.request(ON_LOOP, {"word": "w"})).remark == "served"
    assert [code for code, _ in gate.asked] == [ON_LOOP] * 4


def test_the_gate_is_asked_where_the_request_is_served() -> None:
    gate = Gate()
    with serving(gate) as (main, _):
        ask(main, RemotingCommand.request(IN_POOL, {"word": "w"}))
        ask(main, RemotingCommand.request(ON_LOOP, {"word": "w"}))
    assert gate.asked == [(IN_POOL, "pool_0"), (ON_LOOP, "loop")]


def test_an_unknown_code_is_not_supported_whoever_asks() -> None:
    gate = Gate()
    with serving(gate) as (main, _):
        answer = ask(main, RemotingCommand.request(UNKNOWN))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert gate.asked == []


def test_a_fast_route_does_not_come_to_the_gate() -> None:
    """That is why there must be none beside a gate that guards its code."""
    taken = []

    def fast(connection: Connection, header: memoryview, body: memoryview) -> bool:
        taken.append(bytes(header))
        connection.send_command(RemotingCommand(0, flag=1, remark="fast"))
        return True

    gate = Gate()
    with serving(gate, fast) as (main, _):
        assert ask(main, RemotingCommand.request(FAST)).remark == "fast"
    assert len(taken) == 1
    assert gate.asked == []
