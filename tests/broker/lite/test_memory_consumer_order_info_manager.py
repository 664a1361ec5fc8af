"""What is out of light queues: it takes memory as long as it is out, and no longer."""

from __future__ import annotations

from broker.lite.memory_consumer_order_info_manager import MemoryConsumerOrderInfoManager
from broker.pop.order_infos import ILLEGAL, NO_COMMIT

DAY_MS = 24 * 3600 * 1000


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.order = MemoryConsumerOrderInfoManager(lambda: self.now_ms)

    def out(self, lmq: str, *offsets: int) -> list[int]:
        places = tuple(1_000 + offset for offset in offsets)
        return self.order.update(None, (lmq, "G"), self.now_ms, 100, list(offsets), places)

    def kept(self) -> tuple[int, int]:
        return len(self.order), len(self.order._lmq_at)


def test_nothing_is_kept_of_what_is_acknowledged() -> None:
    world = World()
    world.out("q", 0, 1)
    assert world.kept() == (1, 2)
    assert world.order.lmq_of("G", 1_001) == "q"
    assert world.order.commit_and_next(("q", "G"), 0, world.now_ms, 0) == 1
    assert world.order.commit_and_next(("q", "G"), 1, world.now_ms, 1) == 2
    assert world.kept() == (0, 0)
    assert world.order.commit_and_next(("q", "G"), 1, world.now_ms, 1) == NO_COMMIT
    world.now_ms += DAY_MS
    assert world.order.take_free() is None


def test_what_is_handed_out_again_is_known_once() -> None:
    world = World()
    assert world.out("q", 0, 1) == [0, 0]
    world.now_ms += 100
    assert world.out("q", 0, 1, 2) == [1, 1, 0]
    assert world.kept() == (1, 3)
    assert world.order.commit_and_next(("q", "G"), 5, world.now_ms, 0) == ILLEGAL


def test_a_client_that_suspends_again_and_again_lowers_no_attempt() -> None:
    world, queue = World(), ("q", "G")

    def out(attempt: str) -> int:
        world.now_ms += 100
        return world.order.update(attempt, queue, world.now_ms, 100, [0], (1_000,))[0]

    def suspend(times: int) -> None:
        for _ in range(times):
            world.order.suspend(queue, 0, world.now_ms, world.now_ms)

    assert [out("a"), out("b")] == [0, 1]
    suspend(5)
    assert [out("b"), out("b")] == [1, 1]  # the same attempt, as it is asked for again
    suspend(5)
    assert out("c") == 1  # the last one does not count
    assert out("d") == 2
    suspend(1)
    assert [out("e"), out("f")] == [2, 3]


def test_what_nobody_wants_for_a_day_is_forgotten() -> None:
    world = World()
    for name in "pqr":
        world.out(name, ord(name))
    world.now_ms += 100
    for name in "pqr":
        assert world.order.take_free() == (name, "G")
    world.out("p", ord("p"))
    world.now_ms += DAY_MS
    world.order.clear_block("q", "G")
    world.order.clean()
    assert world.kept() == (2, 2)
    world.now_ms += 1
    world.order.clean()
    assert world.order.lmq_of("G", 1_000 + ord("p")) == "p"
    assert world.kept() == (1, 1)
    assert world.order.take_free() == ("p", "G")
    world.now_ms += DAY_MS
    world.out("p", ord("p"))
    world.now_ms += 1
    world.order.clean()
    assert world.kept() == (1, 1)


def test_a_queue_is_free_when_its_last_message_is() -> None:
    world = World()
    world.out("q", 0, 1)
    world.order.update_next_visible_time(("q", "G"), 0, world.now_ms, world.now_ms + 10)
    popped_ms = world.now_ms
    world.now_ms += 10
    assert world.order.check_block(None, "q", "G")
    assert world.order.take_free() is None
    assert world.order.is_soon()
    world.order.update_next_visible_time(("q", "G"), 1, popped_ms, world.now_ms)
    assert not world.order.check_block(None, "q", "G")
    assert world.order.take_free() == ("q", "G")
    assert world.order.take_free() is None


def test_what_is_wanted_again_or_gone_is_not_unwanted() -> None:
    world = World()
    for offset, name in enumerate("pqr"):
        world.out(name, offset)
    popped_ms = world.now_ms
    world.now_ms += 100
    while world.order.take_free() is not None:
        pass
    world.order.update_next_visible_time(("p", "G"), 0, popped_ms, world.now_ms + 2 * DAY_MS)
    world.order.clear_block("q", "G")
    assert list(world.order._unwanted) == [("r", "G")]
    world.now_ms += DAY_MS + 1
    world.order.clean()
    assert world.kept() == (1, 1)
    world.now_ms += DAY_MS
    assert world.order.take_free() == ("p", "G")
    world.order.clear()
    assert not world.order._unwanted
