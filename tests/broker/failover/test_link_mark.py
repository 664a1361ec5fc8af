"""LinkMark: the slot follows the link."""

from __future__ import annotations

from broker.failover.link_mark import LinkMark
from ha.control_slots import (
    MASTER_LINKED,
    MASTER_SEEN_MS,
    MEMBER_ORDER,
    ORDER_TAKEN,
    WITHOUT_MASTER_MS,
    MemberRole,
    order_after,
)
from ipc.clock import SystemClock
from ipc.control_page import ControlPage
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


def test_the_mark_follows_the_link() -> None:
    counters = ControlPage(ControlPage.create()).counters
    links = [False]
    mark = LinkMark(counters, lambda: links[0], SystemClock())
    counters[MASTER_LINKED] = 1  # Of a predecessor.
    mark.start()
    wait_until(lambda: counters[MASTER_LINKED] == 0)
    links[0] = True
    mark.wakeup()
    wait_until(lambda: counters[MASTER_LINKED] == 1)
    assert mark.shutdown()
    assert counters[MASTER_LINKED] == 0


def test_how_long_there_was_no_master() -> None:
    """While it leads it has one, and while it is linked with the one that it follows."""
    counters = ControlPage(ControlPage.create()).counters
    clock, links = ManualClock(monotonic_ms=10_000), [False]
    mark = LinkMark(counters, lambda: links[0], clock)
    mark.request_stop()  # No look waits for the next one.

    def look() -> tuple[int, int]:
        clock.advance(200)
        mark.step()
        return counters[MASTER_SEEN_MS], counters[WITHOUT_MASTER_MS]

    assert look() == (0, 200)
    links[0] = True
    assert look() == (10_400, 200)
    links[0] = False
    assert [look(), look()] == [(10_400, 400), (10_400, 600)]
    counters[MEMBER_ORDER] = counters[ORDER_TAKEN] = order_after(0, MemberRole.LEAD)
    assert look() == (11_000, 600)
    counters[MEMBER_ORDER] = order_after(counters[MEMBER_ORDER], MemberRole.FENCED)
    clock.advance(500)  # A look that comes late.
    assert look() == (11_000, 1_300)
