"""ask_for_short_slice: as the kernel says afterwards."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable

import pytest

from ipc.short_slice import SLICE_NS, ask_for_short_slice, read_attributes

Attributes = tuple[int, int, int]


def on_a_thread(*actions: Callable[[], None]) -> Attributes:
    """What a new thread is after them."""
    found: list[Attributes] = []

    def run() -> None:
        for action in actions:
            action()
        found.append(read_attributes())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def usual() -> Attributes:
    try:
        found = read_attributes()
    except OSError as error:
        pytest.skip(str(error))
    if not found[2]:
        pytest.skip("this kernel knows no slices of single threads (before 6.12)")
    return found


def test_only_the_thread_that_asks_and_only_its_slice(usual: Attributes) -> None:
    policy, nice, slice_ns = usual
    assert on_a_thread(ask_for_short_slice) == (policy, nice, SLICE_NS)
    assert slice_ns > SLICE_NS
    assert on_a_thread() == usual == read_attributes()


def test_another_policy_is_left_alone(usual: Attributes) -> None:
    def become_batch() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    found = on_a_thread(become_batch, ask_for_short_slice)
    assert found[0] == os.SCHED_BATCH
    assert found[2] != SLICE_NS


def test_a_machine_whose_calls_are_not_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    caplog.set_level(logging.INFO)
    ask_for_short_slice()
    assert "not known how on pdp11" in caplog.text
