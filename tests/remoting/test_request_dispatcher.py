"""RequestDispatcher without a network: what a processor does, and what the peer is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from remoting.errors import HeaderError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode


class RecordingConnection:
    """A ConnectionLike that keeps what is sent."""

    connection_id = 1
    remote_address = "10.0.0.1:1"
    is_open = True

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send_command(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


class Does:
    """A processor that returns or raises what its test says."""

    def __init__(self, outcome: Exception | Callable[[RemotingCommand], RemotingCommand | None]):
        self.outcome = outcome

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome(request)


class BusyPool:
    """A real pool whose only thread is kept busy until `end`, and its dispatcher."""

    BUSY = 2

    def __init__(self, processor: Does) -> None:
        self.connection = RecordingConnection()
        self._gate, self._is_busy = threading.Event(), threading.Event()
        self.executor = RequestExecutor("pool", 1, 3, wait_limit_ms=0)
        self.dispatcher = RequestDispatcher(
            {1: Route(processor, "pool"), self.BUSY: Route(Does(self._wait), "pool")},
            {"pool": self.executor},
        )
        self.dispatcher.dispatch(self.connection, RemotingCommand.request(self.BUSY))
        assert self._is_busy.wait(10)

    def _wait(self, _request: RemotingCommand) -> None:
        self._is_busy.set()
        assert self._gate.wait(10)

    def end(self) -> None:
        self._gate.set()
        self.dispatcher.shutdown()


def test_a_request_that_waited_too_long_is_answered() -> None:
    pool = BusyPool(Does(AssertionError("nobody is served")))
    for oneway in (False, True):
        pool.dispatcher.dispatch(pool.connection, RemotingCommand.request(1, {}, oneway=oneway))
    pool.executor.refuse_late()
    pool.end()
    [answer] = pool.connection.sent
    assert answer.code == 2
    assert answer.remark is not None
    assert answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")


def test_a_request_for_a_pool_says_when_it_came() -> None:
    """Not when its turn in the pool came: what is answered later is timed by it."""
    came_ns: list[int] = []
    pool = BusyPool(Does(lambda request: came_ns.append(request.came_ns)))
    before_ns = time.monotonic_ns()
    pool.dispatcher.dispatch(pool.connection, RemotingCommand.request(1))
    handed_ns = time.monotonic_ns()
    pool.end()
    assert before_ns <= came_ns[0] <= handed_ns


def answers(
    route: Route | None, *, oneway: bool = False, room: int = 1
) -> list[tuple[int, str | None]]:
    connection = RecordingConnection()
    dispatcher = RequestDispatcher(
        {} if route is None else {307: route}, {"pool": RequestExecutor("pool", 1, room)}
    )
    request = RemotingCommand.request(307, oneway=oneway)
    dispatcher.dispatch(connection, request)
    dispatcher.shutdown()
    assert all(command.opaque == request.opaque for command in connection.sent)
    return [(command.code, command.remark) for command in connection.sent]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (lambda request: request.response(0, "ok"), [(0, "ok")]),
        (lambda request: None, []),
        (RequestError(ResponseCode.TOPIC_NOT_EXIST, "no T"), [(17, "no T")]),
        (HeaderError("H", "topic", "is missing"), [(1, "H.topic: is missing")]),
        (KeyError("x"), [(1, "KeyError: 'x'")]),
    ],
)
def test_outcomes(
    outcome: Exception | Callable[[RemotingCommand], RemotingCommand | None],
    expected: list[tuple[int, str | None]],
) -> None:
    assert answers(Route(Does(outcome))) == expected
    assert answers(Route(Does(outcome), "pool")) == expected
    assert answers(Route(Does(outcome)), oneway=True) == []


def test_unknown_code() -> None:
    assert answers(None) == [(3, " request type 307 not supported")]
    assert answers(None, oneway=True) == []


def test_full_pool() -> None:
    route = Route(Does(lambda request: None), "pool")
    busy = "[OVERLOAD]system busy, start flow control for a while"
    assert answers(route, room=0) == [(2, busy)]
    assert answers(route, room=0, oneway=True) == []


def test_route_to_a_pool_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="request code 307: no executor named pool"):
        RequestDispatcher({307: Route(Does(KeyError()), "pool")}, {})
