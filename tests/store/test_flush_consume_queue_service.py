"""When queues are flushed, and what the checkpoint is told."""

from __future__ import annotations

import threading

import pytest

from ipc.service_thread import ServiceThread
from store.errors import DiskFullError, FlushFailedError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.message_store_config import MessageStoreConfig


class StillClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Desk:
    """A service and what it did, in order."""

    def __init__(self, interval_ms: int = 1, *, begins_with_all: bool = False) -> None:
        self.clock = StillClock()
        self.log: list[str] = []
        self.dispatched = 5
        self.offset = 3 << 30
        self.flushed = threading.Event()
        self.failures: list[Exception] = []
        self.fails = False
        self.units = self.written = 0
        self.is_full = False
        self.service = FlushConsumeQueueService(
            MessageStoreConfig(
                flush_interval_consume_queue=interval_ms,
                flush_consume_queue_least_pages=2,
                flush_consume_queue_thorough_interval=100,
            ),
            self,
            self.clock,
            dispatched_offset=lambda: self.offset,
            dispatched_timestamp=lambda: self.dispatched,
            on_flushed=self._on_flushed,
            begins_with_all=begins_with_all,
            on_failure=self._on_failure,
        )

    def unwritten_units(self) -> tuple[int, int]:
        return self.units, self.written

    def write_units(self, until: int) -> bool:
        if self.is_full:
            raise DiskFullError("full")
        if until > self.written:
            self.log.append(f"write {until}")
            self.written = until
        return False

    def flush_queues(self, least_pages: int) -> int:
        if self.fails:
            raise FlushFailedError("fdatasync")
        self.log.append(f"flush {least_pages}")
        self.dispatched += 1  # Dispatch goes on meanwhile.
        self.offset += 100
        self.flushed.set()
        return 0

    def _on_flushed(self, timestamp: int, phy_offset: int) -> None:
        self.log.append(f"checkpoint {timestamp} at {phy_offset - (3 << 30)}")

    def _on_failure(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)


def test_thorough_rounds_tell_the_checkpoint_what_was_flushed() -> None:
    desk = Desk()
    desk.service.flush_once()
    desk.clock.now += 99
    desk.service.flush_once()
    desk.clock.now += 1
    desk.service.flush_once()
    desk.service.flush_once()
    assert desk.log == ["flush 2", "flush 2", "flush 0", "checkpoint 7 at 200", "flush 2"]


@pytest.mark.parametrize("dispatched", [0, 5])
def test_what_the_checkpoint_does_not_know_is_flushed_first(dispatched: int) -> None:
    """Though nothing was dispatched in this life: no time is known then."""
    desk = Desk(begins_with_all=True)
    desk.dispatched = dispatched
    desk.service.flush_once()
    desk.service.flush_once()
    assert desk.log == ["flush 0", f"checkpoint {dispatched} at 0", "flush 2"]
    desk.dispatched = 0
    desk.service.flush_all()
    assert desk.log[3:] == ["flush 0"]


def test_a_log_that_grows_fast_is_not_left_without_a_checkpoint() -> None:
    """Where the log was at the start is no growth."""
    desk = Desk()
    desk.service.flush_once()
    desk.offset += (1 << 30) - 101
    desk.service.flush_once()
    assert desk.log == ["flush 2", "flush 2"]
    desk.offset += 1
    desk.service.flush_once()
    desk.service.flush_once()
    end = (1 << 30) + 100
    assert desk.log[2:] == ["flush 0", f"checkpoint 7 at {end}", "flush 2"]
    desk.offset += 1 << 30
    desk.service.flush_once()
    assert desk.log[5] == "flush 0"


def test_the_thread_flushes_and_ends_with_everything() -> None:
    desk = Desk()
    desk.service.start()
    assert desk.flushed.wait(10)
    assert desk.service.shutdown(10_000)
    assert desk.log[0] == "flush 2"
    assert desk.log[-2] == "flush 0"
    assert desk.log[-1].startswith("checkpoint")


def thorough(desk: Desk) -> list[str]:
    desk.clock.now += 100
    before = len(desk.log)
    desk.service.flush_once()
    return desk.log[before:]


def test_units_of_light_queues_are_written_one_thorough_round_later() -> None:
    """The checkpoint says what was so then."""
    desk = Desk()
    desk.units = 7
    assert thorough(desk) == ["flush 0"]
    desk.units = 9
    assert thorough(desk) == ["write 7", "flush 0", "checkpoint 5 at 0"]
    assert thorough(desk) == ["write 9", "flush 0", "checkpoint 7 at 200"]
    assert thorough(desk) == ["flush 0", "checkpoint 8 at 300"]


def test_units_that_find_no_room_are_not_promised() -> None:
    desk = Desk()
    desk.units = 7
    desk.is_full = True
    thorough(desk)
    assert thorough(desk) == ["flush 0"]
    desk.is_full = False
    assert thorough(desk)[:2] == ["write 7", "flush 0"]
    desk.units, desk.is_full = 8, True
    before = len(desk.log)
    desk.service.finish()
    assert desk.log[before] == "flush 0"
    assert desk.written == 7


def test_a_failed_flush_ends_the_service() -> None:
    desk = Desk()
    desk.fails = True
    with pytest.raises(FlushFailedError):
        desk.service.flush_once()
    desk.service.start()
    assert desk.service._thread is not None
    desk.service._thread.join(10)
    assert [type(error) for error in desk.failures] == [FlushFailedError]
    assert desk.log == []
