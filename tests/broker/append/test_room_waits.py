"""RoomWaits: each message counts, few have a line."""

from __future__ import annotations

import pytest

from broker.append.room_waits import RoomWaits
from store.control_slots import PUT_OFF, PutOffBy
from store.errors import QueueTableFullError
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page


def test_ten_lines_a_minute_and_the_number_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    page, clock = fresh_page(), ManualClock(1_700_000_000_000)
    waits = RoomWaits(page.counters, clock)
    for number in range(1_000):
        waits.put_off(PutOffBy.TIMER_DELIVERY, number, QueueTableFullError("full"))
    assert caplog.messages == [
        f"timer_delivery: postponing the message at {number}: full" for number in range(10)
    ]
    clock.advance(60_000)
    waits.put_off(PutOffBy.POP_REVIVAL, 7, QueueTableFullError("full"))
    assert caplog.messages[10:] == [
        "990 more messages were postponed",
        "pop_revival: postponing the message at 7: full",
    ]
    assert list(page.counters[PUT_OFF : PUT_OFF + 4]) == [1_000, 0, 1, 0]
    close_page(page)


def test_their_slots_are_enough() -> None:
    assert max(PutOffBy) < 4
