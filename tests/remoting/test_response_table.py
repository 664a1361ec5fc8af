"""ResponseTable: every waiting call ends exactly once."""

from __future__ import annotations

import threading

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.response_table import ResponseFuture, ResponseTable


class Outcome:
    def __init__(self) -> None:
        self.calls: list[tuple[RemotingCommand | None, Exception | None]] = []

    def __call__(self, response: RemotingCommand | None, error: Exception | None) -> None:
        self.calls.append((response, error))


def future(opaque: int, address: str = "a:1", deadline_ms: int = 100) -> ResponseFuture:
    return ResponseFuture(opaque, address, deadline_ms, Outcome())


def answer(opaque: int) -> RemotingCommand:
    return RemotingCommand(0, opaque=opaque, flag=1)


def test_an_answer_completes_its_call_once(caplog: pytest.LogCaptureFixture) -> None:
    table, waiting = ResponseTable(), future(7)
    table.add(waiting)
    assert len(table) == 1
    response = answer(7)
    with caplog.at_level("INFO"):
        table.complete(response)
        table.complete(response)
    assert waiting.callback.calls == [(response, None)]  # type: ignore[attr-defined]
    assert len(table) == 0
    assert "opaque 7" in caplog.text


def test_take_gives_up_waiting() -> None:
    table, waiting = ResponseTable(), future(7)
    table.add(waiting)
    assert table.take(7) is waiting
    assert table.take(7) is None
    table.complete(answer(7))
    assert waiting.callback.calls == []  # type: ignore[attr-defined]


def test_a_lost_address_fails_its_calls_only() -> None:
    table = ResponseTable()
    calls = [future(1, "a:1"), future(2, "b:1"), future(3, "a:1")]
    for call in calls:
        table.add(call)
    error = OSError("gone")
    table.fail_address("a:1", error)
    table.fail_address("a:1", error)
    outcomes = [call.callback.calls for call in calls]  # type: ignore[attr-defined]
    assert outcomes == [[(None, error)], [], [(None, error)]]
    assert len(table) == 1


@pytest.mark.parametrize(("now_ms", "late"), [(99, []), (100, [1]), (101, [1]), (200, [1, 2])])
def test_expire_returns_what_is_late(now_ms: int, late: list[int]) -> None:
    table = ResponseTable()
    table.add(future(1, deadline_ms=100))
    table.add(future(2, deadline_ms=200))
    assert [f.opaque for f in table.expire(now_ms)] == late
    assert table.expire(now_ms) == []
    assert len(table) == 2 - len(late)


def test_answer_time_out_and_loss_race_for_one_call() -> None:
    """Whoever takes a call out of the table tells it; nobody else does."""
    table = ResponseTable()
    calls = [future(n) for n in range(500)]
    for call in calls:
        table.add(call)
    barrier = threading.Barrier(3)

    def complete() -> None:
        barrier.wait()
        for n in range(500):
            table.complete(answer(n))

    def expire() -> None:
        barrier.wait()
        for late in table.expire(1000):
            late.callback(None, TimeoutError())

    def lose() -> None:
        barrier.wait()
        table.fail_address("a:1", OSError())

    threads = [threading.Thread(target=function) for function in (complete, expire, lose)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(call.callback.calls) for call in calls] == [1] * 500  # type: ignore[attr-defined]


def test_a_callback_may_use_the_table() -> None:
    table = ResponseTable()
    again = future(2)
    table.add(ResponseFuture(1, "a:1", 100, lambda _response, _error: table.add(again)))
    table.complete(answer(1))
    assert table.take(2) is again


def test_nobody_answers_for_another(caplog: pytest.LogCaptureFixture) -> None:
    table, waiting = ResponseTable(), future(7, "10.0.0.1:1")
    table.add(waiting)
    table.complete(answer(7), "10.0.0.2:2")
    assert caplog.messages == [
        "10.0.0.2:2: dropped its response to opaque 7, which was sent to 10.0.0.1:1"
    ]
    assert waiting.callback.calls == []  # type: ignore[attr-defined]
    response = answer(7)
    table.complete(response, "10.0.0.1:1")
    assert waiting.callback.calls == [(response, None)]  # type: ignore[attr-defined]
