"""GenerationAwareReader: units are never read from the files of a queue that was deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipc.queue_table import QueueTableReader, QueueTableWriter, create_queue_table
from store.consume_queue_reader import ConsumeQueueReader
from store.generation_aware_reader import GenerationAwareReader
from store.mapped_file import file_name
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT


class World:
    def __init__(self, root: Path) -> None:
        config = MessageStoreConfig(
            store_path_root_dir=str(root), mapped_file_size_consume_queue=200
        )
        self.path = config.consume_queue_path
        fd = create_queue_table()
        self.writer = QueueTableWriter(fd)
        self.units = GenerationAwareReader(ConsumeQueueReader(config), QueueTableReader(fd))

    def write(self, phy_offsets: list[int], topic: str = "T") -> None:
        """A queue's file, made anew under the same name."""
        directory = self.path / topic / "0"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / file_name(0)
        path.unlink(missing_ok=True)
        data = b"".join(CQ_UNIT.pack(phy_offset, 100, 0) for phy_offset in phy_offsets)
        path.write_bytes(data.ljust(200, b"\0"))
        self.writer.set_offsets(self.writer.row(topic, 0), 0, len(phy_offsets))

    def read(self, count: int, topic: str = "T") -> list[int]:
        raw = self.units.read_units(topic, 0, 0, count)
        return [phy_offset for phy_offset, _, _ in CQ_UNIT.iter_unpack(raw)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_units_are_read(world: World) -> None:
    world.write([10, 20, 30])
    assert world.read(2) == [10, 20]
    assert world.units.read_units("T", 0, 2, 1) == CQ_UNIT.pack(30, 100, 0)
    assert world.units.read_units("unknown", 0, 0, 5) == b""


def test_a_new_generation_closes_the_old_files(world: World) -> None:
    world.write([10, 20, 30])
    world.write([7], "Other")
    assert world.read(3) == [10, 20, 30]
    assert world.read(1, "Other") == [7]
    world.writer.reset(world.writer.row("T", 0))
    world.write([99])
    assert world.read(1) == [99]
    assert world.read(1, "Other") == [7]


def test_without_a_new_generation_the_open_file_is_kept(world: World) -> None:
    """What makes the generation needed: descriptors outlive the names."""
    world.write([10])
    assert world.read(1) == [10]
    world.write([99])
    assert world.read(1) == [10]


def test_a_queue_deleted_before_the_first_read(world: World) -> None:
    world.writer.reset(world.writer.row("T", 0))
    world.write([5])
    assert world.read(1) == [5]


def test_times_are_looked_up_in_fresh_files(world: World) -> None:
    def by_time(timestamp_ms: int, at: Callable[[int], int]) -> int:
        log: Any = SimpleNamespace(store_timestamp_at=at, min_phy_offset=0)
        return world.units.offset_by_timestamp("T", 0, timestamp_ms, 0, 3, log)

    world.write([10, 20, 30])
    assert by_time(20, lambda phy_offset: phy_offset) == 1
    world.writer.reset(world.writer.row("T", 0))
    world.write([100, 200, 300])
    assert by_time(300, lambda phy_offset: phy_offset) == 2
    assert by_time(20, lambda phy_offset: phy_offset) == 0
