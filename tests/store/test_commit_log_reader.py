"""CommitLogReader: views and copies up to what is published, while files come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.message_codec import decode_record
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.shared_memory import fresh_page


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.log = PlainLog(tmp_path / "commitlog")
        self.page = fresh_page()
        self.reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)

    def fill(self, count: int, size: int = 500) -> None:
        for n in range(count):
            self.log.append(bytes([n % 256]) * size, store_timestamp=1000 + n)
        self.page.counters[MAX_PHY_OFFSET] = self.log.end


def record_at(world: World, phy_offset: int) -> bytes | None:
    """What the reader gives, which is what it reads at once, too."""
    raw = world.reader.record_at(phy_offset)
    read = world.reader.checked_at(phy_offset)
    if raw is None:
        assert read is None
    else:
        message, size = decode_record(raw, 0)
        assert read is not None
        assert (read.phy_offset, read.size, read.body) == (phy_offset, size, message.body)
        assert read.properties == message.properties
    return raw


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_record_is_found_by_its_offset(world: World) -> None:
    world.fill(30)
    assert len(list(world.log.directory.iterdir())) > 3
    for number, (phy_offset, raw) in enumerate(world.log.records):
        assert record_at(world, phy_offset) == raw
        assert world.reader.store_timestamp_at(phy_offset) == 1000 + number
        view = world.reader.view_of_file(phy_offset)
        assert view is not None
        at = phy_offset % FILE_SIZE
        assert view[at : at + len(raw)] == raw


@pytest.mark.parametrize("shift", [-1, 1, 8])
def test_other_offsets_hold_no_record(world: World, shift: int) -> None:
    world.fill(12)
    for phy_offset, _ in world.log.records:
        assert record_at(world, phy_offset + shift) is None


def test_nothing_behind_the_published_end_is_read(world: World) -> None:
    world.fill(3)
    last, raw = world.log.records[-1]
    world.page.counters[MAX_PHY_OFFSET] = last + len(raw) - 1
    assert record_at(world, last) is None
    world.page.counters[MAX_PHY_OFFSET] = last
    assert world.reader.store_timestamp_at(last) == -1
    assert record_at(world, 2**60) is None
    assert world.reader.store_timestamp_at(-5) == -1
    assert (world.reader.min_phy_offset, world.reader.max_phy_offset) == (0, last)


def test_a_blank_is_no_record(world: World) -> None:
    world.fill(8)
    boundary = next(o for o, _ in world.log.records if o >= FILE_SIZE)
    before = [(o, raw) for o, raw in world.log.records if o < FILE_SIZE][-1]
    blank_at = before[0] + len(before[1])
    assert blank_at < FILE_SIZE == boundary
    assert record_at(world, blank_at) is None


def test_a_damaged_body_is_not_given_out(world: World) -> None:
    world.fill(2)
    phy_offset, _ = world.log.records[1]
    world.log.put(phy_offset + 100, b"\xee")
    assert record_at(world, phy_offset) is None
    assert record_at(world, 0) is not None


def test_files_that_come_later_are_found(world: World) -> None:
    world.fill(2)
    assert world.reader.view_of_file(FILE_SIZE) is None
    world.fill(20)
    phy_offset, raw = world.log.records[-1]
    assert record_at(world, phy_offset) == raw


def test_a_deleted_file_is_gone_but_a_lent_view_stays(world: World) -> None:
    world.fill(20)
    first, raw = world.log.records[0]
    view = world.reader.view_of_file(first)
    assert view is not None
    world.log.path(0).unlink()
    world.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
    assert world.reader.view_of_file(first) is None
    assert record_at(world, first) is None
    assert world.reader.store_timestamp_at(first) == -1
    assert view[: len(raw)] == raw
    assert record_at(world, world.log.records[-1][0]) == world.log.records[-1][1]


def test_maps_below_the_start_are_dropped(world: World) -> None:
    """Else deleted files would keep their space."""
    world.fill(40)
    for phy_offset, _ in world.log.records:
        world.reader.view_of_file(phy_offset)
    mapped = len(world.reader._files._maps)
    assert mapped > 3
    world.page.counters[MIN_PHY_OFFSET] = 2 * FILE_SIZE
    world.reader.view_of_file(world.log.records[-1][0])
    assert len(world.reader._files._maps) == mapped - 2


def test_a_missing_file_in_the_middle(world: World) -> None:
    world.fill(20)
    world.log.path(FILE_SIZE).unlink()
    offset = next(o for o, _ in world.log.records if o >= FILE_SIZE)
    assert world.reader.view_of_file(offset) is None
    assert record_at(world, offset) is None
    assert record_at(world, 0) == world.log.records[0][1]


def test_closed_readers_keep_lent_views(world: World) -> None:
    world.fill(1)
    view = world.reader.view_of_file(0)
    world.reader.close()
    assert view is not None
    assert view[: len(world.log.records[0][1])] == world.log.records[0][1]
