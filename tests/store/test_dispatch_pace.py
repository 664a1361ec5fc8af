"""DispatchPace: one by one while somebody waits, gathered at high rates and when nobody does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipc.control_page import ControlPage
from store.control_slots import PULL_HELD_MS
from store.dispatch_pace import DispatchPace
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page


@pytest.fixture
def page() -> Iterator[ControlPage]:
    page = fresh_page()
    yield page
    close_page(page)


def held(page: ControlPage, clock: ManualClock) -> DispatchPace:
    """A pull is held now."""
    page.counters[PULL_HELD_MS] = clock.monotonic_ms()
    return DispatchPace(page, clock)


@pytest.mark.parametrize(("count", "rest_ms"), [(0, 0), (1, 0.25), (3, 0.75), (4, 1), (100, 1)])
def test_while_consumers_wait(page: ControlPage, count: int, rest_ms: float) -> None:
    """It begins when a record is there."""
    pace = held(page, ManualClock(monotonic_ms=5_000))
    pace.dispatched(count, 200 * count)
    assert pace.left_ms(has_work=True) == pytest.approx(rest_ms)
    assert pace.left_ms(has_work=False) == 0


def test_it_ends_with_the_time(page: ControlPage) -> None:
    clock = ManualClock(monotonic_ms=5_000)
    pace = held(page, clock)
    pace.dispatched(4, 800)
    clock.advance(1)
    assert pace.left_ms(has_work=True) == 0


def test_nobody_waits(page: ControlPage) -> None:
    """A long rest is slept through at once; no pull was held, or none for a second."""
    clock = ManualClock(monotonic_ms=5_000)
    pace = DispatchPace(page, clock)
    for _ in range(2):
        pace.dispatched(1, 200)
        assert pace.left_ms(has_work=False) == pytest.approx(10)
        clock.advance(9)
        assert pace.left_ms(has_work=True) == pytest.approx(1)
        page.counters[PULL_HELD_MS] = clock.monotonic_ms()
        clock.advance(1_000)


@pytest.mark.parametrize("awaited", [True, False])
def test_no_rest_after_a_large_chunk(page: ControlPage, awaited: bool) -> None:
    clock = ManualClock(monotonic_ms=5_000)
    pace = held(page, clock) if awaited else DispatchPace(page, clock)
    pace.dispatched(4_000, 1 << 20)
    assert pace.left_ms(has_work=True) == 0
