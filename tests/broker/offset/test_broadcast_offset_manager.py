"""BroadcastOffsetManager: who is followed, for how long, and what is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.offset import broadcast_offset_manager
from broker.offset.broadcast_offset_manager import BroadcastClient, BroadcastOffsetManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from tests.support.manual_clock import ManualClock

DIRECT, PROXIED = BroadcastClient("c", from_proxy=False), BroadcastClient("c", from_proxy=True)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.clock = ManualClock()
        self.online: set[str] = set()
        self.offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
        self.manager = BroadcastOffsetManager(
            self.offsets,
            lambda group, client_id: client_id in self.online,
            self.clock,
            expire_ms=120_000,
            expire_max_ms=300_000,
        )

    def update(self, offset: int, client: BroadcastClient = DIRECT, queue_id: int = 0) -> None:
        self.manager.update_offset("T", "g", queue_id, offset, client)

    def query(self, asked: int, client: BroadcastClient = DIRECT) -> int:
        return self.manager.query_init_offset("T", "g", 0, client, asked, lambda: 77)

    @property
    def committed(self) -> dict[int, int]:
        return self.offsets.query_offsets("g@broadcast", "T")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_is_known(world: World) -> None:
    assert world.query(0) == -1
    assert world.query(0, PROXIED) == -1
    assert world.query(-1) == -1
    assert world.query(-1, PROXIED) == 77


def test_a_client_moves_and_comes_back(world: World) -> None:
    world.update(5)
    world.update(3)
    assert world.query(4) == -1
    assert world.query(-1, PROXIED) == 5, "the highest"
    world.update(5, PROXIED)
    assert world.query(0, PROXIED) == -1
    assert world.query(1) == 5


def test_a_new_client_of_a_proxy_begins_at_the_lowest_of_the_others(world: World) -> None:
    world.update(5)
    world.update(8, BroadcastClient("d", from_proxy=True))
    world.update(9, queue_id=2)
    world.manager.scan()
    assert world.committed == {0: 5, 2: 9}
    assert world.query(-1, BroadcastClient("e", from_proxy=True)) == 5


def test_who_is_silent_is_forgotten(world: World) -> None:
    world.online = {"c"}
    world.update(5)
    world.update(3, BroadcastClient("gone", from_proxy=False))
    world.clock.advance(119_999)
    world.manager.scan()
    assert world.committed == {0: 3}
    world.clock.advance(1)
    world.manager.scan()
    assert world.committed == {0: 5}, "the offline one counts no more"
    world.clock.advance(180_000)
    world.manager.scan()
    assert world.query(0, PROXIED) == -1, "nor is the online one known any more"
    world.update(6)
    assert world.query(-1, PROXIED) == 6


def test_a_proxy_cannot_fill_the_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast_offset_manager, "_MOST_CLIENTS", 2)
    for name in "abcd":
        world.update(1, BroadcastClient(name, from_proxy=True))
    assert world.query(-1, BroadcastClient("a", from_proxy=True)) == 1
    assert world.query(-1, BroadcastClient("d", from_proxy=True)) == -1
    world.clock.advance(300_000)
    world.manager.scan()
    world.update(4, BroadcastClient("d", from_proxy=True))
    assert world.query(-1, BroadcastClient("d", from_proxy=True)) == 4
