"""Seeded flips in a store of several files, after a clean stop or a crash, queues whole or lost.

Every undamaged message is there at its queue offset, no queue offset is used twice, and the store
goes on: new messages, another start, an orderly stop.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.control_slots import FENCE_COUNT, MAX_PHY_OFFSET
from store.message import Message
from tests.faults.store_world import (
    FILE_SIZE,
    StoreDesk,
    World,
    Writer,
    assert_closes_clean,
    assert_whole,
    number_of,
    walk,
)

COUNT = 300
AFTER = range(1_000, 1_012)
FLIPS = {"size": 3, "magic": 6, "place": 34, "body size": 87, "body": 90}


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        world = World(Path(directory) / "store").boot()
        yield world
        world.close()


def fill(world: World) -> list[Message]:
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    for first in range(0, COUNT, 20):
        writer.write(range(first, first + 20))
        desk.allocate()
    desk.dispatch()
    writer.close()
    desk.flush()
    messages = [message for message, _ in walk(world, world.counter(MAX_PHY_OFFSET))]
    assert len(messages) == COUNT
    desk.shutdown()
    return messages


def flip(world: World, phy_offset: int, bit: int) -> None:
    path = world.config.commit_log_path / f"{phy_offset - phy_offset % FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[phy_offset % FILE_SIZE] ^= 1 << bit
    path.write_bytes(data)


LONG = [pytest.param(number, marks=pytest.mark.long) for number in range(4, 60)]


@pytest.mark.parametrize("seed", [*range(4), *LONG])
@pytest.mark.parametrize("queues", ["kept", "lost"])
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_flips(world: World, stop: str, queues: str, seed: int) -> None:
    messages = fill(world)
    chance = random.Random(seed)
    # After a clean stop the last three files are read. The last record may be a torn one.
    last_files = messages[-1].phy_offset // FILE_SIZE * FILE_SIZE - 2 * FILE_SIZE
    least = 0 if stop == "crash" else last_files
    read = [n for n, message in enumerate(messages[:-1]) if message.phy_offset >= least]
    damaged = set(chance.sample(read, chance.choice((1, 2, 5))))
    for number in damaged:
        at = messages[number].phy_offset + FLIPS[chance.choice(list(FLIPS))]
        flip(world, at, chance.randrange(3 if queues == "lost" else 8))
    (world.root / "clean.exit").unlink()
    if stop == "crash":
        (world.root / "abort").write_text("another boot")
        (world.root / "checkpoint").unlink()
    if queues == "lost":
        shutil.rmtree(world.config.consume_queue_path)
        shutil.rmtree(world.config.index_path)
    expected = [n for n in range(COUNT) if n not in damaged]
    used = {(m.topic, m.queue_id, m.queue_offset) for m in messages}
    for first in (AFTER.start, AFTER.start + 100):
        world.boot()
        desk = StoreDesk(world).open()
        assert world.counter(FENCE_COUNT) > 0
        assert_whole(world, desk, expected)
        writer = Writer(world).open()
        new = range(first, first + len(AFTER))
        writer.write(new)
        desk.allocate()
        desk.dispatch()
        expected += new
        assert_whole(world, desk, expected)
        for message, _ in walk(world, world.counter(MAX_PHY_OFFSET)):
            if number_of(message) in new:
                place = (message.topic, message.queue_id, message.queue_offset)
                assert place not in used
                used.add(place)
        writer.close()
        if first == AFTER.start:
            desk.abandon()
    assert_closes_clean(world, desk)
