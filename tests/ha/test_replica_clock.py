"""ha.replica_clock: time in each state, whole and never back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.replica_clock import GAP_MS, ReplicaClock
from ha.slave_progress import ReplicaState

IN_SYNC, CATCHING_UP, GONE = (
    ReplicaState.in_sync,
    ReplicaState.catching_up,
    ReplicaState.disconnected,
)


def spent(clock: ReplicaClock) -> tuple[int, int, int]:
    found = clock.spent_ms()
    return found[IN_SYNC], found[CATCHING_UP], found[GONE]


def test_time_counts_for_the_state_that_it_began_in() -> None:
    clock = ReplicaClock(1000, CATCHING_UP)
    assert spent(clock) == (0, 0, 0)
    clock.observe(IN_SYNC, 1200)
    assert spent(clock) == (0, 200, 0)
    clock.observe(GONE, 1500)
    clock.observe(GONE, 1600)
    assert spent(clock) == (300, 200, 100)


@pytest.mark.parametrize(("silence_ms", "expected"), [(GAP_MS, IN_SYNC), (GAP_MS + 1, GONE)])
def test_a_long_silence_is_disconnected_time(silence_ms: int, expected: ReplicaState) -> None:
    clock = ReplicaClock(0, IN_SYNC)
    clock.observe(IN_SYNC, silence_ms)
    assert clock.spent_ms()[expected] == silence_ms
    clock.observe(IN_SYNC, silence_ms + 100)
    assert clock.spent_ms()[IN_SYNC] == 100 + (silence_ms if expected is IN_SYNC else 0)


def test_what_was_counted_before_is_gone_on_with_and_the_time_between_is_disconnected() -> None:
    clock = ReplicaClock(5000, spent_ms={IN_SYNC: 70, GONE: 7})
    clock.observe(CATCHING_UP, 5300)
    assert spent(clock) == (70, 0, 307)


def test_a_clock_that_stands_or_a_late_word_counts_nothing() -> None:
    clock = ReplicaClock(5000, IN_SYNC)
    clock.observe(GONE, 4000)
    clock.observe(IN_SYNC, 5000)
    assert spent(clock) == (0, 0, 0)
    clock.observe(IN_SYNC, 5001)
    assert spent(clock) == (1, 0, 0)


def test_spent_is_a_copy() -> None:
    clock = ReplicaClock(0, IN_SYNC)
    clock.spent_ms()[IN_SYNC] = 99
    assert spent(clock) == (0, 0, 0)


@given(
    st.integers(0, 10**12),
    st.sampled_from(ReplicaState),
    st.lists(st.tuples(st.integers(0, 3 * GAP_MS), st.sampled_from(ReplicaState)), max_size=60),
)
def test_all_states_together_are_the_elapsed_time(
    start_ms: int, first: ReplicaState, steps: list[tuple[int, ReplicaState]]
) -> None:
    clock, now_ms, before = ReplicaClock(start_ms, first), start_ms, spent(ReplicaClock(0))
    current = first
    for elapsed_ms, state in steps:
        now_ms += elapsed_ms
        clock.observe(state, now_ms)
        after = spent(clock)
        assert sum(after) == now_ms - start_ms
        assert all(new >= old for new, old in zip(after, before, strict=True))
        grown = ReplicaState.disconnected if elapsed_ms > GAP_MS else current
        index = (IN_SYNC, CATCHING_UP, GONE).index(grown)
        assert after[index] - before[index] == elapsed_ms
        before, current = after, state
