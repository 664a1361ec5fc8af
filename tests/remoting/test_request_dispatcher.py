"""RequestDispatcher without a network: what a processor does, and what the peer is told."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from remoting.errors import HeaderError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_dispatcher import RequestDispatcher
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


class Pool:
    """Takes functions for later, or none."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[Callable[[], None]] = []
        self.refusals: list[Callable[[str], None]] = []

    def try_submit(self, run: Callable[[], None], refuse: Callable[[str], None]) -> bool:
        if len(self.taken) < self.room:
            self.taken.append(run)
            self.refusals.append(refuse)
            return True
        return False


def test_a_request_that_waited_too_long_is_answered() -> None:
    connection, pool = RecordingConnection(), Pool(2)
    dispatcher = RequestDispatcher({1: Route(Does(lambda _: None), "pool")}, {"pool": pool})
    for oneway in (False, True):
        dispatcher.dispatch(connection, RemotingCommand.request(1, {}, oneway=oneway))
    for refuse in pool.refusals:
        refuse("[TIMEOUT_CLEAN_QUEUE]broker busy")
    [answer] = connection.sent
    assert (answer.code, answer.remark) == (2, "[TIMEOUT_CLEAN_QUEUE]broker busy")


def test_a_request_for_a_pool_says_when_it_came() -> None:
    """Not when its turn in the pool came: what is answered later is timed by it."""
    came_ns: list[int] = []
    pool = Pool(1)
    processor = Does(lambda request: came_ns.append(request.came_ns))
    dispatcher = RequestDispatcher({1: Route(processor, "pool")}, {"pool": pool})
    before_ns = time.monotonic_ns()
    dispatcher.dispatch(RecordingConnection(), RemotingCommand.request(1))
    handed_ns = time.monotonic_ns()
    pool.taken[0]()
    assert before_ns <= came_ns[0] <= handed_ns


def answers(
    route: Route | None, *, oneway: bool = False, pool: Pool | None = None
) -> list[tuple[int, str | None]]:
    connection = RecordingConnection()
    dispatcher = RequestDispatcher(
        {} if route is None else {307: route}, {} if pool is None else {"pool": pool}
    )
    request = RemotingCommand.request(307, oneway=oneway)
    dispatcher.dispatch(connection, request)
    for function in pool.taken if pool is not None else []:
        function()
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
    assert answers(Route(Does(outcome), "pool"), pool=Pool(1)) == expected
    assert answers(Route(Does(outcome)), oneway=True) == []


def test_unknown_code() -> None:
    assert answers(None) == [(3, " request type 307 not supported")]
    assert answers(None, oneway=True) == []


def test_full_pool() -> None:
    route = Route(Does(lambda request: None), "pool")
    busy = "[OVERLOAD]system busy, start flow control for a while"
    assert answers(route, pool=Pool(0)) == [(2, busy)]
    assert answers(route, pool=Pool(0), oneway=True) == []


def test_route_to_a_pool_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="request code 307: no executor named pool"):
        RequestDispatcher({307: Route(Does(KeyError()), "pool")}, {})
