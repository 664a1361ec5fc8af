"""StoreFollower: what the loop takes up from shared memory before and after it sleeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from ipc.control_page import SLEEPS, ProcessIndex
from ipc.queue_table import QueueTableWriter
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET, PULL_HELD_MS, SYNC_FLUSH_WANTED
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request

SLEEP_FLAG = SLEEPS + ProcessIndex.REMOTING


def make_world(tmp_path: Path, **options: bool) -> HotPathWorld:
    world = HotPathWorld(tmp_path, **options)  # type: ignore[arg-type]
    world.topic()
    return world


def test_the_sleep_flag_is_set_between_the_hooks_only(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    assert world.follower.before_sleep() is None
    assert world.counters[SLEEP_FLAG] == 2, "no pull is held: queues that move wake nobody"
    world.follower.after_sleep()
    assert world.counters[SLEEP_FLAG] == 0


def test_a_held_pull_wants_to_know_of_moves_and_hurries_the_dispatch(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.clock.advance(70_000)
    world.follower.before_sleep()
    assert world.counters[PULL_HELD_MS] == 0
    world.follower.after_sleep()
    world.client().send(pull_request(sysFlag=6))
    world.turn()
    world.follower.before_sleep()
    assert world.counters[SLEEP_FLAG] == 1
    assert world.counters[PULL_HELD_MS] == world.clock.monotonic_ms()


def test_after_sleep_refreshes_the_logs_clock(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.clock.advance(50)
    world.follower.after_sleep()
    assert world.log.now_ms == world.clock.now_ms()


def test_moves_while_nobody_waits_are_skipped(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    writer = QueueTableWriter(world.table_fd)
    writer.mark_moved(writer.row("T", 0))
    assert world.follower.before_sleep() is None
    world.follower.after_sleep()
    assert not world.table.has_moves()


def test_a_move_between_the_look_and_the_sleep_forbids_the_sleep(tmp_path: Path) -> None:
    """Publish, then look whether it sleeps; say that I sleep, then look again."""
    world = make_world(tmp_path)
    world.client().send(pull_request(sysFlag=6))
    world.turn()
    assert world.follower.before_sleep() is None
    world.follower.after_sleep()
    writer = QueueTableWriter(world.table_fd)
    writer.mark_moved(writer.row("T", 0))
    assert world.follower.before_sleep() == 0.0
    world.follower.after_sleep()
    assert world.follower.before_sleep() is None


def test_while_sends_wait_the_sleep_is_short(tmp_path: Path) -> None:
    world = make_world(tmp_path, waits_for_flush=True)
    world.client().send(send_request())
    world.turn()
    limit = world.follower.before_sleep()
    assert limit is not None
    assert 0 < limit <= 0.005
    world.counters[FLUSHED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    assert world.follower.before_sleep() == 0.0
    world.follower.after_sleep()
    assert world.follower.before_sleep() is None


@pytest.mark.parametrize("waits_for_replicas", [True, False])
def test_only_replicas_are_looked_for_without_sleeping(
    tmp_path: Path, waits_for_replicas: bool
) -> None:
    kind = {"waits_for_replicas" if waits_for_replicas else "waits_for_flush": True}
    world = make_world(tmp_path, **kind)
    assert not world.follower.waits_for_peer()
    world.counters[REPLICA_COUNT] = 1
    world.follower.after_sleep()
    world.client().send(send_request())
    world.turn()
    assert world.follower.waits_for_peer() is waits_for_replicas
    assert not world.follower.peer_has_answered()
    world.counters[REPLICATED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    assert world.follower.peer_has_answered() is waits_for_replicas


def test_the_wanted_flush_only_grows_and_precedes_the_publication(tmp_path: Path) -> None:
    world = make_world(tmp_path, waits_for_flush=True)
    client = world.client()
    seen: list[tuple[int, int]] = []
    counters = world.counters
    world.log._on_publish = lambda: seen.append(
        (counters[SYNC_FLUSH_WANTED], counters[MAX_PHY_OFFSET])
    )
    for _ in range(3):
        client.send(send_request())
        world.turn()
    assert len(seen) == 3
    assert all(wanted == published for wanted, published in seen)
    counters[FLUSHED_OFFSET] = counters[MAX_PHY_OFFSET]
    world.turn()
    world.turn()
    assert counters[SYNC_FLUSH_WANTED] == seen[-1][0]


@pytest.mark.parametrize(("connected", "code"), [(0, 11), (1, 0), (3, 0)])
def test_replicas_are_counted_each_turn(tmp_path: Path, connected: int, code: int) -> None:
    world = make_world(tmp_path, waits_for_replicas=True)
    world.counters[REPLICA_COUNT] = connected
    world.counters[REPLICATED_OFFSET] = 1 << 40
    world.follower.after_sleep()
    client = world.client()
    assert client.call(send_request()).code == code
