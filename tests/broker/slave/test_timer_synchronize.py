"""broker.slave.timer_synchronize: a read time counts once our log holds what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.out.broker_outer_api import BrokerAnswerError, TimerCheckPointAnswer
from broker.slave.timer_synchronize import TimerSynchronize
from remoting.body.kv_table import KVTable
from remoting.request_code import RequestCode
from store.control_slots import MAX_PHY_OFFSET
from store.timer.timer_slots import (
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_READ_TIME_MS,
    TIMER_TAKEN_BACK_MS,
)
from tests.support.shared_memory import close_page, fresh_page

GOLDEN = bytes.fromhex(
    "000001a205ac6d60"
    "00000000000011ac"
    "0000000000000057"
    "0000000000000057"
    "0000000000000000"
    "000001a205ac6e94"
    "0000000000000340"
)
"""A timercheck of a Java 5.3.3, reference/timer.md."""


class Master:
    def __init__(self) -> None:
        self.answer: TimerCheckPointAnswer | None = TimerCheckPointAnswer(GOLDEN, 0)
        self.log_end = 0

    def get_timer_check_point(self, _broker: str, _timeout_ms: int) -> TimerCheckPointAnswer:
        if self.answer is None:
            raise BrokerAnswerError("code 3")
        return self.answer

    def get_table(self, _broker: str, code: RequestCode, _timeout_ms: int) -> bytes | None:
        assert code == RequestCode.GET_BROKER_RUNTIME_INFO
        table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.log_end)}
        return KVTable(table=table).to_json_bytes()


@pytest.fixture
def counters() -> Iterator[memoryview]:
    page = fresh_page()
    yield page.counters
    close_page(page)


def test_a_java_master(counters: memoryview) -> None:
    TimerSynchronize(Master(), counters).sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0x1A205AC6D60
    assert counters[TIMER_MASTER_QUEUE_OFFSET] == 0x57


def test_the_read_time_of_a_java_master_waits_for_the_log(counters: memoryview) -> None:
    """It does not say where its log ended, so that is asked for (28)."""
    master = Master()
    master.log_end, counters[MAX_PHY_OFFSET] = 1_000, 999
    sync = TimerSynchronize(master, counters)
    sync.sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0
    counters[MAX_PHY_OFFSET] = 1_000
    sync.sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0x1A205AC6D60


def test_what_this_slave_delivered_is_not_forgotten(counters: memoryview) -> None:
    """A master that has not asked for it yet says less."""
    counters[TIMER_TAKEN_BACK_MS] = 0x1A205AC6D60 + 5_000
    TimerSynchronize(Master(), counters).sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0x1A205AC6D60 + 5_000


def test_a_read_time_waits_for_the_log(counters: memoryview) -> None:
    master = Master()
    sync = TimerSynchronize(master, counters)
    master.answer = TimerCheckPointAnswer(GOLDEN, 1_000)
    counters[MAX_PHY_OFFSET] = 999
    sync.sync("m:1")
    assert (counters[TIMER_READ_TIME_MS], counters[TIMER_MASTER_QUEUE_OFFSET]) == (0, 0x57)
    master.answer = TimerCheckPointAnswer((0x1A205AC7148).to_bytes(8, "big") + GOLDEN[8:], 2_000)
    counters[MAX_PHY_OFFSET] = 1_500
    sync.sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0x1A205AC6D60
    counters[MAX_PHY_OFFSET] = 2_000
    sync.sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0x1A205AC7148


def test_a_master_without_timers(counters: memoryview, caplog: pytest.LogCaptureFixture) -> None:
    master = Master()
    sync = TimerSynchronize(master, counters)
    for answer in (None, None, TimerCheckPointAnswer(b"short", 0)):
        master.answer = answer
        sync.sync("m:1")
    assert counters[TIMER_READ_TIME_MS] == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
