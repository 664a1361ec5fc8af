"""When derived files are cleaned."""

from __future__ import annotations

import threading
from collections.abc import Callable

from store.clean_consume_queue_service import CleanConsumeQueueService


class Desk:
    """Queues and index that remember."""

    def __init__(self, interval_ms: int = 60_000) -> None:
        self.log: list[str] = []
        self.low = 0
        self.cleaned = threading.Event()
        self.on_clean: Callable[[], None] = lambda: None
        self.service = CleanConsumeQueueService(
            self.clean,
            self.delete_expired,
            min_phy_offset=lambda: self.low,
            interval_ms=interval_ms,
            pause_ms=0,
        )

    def clean(self, min_phy_offset: int, pause: Callable[[], bool]) -> int:
        self.on_clean()
        stopped = pause()
        self.log.append(f"queues {min_phy_offset}{' stopped' if stopped else ''}")
        self.cleaned.set()
        return 1

    def delete_expired(self, min_phy_offset: int) -> int:
        self.log.append(f"index {min_phy_offset}")
        return 0


def test_only_when_the_minimum_has_grown() -> None:
    desk = Desk()
    for low in (0, 100, 100, 50, 200):
        desk.low = low
        desk.service.clean_once()
    assert desk.log == ["queues 100", "index 100", "queues 200", "index 200"]


def test_the_thread_cleans_when_woken() -> None:
    desk = Desk()
    desk.low = 7
    desk.service.start()
    desk.service.wakeup()
    assert desk.cleaned.wait(10)
    assert desk.service.shutdown(10_000)
    assert desk.log == ["queues 7", "index 7"]


def test_a_stop_ends_a_long_pass() -> None:
    desk = Desk()
    desk.low = 7

    def stop() -> None:
        desk.service.shutdown(0)

    desk.on_clean = stop
    desk.service.start()
    desk.service.wakeup()
    assert desk.cleaned.wait(10)
    assert desk.service.shutdown(10_000)
    assert desk.log == ["queues 7 stopped"]
