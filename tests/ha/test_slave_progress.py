"""ha.slave_progress: which reports are taken, how fast it goes, when a slave is in sync."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.refusals import RefusalReason
from ha.slave_progress import (
    ReplicaState,
    SlaveProgress,
    first_report_objection,
    start_offset_for,
)


def progress_at(first_report: int = 1000, start_offset: int | None = None) -> SlaveProgress:
    start = first_report if start_offset is None else start_offset
    return SlaveProgress("10.0.0.7:4711", first_report, start, now_ms=50_000, wall_ms=1_700_000)


@pytest.mark.parametrize(
    ("offset", "objection"),
    [
        (0, None),
        (1000, None),
        (1500, None),
        (2000, None),
        (-1, RefusalReason.NEGATIVE),
        (999, RefusalReason.BELOW_MIN),
        (1, RefusalReason.BELOW_MIN),
        (2001, RefusalReason.BEYOND_MAX),
        (2**62, RefusalReason.BEYOND_MAX),
    ],
)
def test_first_report(offset: int, objection: RefusalReason | None) -> None:
    assert first_report_objection(offset, 1000, 2000) is objection


def test_an_empty_slave_starts_at_the_history_s_start() -> None:
    assert start_offset_for(0, 1000) == 1000
    assert start_offset_for(1500, 1000) == 1500
    assert start_offset_for(0, 0) == 0


def test_what_a_new_connection_says_of_itself() -> None:
    progress = progress_at(0, 1000)
    assert (progress.remote, progress.ip) == ("10.0.0.7:4711", "10.0.0.7")
    assert progress.connected_since_ms == 1_700_000
    assert (progress.ack_offset, progress.sent_offset, progress.start_offset) == (0, 1000, 1000)
    assert progress.lag_bytes(1600) == 600, "what was deleted before is no lag"


def test_reports_up_to_what_was_sent() -> None:
    progress = progress_at(1000)
    progress.sent(1500, 500, 50_010)
    assert progress.report(1200) is None
    assert progress.report(1200) is None, "a heartbeat says the same again"
    assert progress.report(1500) is None
    assert progress.ack_offset == 1500


@pytest.mark.fault(18)
@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (-1, RefusalReason.NEGATIVE),
        (1199, RefusalReason.DECREASING),
        (0, RefusalReason.DECREASING),
        (1501, RefusalReason.BEYOND_SENT),
    ],
)
def test_lies_change_nothing(offset: int, reason: RefusalReason) -> None:
    progress = progress_at(1000)
    progress.sent(1500, 500, 50_010)
    assert progress.report(1200) is None
    assert progress.report(offset) is reason
    assert (progress.ack_offset, progress.position) == (1200, 1200)


def test_an_empty_slave_may_report_0_again() -> None:
    progress = progress_at(0, 1000)
    assert progress.report(0) is None
    assert progress.position == 1000
    progress.sent(1100, 100, 50_020)
    assert progress.report(1100) is None
    assert (progress.ack_offset, progress.position) == (1100, 1100)


@pytest.mark.fault(20)
@given(st.lists(st.tuples(st.booleans(), st.integers(-10, 300))))
def test_acks_never_fall_and_never_pass_what_was_sent(steps: list[tuple[bool, int]]) -> None:
    progress = progress_at(100)
    for is_report, number in steps:
        before = progress.ack_offset
        if not is_report:
            progress.sent(progress.sent_offset + abs(number), abs(number), 50_000)
        elif progress.report(number) is None:
            assert progress.ack_offset == number
        assert before <= progress.ack_offset <= progress.sent_offset
        assert progress.position == progress.ack_offset


def test_bytes_per_second_of_the_last_seconds() -> None:
    progress = progress_at(0)
    for step in range(1, 101):
        progress.sent(step * 1000, 1000, 50_000 + step * 100)  # 10 000 bytes/s
    assert progress.bytes_per_second(60_000) == pytest.approx(10_000, rel=0.05)
    assert progress.bytes_per_second(70_000) == 0


def test_bytes_per_second_of_a_young_link() -> None:
    progress = progress_at(0)
    assert progress.bytes_per_second(50_000) == 0
    progress.sent(3000, 3000, 50_100)
    assert progress.bytes_per_second(50_100) == 3000, "a burst is not scaled up"
    assert progress.bytes_per_second(52_000) == 1500


def test_buckets_of_long_ago_do_not_count_again() -> None:
    progress = progress_at(0)
    progress.sent(1000, 1000, 50_500)
    progress.sent(1008, 8, 58_500)  # the same bucket, eight seconds later
    assert progress.bytes_per_second(58_500) == 8 * 1000 // 4500


class TestState:
    def test_in_sync_once_it_held_everything_of_a_moment(self) -> None:
        progress = progress_at(1000)
        assert progress.judge(1800, 1000) is ReplicaState.catching_up
        progress.sent(2500, 1500, 50_000)
        progress.report(1799)
        assert progress.judge(2500, 1000) is ReplicaState.catching_up
        progress.report(1800)
        assert progress.judge(2700, 1000) is ReplicaState.in_sync, "it held the 1800 of before"

    def test_level_from_the_start(self) -> None:
        assert progress_at(1000).judge(1000, 10) is ReplicaState.in_sync
        assert progress_at(0).judge(0, 10) is ReplicaState.in_sync

    def test_falls_behind_and_has_to_be_level_again(self) -> None:
        progress = progress_at(1000)
        progress.judge(1000, 500)
        assert progress.judge(1499, 500) is ReplicaState.in_sync
        assert progress.judge(1500, 500) is ReplicaState.catching_up
        progress.sent(2000, 1000, 50_000)
        progress.report(1400)
        assert progress.judge(1600, 500) is ReplicaState.catching_up, "near, but not level"
        progress.report(1500)
        assert progress.judge(1600, 500) is ReplicaState.in_sync
        assert progress.state is ReplicaState.in_sync
