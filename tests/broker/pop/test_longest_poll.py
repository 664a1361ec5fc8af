"""PopLongPollingService: nobody waits for longer than an hour, whatever it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from broker.pop.pop_long_polling_service import (
    LONGEST_POLL_MS,
    PollingLimits,
    PopLongPollingService,
)
from broker.pop.pop_request import PollingResult


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
