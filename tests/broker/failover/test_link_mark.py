"""LinkMark: the slot follows the link."""

from __future__ import annotations

from broker.failover.link_mark import LinkMark
from ha.control_slots import MASTER_LINKED
from ipc.clock import SystemClock
from ipc.control_page import ControlPage
from tests.support.deadline import wait_until


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
