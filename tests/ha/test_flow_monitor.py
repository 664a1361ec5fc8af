"""FlowMonitor: the long-run rate holds, turns are taken, nothing is polled."""

from __future__ import annotations

from ha.flow_monitor import FlowMonitor
from tests.support.manual_clock import ManualClock


def test_without_a_limit_everything_leaves_now() -> None:
    flow = FlowMonitor(0)
    assert not flow.is_limited
    assert [flow.book(1 << 30, 5) for _ in range(3)] == [5, 5, 5]


def test_frames_follow_each_other_at_the_rate() -> None:
    flow = FlowMonitor(1000)
    assert flow.is_limited
    assert flow.book(500, 0) == 0
    assert flow.book(250, 0) == 500
    assert flow.book(250, 600) == 750
    assert flow.book(1, 5000) == 5000


def test_idle_time_is_not_saved_up() -> None:
    flow = FlowMonitor(1000)
    flow.book(100, 0)
    assert flow.book(1000, 60_000) == 60_000
    assert flow.book(1000, 60_000) == 61_000


def test_the_long_run_rate_of_three_connections_holds_and_is_shared() -> None:
    limit = 1_000_000
    flow, clock = FlowMonitor(limit), ManualClock()
    sizes = [flow.frame_limit + 12, 1000, 37]
    leaves = [flow.book(size, 0) for size in sizes]
    counts = [0, 0, 0]
    total = 0
    while clock.monotonic_ms() < 60_000:
        now = clock.monotonic_ms()
        for index, size in enumerate(sizes):
            if leaves[index] <= now:
                counts[index] += 1
                total += size
                leaves[index] = flow.book(size, now)
        clock.advance(1)
        assert total <= limit * clock.monotonic_ms() / 1000 + sum(sizes)
    assert total >= limit * 59
    assert min(counts) >= max(counts) / 2


def test_frames_are_a_tenth_of_a_second_but_never_tiny() -> None:
    assert FlowMonitor(50_000_000).frame_limit == 5_000_000
    assert FlowMonitor(10).frame_limit == 1024
