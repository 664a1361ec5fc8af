from __future__ import annotations

import threading

import pytest

from ipc.service_thread import ServiceThread
from tests.support.deadline import wait_until


class Counter(ServiceThread):
    def __init__(self, interval_ms: float = 60_000, fail_at: int = -1) -> None:
        super().__init__("Counter", on_failure=lambda thread, error: self.told.append(error))
        self.told: list[Exception] = []
        self.steps = 0
        self.finished = False
        self.interval_ms = interval_ms
        self.fail_at = fail_at
        self.thread_name = ""

    def step(self) -> None:
        self.thread_name = threading.current_thread().name
        self.steps += 1
        if self.steps == self.fail_at:
            raise OSError("disk")
        self.wait_for_running(self.interval_ms)

    def finish(self) -> None:
        self.finished = True


def test_it_runs_until_it_is_stopped() -> None:
    service = Counter(interval_ms=1)
    service.start()
    wait_until(lambda: service.steps > 3)
    assert service.shutdown()
    assert service.shutdown()
    assert service.finished
    assert not service.is_alive
    assert service.thread_name == "Counter"


def test_wakeup_ends_a_long_wait_and_is_not_lost() -> None:
    service = Counter()
    service.wakeup()
    service.start()
    wait_until(lambda: service.steps == 2)
    service.wakeup()
    wait_until(lambda: service.steps == 3)
    assert service.shutdown()


def test_a_failure_ends_it_and_is_told() -> None:
    service = Counter(interval_ms=1, fail_at=3)
    service.start()
    wait_until(lambda: not service.is_alive)
    assert isinstance(service.failure, OSError)
    assert service.told == [service.failure]
    assert not service.finished
    assert service.shutdown()


def test_who_does_not_stop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Stuck(ServiceThread):
        def step(self) -> None:
            release.wait(30)

    service = Stuck("Stuck")
    service.start()
    assert not service.shutdown(timeout_ms=20)
    assert "Stuck did not stop" in caplog.text
    release.set()
    assert service.shutdown()


def test_shutdown_before_start_and_second_start() -> None:
    assert Counter().shutdown()
    service = Counter()
    service.start()
    with pytest.raises(RuntimeError):
        service.start()
    assert service.shutdown()
