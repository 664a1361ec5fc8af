"""broker.client.rebalance_lock_manager: who gets a queue, for how long, who may give it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.rebalance_lock_manager import REBALANCE_LOCK_MAX_LIVE_MS, RebalanceLockManager
from remoting.body.message_queue import MessageQueue
from tests.broker.broker_fakes import FakeClock


def queue(queue_id: int, topic: str = "t") -> MessageQueue:
    return MessageQueue(broker_name="b", queue_id=queue_id, topic=topic)


def test_a_lock_excludes_others_and_renews() -> None:
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    assert locks.try_lock_batch("g", [queue(0), queue(1)], "c1") == [queue(0), queue(1)]
    assert locks.try_lock_batch("g", [queue(1), queue(2)], "c2") == [queue(2)]
    assert locks.try_lock_batch("h", [queue(1)], "c2") == [queue(1)], "another group"
    clock.advance(REBALANCE_LOCK_MAX_LIVE_MS)
    assert locks.try_lock_batch("g", [queue(0)], "c1") == [queue(0)], "renewed"
    clock.advance(1)
    assert locks.try_lock_batch("g", [queue(0), queue(1)], "c2") == [queue(1)], "1 expired"
    assert locks.is_locked("g", queue(1), "c2")
    assert not locks.is_locked("g", queue(1), "c1")


def test_many_queues_of_others_are_two_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A line each was 20,000 lines for a frame of 1 MiB, on the loop."""
    RebalanceLockManager(FakeClock()).unlock_batch("g", map(queue, range(20_000)), "c1")
    assert len(caplog.records) == 2
    assert caplog.messages[1] == "group g: c1 cannot unlock 19999 more queues"


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLockManager(FakeClock())
    locks.try_lock_batch("g", [queue(0)], "c1")
    locks.unlock_batch("g", [queue(0), queue(9)], "c2")
    assert locks.is_locked("g", queue(0), "c1")
    locks.unlock_batch("g", [queue(0)], "c1")
    assert locks.try_lock_batch("g", [queue(0)], "c2") == [queue(0)]
    locks.unlock_batch("unknown", [queue(0)], "c1")


def test_locks_that_nobody_renews_are_forgotten() -> None:
    """RocketMQ keeps each until it is given back, whoever asked for it."""
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    for number in range(20):
        wanted = [queue(n, f"t{number}") for n in range(1_000)]
        assert locks.try_lock_batch(f"g{number}", wanted, "c") == wanted
        clock.advance(REBALANCE_LOCK_MAX_LIVE_MS // 2)
    assert len(locks._groups) < 15
    assert sum(map(len, locks._groups.values())) == locks._count < 15_000
    assert locks.is_locked("g19", queue(0, "t19"), "c")


def test_all_locks_together_are_bounded() -> None:
    clock = FakeClock()
    locks = RebalanceLockManager(clock, max_locks=3)
    assert locks.try_lock_batch("g", [queue(n) for n in range(5)], "c") == [
        queue(n) for n in range(3)
    ]
    assert locks.try_lock_batch("h", [queue(0)], "c") == []
    assert list(locks._groups) == ["g"]
    clock.advance(REBALANCE_LOCK_MAX_LIVE_MS)
    assert locks.try_lock_batch("g", [queue(0)], "c") == [queue(0)], "renewed"
    clock.advance(1_000)
    assert locks.try_lock_batch("h", [queue(0), queue(1), queue(2)], "d") == [queue(0), queue(1)]
    locks.unlock_batch("h", [queue(0)], "d")
    assert locks.try_lock_batch("h", [queue(2)], "d") == [queue(2)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lock", "unlock"]),
            st.sampled_from(["c1", "c2", "c3"]),
            st.integers(0, 2),
            st.integers(0, 40_000),
        ),
        max_size=30,
    )
)
def test_against_a_plain_model(steps: list[tuple[str, str, int, int]]) -> None:
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    model: dict[int, tuple[str, int]] = {}
    for action, client, number, pause_ms in steps:
        clock.advance(pause_ms)
        owner, since = model.get(number, ("", -(10**9)))
        if action == "unlock":
            locks.unlock_batch("g", [queue(number)], client)
            if owner == client:
                del model[number]
            continue
        free = owner in ("", client) or clock.monotonic - since > REBALANCE_LOCK_MAX_LIVE_MS
        assert bool(locks.try_lock_batch("g", [queue(number)], client)) is free
        if free:
            model[number] = (client, clock.monotonic)
        assert locks.is_locked("g", queue(number), client) is free
