"""broker.slave.master_flushed_offset: a master's word counts once, an operator's always."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.slave.master_flushed_offset import MasterFlushedOffset
from tests.support.shared_memory import close_page, fresh_page


@pytest.fixture
def counters() -> Iterator[memoryview]:
    page = fresh_page()
    yield page.counters
    close_page(page)


@pytest.mark.parametrize(("taken", "value"), [(True, 500), (False, 0)])
def test_the_masters_word(counters: memoryview, taken: bool, value: int) -> None:
    flushed = MasterFlushedOffset(counters, taken_at_startup=taken)
    flushed.offer(None)
    flushed.offer(0)
    flushed.offer(500)
    flushed.offer(900)
    assert flushed.value == value


def test_an_operators_word(counters: memoryview) -> None:
    flushed = MasterFlushedOffset(counters, taken_at_startup=True)
    flushed.reset(7, "somebody")
    flushed.offer(900)
    assert flushed.value == 7
    flushed.reset(0, "somebody")
    flushed.offer(900)
    assert flushed.value == 900
