"""PopLongPollingService: nobody waits for longer than an hour, whatever it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from broker.pop.pop_long_polling_service import (
    LONGEST_POLL_MS,
    MOST_CHARACTERS,
    PollingLimits,
    PopLongPollingService,
)
from broker.pop.pop_request import PollingResult

pytestmark = pytest.mark.interpreted


@dataclass
class Clock:
    now_ms: int = 1_000


@pytest.mark.parametrize("poll_ms", [LONGEST_POLL_MS + 1, 2**62, 2**63 - 1])
def test_a_long_poll_ends_after_an_hour(poll_ms: int) -> None:
    clock, ended = Clock(), []
    service = PopLongPollingService[Any](
        ended.append, PollingLimits(10, 10, 10), lambda: clock.now_ms
    )
    request = SimpleNamespace(
        connection=SimpleNamespace(is_open=True),
        header=SimpleNamespace(consumerGroup="g", topic="t", queueId=0, pollTime=poll_ms),
        sent_ms=clock.now_ms,
    )
    assert service.polling(request) is PollingResult.POLLING_SUC
    clock.now_ms += LONGEST_POLL_MS - 100
    service.scan()
    assert ended == []
    clock.now_ms += 100
    service.scan()
    assert ended == [request]


def waiting_request(queue_id: int, clock: Clock, poll_ms: int = 60_000) -> Any:
    return SimpleNamespace(
        connection=SimpleNamespace(is_open=True),
        header=SimpleNamespace(consumerGroup="g", topic="t", queueId=queue_id, pollTime=poll_ms),
        sent_ms=clock.now_ms,
    )


def test_a_peer_that_asks_for_other_queues_below_zero_asks_for_any() -> None:
    """With a key for each, 20,000 of them that find messages but take none (maxMsgNums=0) were run
    again every 100 ms: a send took two seconds."""
    clock, runs = Clock(), 0

    def run_again(request: Any) -> None:
        nonlocal runs
        runs += 1
        assert service.polling(request) is PollingResult.POLLING_SUC
        service.notify("t", "g", request.header.queueId)

    service = PopLongPollingService[Any](
        run_again, PollingLimits(1_000, 1_000, 1_000), lambda: clock.now_ms
    )
    for number in range(1, 101):
        assert service.polling(waiting_request(-number, clock)) is PollingResult.POLLING_SUC
    assert service.polling_num("t", "g", -7) == 100
    service.notify("t", "g", -3)
    for _ in range(50):
        clock.now_ms += 20
        service.scan()
    assert 5 <= runs <= 12


@pytest.mark.parametrize("is_over", [True, False])
def test_a_scan_runs_for_ten_milliseconds(is_over: bool) -> None:
    """The rest comes next time, in its order."""
    clock, ran = Clock(), []

    def run_again(request: Any) -> None:
        clock.now_ms += 1
        ran.append(request.header.queueId)
        if not is_over and ran.count(request.header.queueId) == 1:
            service.polling(request)
            service.notify("t", "g", request.header.queueId)

    service = PopLongPollingService[Any](
        run_again, PollingLimits(1_000, 1_000, 1_000), lambda: clock.now_ms
    )
    for number in range(30):
        service.polling(waiting_request(number, clock, 1_000 if is_over else 600_000))
    if not is_over:
        for number in range(30):
            service.notify("t", "g", number)
        ran.clear()
        ran.extend(range(30))
    clock.now_ms += 2_000
    first = len(ran)
    service.scan()
    assert len(ran) - first == 10
    for _ in range(3):
        clock.now_ms += 20
        service.scan()
    assert ran[first:] == list(range(30))


def test_long_texts_wait_only_as_far_as_memory_goes() -> None:
    """100,000 notifications, each with an expression of 64 KiB, took all memory."""
    clock, ended = Clock(), []
    service = PopLongPollingService[Any](
        ended.append, PollingLimits(100, 100, 100), lambda: clock.now_ms
    )
    half = MOST_CHARACTERS // 2
    assert service.polling(waiting_request(0, clock, 1_000), half) is PollingResult.POLLING_SUC
    assert service.polling(waiting_request(0, clock), half) is PollingResult.POLLING_SUC
    assert service.polling(waiting_request(0, clock), 257) is PollingResult.POLLING_FULL
    assert service.polling(waiting_request(0, clock), 256) is PollingResult.POLLING_SUC
    clock.now_ms += 1_000
    service.scan()
    assert len(ended) == 1
    assert service.polling(waiting_request(0, clock), half - 256) is PollingResult.POLLING_SUC
    assert service.polling(waiting_request(0, clock), 257) is PollingResult.POLLING_FULL
