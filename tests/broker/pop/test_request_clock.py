"""RequestClock: how long a request waits does not depend on what is done to the wall clock."""

from __future__ import annotations

import pytest

from broker.pop.request_clock import RequestClock
from tests.support.manual_clock import ManualClock

HOUR_MS = 3_600_000


@pytest.mark.parametrize(("ago_ms", "age_ms"), [(0, 0), (300, 300), (-300, 0), (-HOUR_MS, 0)])
@pytest.mark.parametrize("step_ms", [-HOUR_MS, 0, HOUR_MS, 24 * HOUR_MS])
def test_the_age_of_a_request(ago_ms: int, age_ms: int, step_ms: int) -> None:
    clock = ManualClock(monotonic_ms=10_000)
    requests = RequestClock(clock.now_ms, clock.monotonic_ms)
    sent_ms = requests.sent_ms(clock.now_ms() - ago_ms)
    assert requests.age_ms(sent_ms) == age_ms
    clock.jump_to(clock.now_ms() + step_ms)
    clock.advance(2_000)
    assert requests.age_ms(sent_ms) == age_ms + 2_000


def test_a_request_that_does_not_say_it_was_sent_now() -> None:
    clock = ManualClock(monotonic_ms=10_000)
    assert RequestClock(clock.now_ms, clock.monotonic_ms).sent_ms(0) == 10_000
