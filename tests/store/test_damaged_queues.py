"""Consume queue files that are damaged: the log is the truth, no offset is used twice.

Each kind of damage after a clean stop, after a kill and in a living store; afterwards the queues'
files must be byte for byte those from before, and a writer must go on with the next offset.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipc.queue_table import QueueTableReader
from store.control_slots import FENCE_COUNT, QUEUE_UNITS_LOST, QUEUE_UNITS_REBUILT
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from tests.faults.store_world import (
    FILE_SIZE,
    StoreDesk,
    World,
    Writer,
    assert_closes_clean,
    assert_whole,
)

COUNT = 120
PER_QUEUE = COUNT // 6
STEP_MS = 10_000
"""Between two records, so that recovery after a kill scans the last file of the log only."""


def path_of(world: World, topic: str = "Even", queue_id: int = 0) -> Path:
    return world.config.consume_queue_path / topic / str(queue_id) / f"{0:020d}"


def write(world: World, numbers: range) -> None:
    writer = Writer(world).open()
    for number in numbers:
        writer.log.now_ms = 1_700_000_000_000 + STEP_MS * number
        writer.write([number])
    writer.close()


def files_of(world: World) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in world.config.consume_queue_path.rglob("0*")
        if path.is_file()
    }


# -- kinds of damage -----------------------------------------------------------------------------


def deleted(world: World) -> None:
    path_of(world).unlink()


def directory_deleted(world: World) -> None:
    shutil.rmtree(path_of(world).parent)


def zeroed(world: World) -> None:
    path_of(world).write_bytes(bytes(path_of(world).stat().st_size))


def cut_in_a_unit(world: World) -> None:
    path_of(world).write_bytes(path_of(world).read_bytes()[: 7 * CQ_UNIT_SIZE + 11])


def cut_at_a_unit(world: World) -> None:
    path_of(world).write_bytes(path_of(world).read_bytes()[: 7 * CQ_UNIT_SIZE])


def zeroed_in_the_middle(world: World) -> None:
    data = bytearray(path_of(world).read_bytes())
    data[5 * CQ_UNIT_SIZE : 9 * CQ_UNIT_SIZE] = bytes(4 * CQ_UNIT_SIZE)
    path_of(world).write_bytes(data)


def of_another_queue(world: World) -> None:
    path_of(world).write_bytes(path_of(world, "Odd", 1).read_bytes())


def of_another_topic(world: World) -> None:
    path_of(world).write_bytes(path_of(world, "Odd", 0).read_bytes())


def of_an_older_time(world: World) -> None:
    """As a backup of the file would be: the first units only."""
    data = path_of(world).read_bytes()
    path_of(world).write_bytes(data[: 9 * CQ_UNIT_SIZE].ljust(len(data), b"\0"))


def flipped(unit: int, at: int) -> Callable[[World], None]:
    def flip(world: World) -> None:
        data = bytearray(path_of(world).read_bytes())
        data[unit % PER_QUEUE * CQ_UNIT_SIZE + at] ^= 0x40
        path_of(world).write_bytes(data)

    flip.__name__ = f"flipped_{unit}_{at}"
    return flip


def damage_record(world: World, phy_offset: int) -> None:
    """Its first bytes in the log: no size, no magic."""
    start = phy_offset - phy_offset % FILE_SIZE
    path = world.config.commit_log_path / f"{start:020d}"
    data = bytearray(path.read_bytes())
    data[phy_offset - start : phy_offset - start + 8] = bytes(range(200, 208))
    path.write_bytes(data)


WHOLE_FILES = (
    deleted,
    directory_deleted,
    zeroed,
    cut_in_a_unit,
    cut_at_a_unit,
    zeroed_in_the_middle,
    of_another_queue,
    of_another_topic,
    of_an_older_time,
)
UNITS = tuple(flipped(unit, at) for unit in (0, 5, -1) for at in (0, 6, 7, 8, 11))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "store").boot()
    yield world
    world.close()


def filled(world: World) -> tuple[StoreDesk, dict[Path, bytes]]:
    """A store with messages, all flushed, and the bytes of its queues."""
    desk = StoreDesk(world).open()
    write(world, range(COUNT))
    desk.dispatch()
    desk.flush()
    return desk, files_of(world)


def rebuild(desk: StoreDesk) -> None:
    while desk.store.rebuild.rebuild_once():
        pass


def judge(world: World, desk: StoreDesk, before: dict[Path, bytes]) -> None:
    """The files are as before, and the next messages get the next offsets."""
    rebuild(desk)
    assert files_of(world) == before
    desk.allocate()
    write(world, range(COUNT, COUNT + 12))
    desk.dispatch()
    assert_whole(world, desk, list(range(COUNT + 12)))
    assert_closes_clean(world, desk)


@pytest.mark.parametrize("damage", WHOLE_FILES, ids=lambda damage: damage.__name__)
def test_after_a_clean_stop(world: World, damage: Callable[[World], None]) -> None:
    desk, before = filled(world)
    desk.shutdown()
    damage(world)
    again = StoreDesk(world.boot()).open()
    table = QueueTableReader(world.table_fd)
    assert table.offsets("Even", 0) == (0, PER_QUEUE), "at once, before anything is rebuilt"
    if damage is zeroed_in_the_middle:
        # Both ends are right: whoever reads it finds it.
        again.store.rebuild.request("Even", 0, 6)
    judge(world, again, before)


@pytest.mark.parametrize("damage", WHOLE_FILES, ids=lambda damage: damage.__name__)
def test_after_a_kill(world: World, damage: Callable[[World], None]) -> None:
    desk, before = filled(world)
    desk.abandon()
    damage(world)
    again = StoreDesk(world.boot()).open()
    judge(world, again, before)


@pytest.mark.parametrize("damage", WHOLE_FILES, ids=lambda damage: damage.__name__)
def test_after_a_clean_stop_and_then_a_kill(world: World, damage: Callable[[World], None]) -> None:
    """Nothing but the state of the clean stop knows how far the queue went."""
    desk, before = filled(world)
    desk.shutdown()
    StoreDesk(world.boot()).open().abandon()
    damage(world)
    again = StoreDesk(world.boot()).open()
    judge(world, again, before)


@pytest.mark.parametrize("damage", WHOLE_FILES, ids=lambda damage: damage.__name__)
def test_in_a_living_store(world: World, damage: Callable[[World], None]) -> None:
    desk, before = filled(world)
    damage(world)
    generation = QueueTableReader(world.table_fd).generation_of("Even", 0)
    desk.store.rebuild.request("Even", 0, 8)
    rebuild(desk)
    table = QueueTableReader(world.table_fd)
    assert table.generation_of("Even", 0) == generation + 1, "readers open the files again"
    assert table.offsets("Even", 0) == (0, PER_QUEUE)
    judge(world, desk, before)


@pytest.mark.parametrize("damage", WHOLE_FILES, ids=lambda damage: damage.__name__)
def test_under_a_restart_of_the_store_process(
    world: World, damage: Callable[[World], None]
) -> None:
    desk, before = filled(world)
    desk.abandon()
    damage(world)
    judge(world, StoreDesk(world).open(), before)


@pytest.mark.parametrize("damage", UNITS, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("way", ["clean stop", "kill", "living"])
def test_one_flipped_bit(world: World, damage: Callable[[World], None], way: str) -> None:
    desk, before = filled(world)
    if way == "clean stop":
        desk.shutdown()
    elif way == "kill":
        desk.abandon()
    damage(world)
    if way != "living":
        desk = StoreDesk(world.boot()).open()
    assert QueueTableReader(world.table_fd).offsets("Even", 0) == (0, PER_QUEUE)
    unit = 0 if "_0_" in damage.__name__ else 5 if "_5_" in damage.__name__ else PER_QUEUE - 1
    desk.store.rebuild.request("Even", 0, unit)
    judge(world, desk, before)


def test_what_the_log_does_not_have_becomes_a_blank_unit(world: World) -> None:
    """A record that is itself damaged cannot be found again; its neighbours can."""
    desk, before = filled(world)
    path = path_of(world)
    phy_offset, _, _ = CQ_UNIT.unpack_from(before[path], 5 * CQ_UNIT_SIZE)
    log = world.config.commit_log_path / f"{phy_offset - phy_offset % 16_384:020d}"
    with log.open("r+b") as file:
        file.seek(phy_offset % 16_384 + 20)
        file.write(bytes(8))
    desk.store.rebuild.request("Even", 0, 5)
    rebuild(desk)
    counters = world.page().counters
    assert (counters[QUEUE_UNITS_REBUILT], counters[QUEUE_UNITS_LOST]) == (0, 1)
    units = list(CQ_UNIT.iter_unpack(path.read_bytes()[: 7 * CQ_UNIT_SIZE]))
    assert units[5][1] == PRE_BLANK_SIZE
    assert units[6] == CQ_UNIT.unpack_from(before[path], 6 * CQ_UNIT_SIZE)
    desk.abandon()


def test_damage_in_the_log_ends_no_rebuild(world: World) -> None:
    """What lies behind it gets its units; what it hides is counted once."""
    desk, before = filled(world)
    path = path_of(world)
    damage_record(world, CQ_UNIT.unpack_from(before[path], 5 * CQ_UNIT_SIZE)[0])
    zeroed_in_the_middle(world)
    for _ in range(2):
        desk.store.rebuild.request("Even", 0, 5)
        rebuild(desk)
        counters = world.page().counters
        assert (counters[QUEUE_UNITS_REBUILT], counters[QUEUE_UNITS_LOST]) == (3, 1)
        found, blank = path.read_bytes(), slice(5 * CQ_UNIT_SIZE, 6 * CQ_UNIT_SIZE)
        assert CQ_UNIT.unpack(found[blank])[1] == PRE_BLANK_SIZE
        assert found[: blank.start] + before[path][blank] + found[blank.stop :] == before[path]
    desk.abandon()


def test_blank_units_of_a_fence_stay(world: World) -> None:
    desk, before = filled(world)
    desk.abandon()
    path = path_of(world)
    damage_record(world, CQ_UNIT.unpack_from(before[path], 5 * CQ_UNIT_SIZE)[0])
    world.config.checkpoint_path.unlink()
    again = StoreDesk(world.boot()).open()
    counters = world.page().counters
    assert counters[FENCE_COUNT] == 1
    fenced = files_of(world)
    assert CQ_UNIT.unpack_from(fenced[path], 5 * CQ_UNIT_SIZE)[1] == PRE_BLANK_SIZE
    flipped(6, 7)(world)
    again.store.rebuild.request("Even", 0, 6)
    rebuild(again)
    assert files_of(world) == fenced
    assert (counters[QUEUE_UNITS_REBUILT], counters[QUEUE_UNITS_LOST]) == (1, 0)
    again.abandon()


def test_a_wrong_tags_code_is_not_found_by_itself(world: World) -> None:
    """The boundary: tags codes are not compared, but a rebuild around them sets them right."""
    desk, before = filled(world)
    flipped(5, 19)(world)
    desk.store.rebuild.request("Even", 0, 5)
    rebuild(desk)
    assert files_of(world) != before
    flipped(5, 7)(world)
    desk.store.rebuild.request("Even", 0, 5)
    rebuild(desk)
    assert files_of(world) == before
    desk.abandon()


def test_a_deleted_topic_does_not_come_back(world: World) -> None:
    desk, _ = filled(world)
    desk.shutdown()
    again = StoreDesk(world.boot()).open()
    assert again.store._derived.queues.delete_topic("Even") == 3
    again.shutdown()
    third = StoreDesk(world.boot()).open()
    rebuild(third)
    assert QueueTableReader(world.table_fd).offsets("Even", 0) == (0, 0)
    third.shutdown()


@pytest.mark.parametrize("unit", [3, PER_QUEUE - 1])
def test_retention_does_not_believe_a_wrong_unit(world: World, unit: int) -> None:
    """A search among wrong units must not hide messages behind the queue's min offset."""
    desk, before = filled(world)
    data = bytearray(before[path_of(world)])
    data[: (unit + 1) * CQ_UNIT_SIZE] = bytes((unit + 1) * CQ_UNIT_SIZE)
    path_of(world).write_bytes(data)
    second_record = CQ_UNIT.unpack_from(before[path_of(world)], CQ_UNIT_SIZE)[0]
    desk.store._derived.clean_queues(second_record, lambda: False)
    assert QueueTableReader(world.table_fd).offsets("Even", 0) == (0, PER_QUEUE)
    judge(world, desk, before)
