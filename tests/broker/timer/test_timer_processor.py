"""broker.timer.timer_processor: who is told a check point of timers, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.timer.timer_processor import TimerProcessor
from ha.control_slots import ISOLATED
from ipc.control_page import ControlPage
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import TIMER_OPENED, TIMER_READ_TIME_MS
from tests.broker.broker_fakes import FakeConnection
from tests.support.shared_memory import close_page, fresh_page


@pytest.fixture
def page() -> Iterator[ControlPage]:
    page = fresh_page()
    page.counters[TIMER_OPENED], page.counters[TIMER_READ_TIME_MS] = 1, 5_000
    yield page
    close_page(page)


def ask(page: ControlPage, root: Path, *, is_slave: bool) -> TimerCheckpoint:
    processor = TimerProcessor(
        page.counters, root / "timercheck", root / "timermetrics", enabled=True, is_slave=is_slave
    )
    asked = RemotingCommand.request(60, {})
    answer = processor.get_timer_check_point(FakeConnection(), asked)
    return TimerCheckpoint.decode(answer.body)


def test_a_master_that_is_isolated_tells_no_slave_how_far_it_was(
    page: ControlPage, tmp_path: Path
) -> None:
    """One that was started anew after it delivered in the master's place would take that."""
    page.counters[ISOLATED] = 2
    with pytest.raises(RequestError, match="isolated"):
        ask(page, tmp_path, is_slave=False)
    page.counters[ISOLATED] = 0
    assert ask(page, tmp_path, is_slave=False).last_read_time_ms == 5_000


def test_a_slave_that_is_isolated_tells_its_master(page: ControlPage, tmp_path: Path) -> None:
    page.counters[ISOLATED] = 1
    assert ask(page, tmp_path, is_slave=True).last_read_time_ms == 5_000
