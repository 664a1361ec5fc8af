from __future__ import annotations

import time

from ipc.clock import Clock, SystemClock
from tests.support.manual_clock import ManualClock


def test_system_clock_is_the_systems() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    assert 0 <= clock.monotonic_ms() - time.monotonic() * 1000 + 1000 < 2000


def test_manual_clock_moves_when_told() -> None:
    clock: Clock = ManualClock(now_ms=10)
    assert isinstance(clock, ManualClock)
    clock.advance(5)
    clock.jump_to(3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (3, 5)
