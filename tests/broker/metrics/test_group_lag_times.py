"""GroupLagTimes: what is counted between two looks is true of every moment between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metrics import group_lag_times
from broker.metrics.group_lag_times import (
    AGE_LE_MS,
    MESSAGES_LE,
    GroupLagSources,
    GroupLagTimes,
    read_groups,
)
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.offset.set_backs import SetBacks
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, MetricSlotsReader, create_metric_slots
from spark.config.objectives import LAG_MESSAGES, LAG_SECONDS
from store.errors import QueueDamagedError
from tests.support.manual_clock import ManualClock


class Queues:
    """When each message of a queue was stored."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], list[int]] = {}
        self.low: dict[tuple[str, int], int] = {}
        self.is_damaged = False

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        key = topic, queue_id
        return self.low.get(key, 0), len(self.stored.get(key, ()))

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int]:
        if self.is_damaged:
            raise QueueDamagedError(topic)
        return self.stored[topic, queue_id][queue_offset], 1, 0

    def store_timestamp_at(self, phy_offset: int) -> int:
        return phy_offset


class World:
    def __init__(self, root: Path, names: str = "g*") -> None:
        self.clock = ManualClock(monotonic_ms=1_000_000)
        self.queues = Queues()
        self.popped: dict[tuple[str, str, int], int] = {}
        self.offsets = ConsumerOffsetManager(root / "offsets.json")
        fd = create_metric_slots()
        self.slots = MetricSlots(fd, ProcessIndex.REMOTING)
        self.reader = MetricSlotsReader(fd)
        self.sources = GroupLagSources(
            names=names,
            offsets=self.offsets,
            queues=self.queues,
            pop_offset=lambda *key: self.popped.get(key),
        )
        self.times = self.begin()

    def begin(self) -> GroupLagTimes:
        """As process `remoting` does at its start."""
        self.times = GroupLagTimes(self.slots, self.sources, self.clock)
        return self.times

    def store(self, count: int, topic: str = "T", queue_id: int = 0) -> None:
        """Messages of now."""
        self.queues.stored.setdefault((topic, queue_id), []).extend([self.clock.now_ms()] * count)

    def commit(self, offset: int, group: str = "g", topic: str = "T", queue_id: int = 0) -> None:
        self.offsets.commit_offset("test", group, topic, queue_id, offset)

    def look(self, after_ms: int = 1_000) -> None:
        self.clock.advance(after_ms)
        self.times.look()

    @property
    def groups(self) -> dict[str, Any]:
        found = read_groups(self.reader, self.clock.monotonic_ms())  # type: ignore[arg-type]
        assert found is not None
        return found

    def spent(self, group: str = "g", topic: str = "T") -> Spent:
        rows = self.groups["rows"]
        return Spent(next(row for row in rows if (row["group"], row["topic"]) == (group, topic)))


class Spent:
    """A row, asked by its bounds: (within, beyond) ms."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def age(self, bound_ms: int) -> tuple[int, int]:
        place = AGE_LE_MS.index(bound_ms)
        return self.row["age_within"][place], self.row["age_beyond"][place]

    def messages(self, bound: int) -> tuple[int, int]:
        place = MESSAGES_LE.index(bound)
        return self.row["messages_within"][place], self.row["messages_beyond"][place]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.reader.close()
    found.slots.close()


def test_objectives_may_name_the_bounds_by_which_brokers_count() -> None:
    assert tuple(round(each * 1000) for each in LAG_SECONDS) == AGE_LE_MS
    assert LAG_MESSAGES == MESSAGES_LE


def test_nothing_to_consume(world: World) -> None:
    world.commit(0)
    world.look()
    world.look(1_500)
    assert world.spent().row | {"age_within": 0, "messages_within": 0} == {
        "group": "g",
        "topic": "T",
        "looked_ms": 0,
        "messages": 0,
        "age_ms": 0,
        "age_within": 0,
        "age_beyond": [0] * len(AGE_LE_MS),
        "messages_within": 0,
        "messages_beyond": [0] * len(MESSAGES_LE),
    }
    # A message may have come right behind the first look, and been consumed before the second.
    assert world.spent().age(1_000) == (1_000, 0)
    assert world.spent().age(2_000) == (1_500, 0)
    assert world.spent().messages(100) == (1_500, 0)


def test_a_group_that_is_offline_gets_late(world: World) -> None:
    world.store(5)
    world.commit(0)
    world.look(0)
    for _ in range(8):
        world.look()
    assert world.spent().row["age_ms"] == 8_000
    assert world.spent().age(5_000) == (5_000, 3_000)
    assert world.spent().age(10_000) == (8_000, 0)
    world.commit(5)
    world.look()
    assert world.spent().row["age_ms"] == 0
    assert world.spent().age(5_000) == (5_000, 3_000), "when it came down nobody saw"
    assert world.spent().age(10_000) == (9_000, 0)


def test_messages_are_bounded_by_what_was_stored(world: World) -> None:
    world.store(60)
    world.commit(0)
    world.look(0)
    world.store(30)
    world.look()
    assert world.spent().messages(100) == (1_000, 0)
    world.store(30)
    world.commit(60)
    world.look()
    assert world.spent().row["messages"] == 60
    assert world.spent().messages(100) == (1_000, 0), "it may have been 120 before it was 60"
    world.store(500)
    world.look()
    assert world.spent().messages(100) == (1_000, 0), "it may have been 60 until now"
    world.look()
    assert world.spent().messages(100) == (1_000, 1_000)
    assert world.spent().messages(1_000) == (4_000, 0)


@pytest.mark.parametrize("how", ["committed", "reset", "cloned", "removed", "queue", "merged"])
def test_what_was_set_back_and_is_ahead_again_counts_for_nothing(world: World, how: str) -> None:
    world.store(3)
    world.clock.advance(60_000)
    world.commit(3)
    world.commit(0, group="x")
    world.look()
    world.look()
    assert world.spent().messages(100) == (1_000, 0)
    if how == "committed":
        world.commit(0)
    elif how == "reset":
        world.offsets.assign_reset_offset("test", "g", "T", 0, 0)
    elif how == "cloned":
        world.offsets.clone_offset("x", "g", "T")
    elif how == "removed":
        world.offsets.remove_group("g")
    elif how == "queue":
        world.commit(0, queue_id=1)
        world.offsets.remove_queue("g", "T", 0)
        world.commit(0)
        world.offsets.remove_queue("g", "T", 1)
    else:
        world.offsets.replace_from_master({"T@g": {0: 0}})
    world.commit(3)
    world.look()
    assert world.spent().messages(100) == (1_000, 0)
    assert world.spent().age(5_000) == (1_000, 0)
    world.look()
    assert world.spent().messages(100) == (2_000, 0)


def test_a_clock_that_was_set_counts_for_no_age(world: World) -> None:
    world.store(1)
    world.commit(0)
    world.look(0)
    world.look()
    world.clock.jump_to(world.clock.now_ms() - 3_600_000)
    world.look()
    assert world.spent().age(5_000) == (1_000, 0)
    assert world.spent().messages(100) == (2_000, 0)


@pytest.mark.parametrize("by_ms", [-3_600_000, -30_000, 3_600_000])
def test_how_old_a_message_is_that_was_stored_by_another_clock_nobody_knows(
    world: World, by_ms: int
) -> None:
    world.store(1)
    world.commit(0)
    world.look(0)
    world.look()
    world.clock.advance(500)
    world.store(1)
    world.clock.jump_to(world.clock.now_ms() + by_ms)
    world.look(500)
    for _ in range(120):
        world.look()
    assert world.spent().row["age_ms"] is None
    assert world.spent().age(60_000) == (1_000, 0), "since then it may be any age"
    assert world.spent().age(1_800_000) == (1_000, 0)
    world.commit(2)
    world.look()
    world.look()
    assert world.spent().age(60_000) == (2_000, 0), "nothing is there, by any clock"
    world.clock.advance(max(0, -by_ms))
    world.look()
    world.store(1)
    before = world.spent().age(60_000)
    for _ in range(70):
        world.look()
    assert world.spent().age(60_000) == (before[0] + 60_000, before[1] + 10_000)


def test_a_successor_knows_of_a_clock_that_was_set(world: World) -> None:
    world.store(1)
    world.commit(0)
    world.look()
    world.clock.jump_to(world.clock.now_ms() + 3_600_000)
    world.begin()
    for _ in range(3):
        world.look()
    assert world.spent().row["age_ms"] is None
    world.begin()
    world.look()
    assert world.spent().row["age_ms"] is None
    assert world.spent().age(1_800_000) == (0, 0)


def test_a_clock_that_was_set_twice(world: World) -> None:
    world.store(1)
    world.commit(0)
    world.look()
    for by_ms in (-3_600_000, 3_000):
        world.clock.jump_to(world.clock.now_ms() + by_ms)
        world.look()
    world.look(3_600_000)
    assert world.spent().row["age_ms"] is None


def test_another_message_where_a_log_was_cut(world: World) -> None:
    world.store(3)
    world.commit(1)
    world.look(0)
    world.clock.advance(60_000)
    world.queues.stored["T", 0] = [world.clock.now_ms()] * 2
    world.look()
    assert world.spent().row["age_ms"] == 1_000


def test_a_row_of_which_nothing_was_written_yet_is_not_told(world: World) -> None:
    world.commit(0)
    world.look()
    world.slots.find(group_lag_times._ROW, ("new", "T"), group_lag_times._SIZE)
    assert [row["group"] for row in world.groups["rows"]] == ["g"]


def test_what_is_watched_keeps_its_count() -> None:
    set_backs = SetBacks()
    set_backs.watch(["a"])
    set_backs.note("a", ())
    set_backs.note("b", ())
    set_backs.watch(["a", "b"])
    assert (set_backs.of("a"), set_backs.of("b")) == (1, 0)
    set_backs.watch(["b"])
    set_backs.note("a", ())
    assert set_backs.of("a") == 0


def test_what_was_stored_while_it_looked_is_not_unknown(world: World) -> None:
    """A clock that is read between a stored message and its look is not one that was set."""
    world.commit(0)
    world.look()
    world.queues.stored["T", 0] = [world.clock.now_ms() + 30]
    world.look(0)
    assert world.spent().row["age_ms"] == 0


def test_a_slow_look_tells_only_of_what_is_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first queue may have got messages while it read the others."""
    world.commit(0)
    world.look()

    def slow(topic: str, queue_id: int) -> tuple[int, int]:
        world.clock.advance(10_000)
        return 0, 0

    with monkeypatch.context() as patched:
        patched.setattr(world.queues, "offsets", slow)
        world.look()
    before = world.spent().age(10_000), world.spent().age(60_000)
    world.look()
    assert (world.spent().age(10_000), world.spent().age(60_000)) == (
        before[0],
        (before[1][0] + 1_000, 0),
    )
    assert world.spent().messages(100) == (1_000 + 1_000, 0), "not the 10 s of the look"


def test_what_others_remove_does_no_harm(world: World) -> None:
    """Clients' lite topics may end every second."""
    world.commit(0)
    world.look()
    for number in range(3):
        for remove in (
            lambda topic: world.offsets.remove_queue("x", topic, 0),
            lambda topic: world.offsets.remove_topic(topic),
        ):
            world.commit(0, group="x", topic=f"L{number}")
            remove(f"L{number}")
        world.look()
    assert world.spent().messages(100) == (3_000, 0)


def test_another_message_at_the_offset_of_a_removed_one(world: World) -> None:
    world.store(6)
    world.commit(5)
    world.look()
    world.look(100_000)
    world.offsets.remove_topic("T")
    world.queues.stored["T", 0] = []
    world.store(6)
    world.commit(5)
    world.look()
    world.look()
    assert world.spent().row["age_ms"] == 2_000


def test_half_a_row_is_not_told(world: World) -> None:
    """A look is at work, or was killed at it."""
    world.store(1)
    world.commit(0)
    world.commit(0, group="g2")
    world.look()
    first = world.slots.find(group_lag_times._ROW, ("g", "T"), group_lag_times._SIZE)
    world.slots.values[first + group_lag_times._SIZE - 1] += 1_000
    assert [row["group"] for row in world.groups["rows"]] == ["g2"]
    assert world.groups["left_out"] == 1, "it is not absent"
    world.look()
    assert len(world.groups["rows"]) == 2
    assert world.groups["left_out"] == 0


@pytest.mark.parametrize("names", [",", " , "])
def test_commas_name_nobody(tmp_path: Path, names: str) -> None:
    world = World(tmp_path, names)
    world.commit(0)
    world.look()
    assert world.groups["rows"] == []
    assert world.groups["left_out"] == 0


def test_groups_with_many_queues_share_the_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag_times, "MOST_PLACES", 5)
    for group in ("g1", "g2"):
        for queue_id in range(2):
            world.commit(0, group=group, queue_id=queue_id)
    world.look()
    for queue_id in range(2):
        world.commit(0, group="g0", queue_id=queue_id)
    world.commit(0, group="g3")
    world.look(10_000)
    assert [row["group"] for row in world.groups["rows"]] == ["g1", "g2", "g3"]
    assert world.groups["left_out"] == 1


def test_an_older_message_behind_a_younger_one(world: World) -> None:
    now_ms = world.clock.now_ms()
    world.queues.stored["T", 0] = [now_ms, now_ms - 900_000]
    world.commit(0)
    world.look(0)
    world.commit(1)
    world.look()
    assert world.spent().age(5_000) == (0, 0)


def test_a_queue_that_comes_counts_for_nothing(world: World) -> None:
    world.store(1)
    world.commit(1)
    world.look()
    world.store(7, queue_id=1)
    world.commit(0, queue_id=1)
    world.look()
    assert world.spent().messages(100) == (0, 0)
    world.look()
    assert world.spent().messages(100) == (1_000, 0)
    assert world.spent().row["messages"] == 7


def test_a_queue_that_was_deleted_and_begins_anew(world: World) -> None:
    world.store(9)
    world.commit(9)
    world.look()
    world.queues.stored["T", 0] = []
    world.look()
    assert world.spent().messages(100) == (0, 0)


def test_what_retention_deleted_is_no_lag(world: World) -> None:
    world.store(9)
    world.commit(0)
    world.look(0)
    world.queues.low["T", 0] = 7
    world.look()
    assert world.spent().row["messages"] == 2
    assert world.spent().messages(100) == (1_000, 0)


def test_a_damaged_queue_has_no_age(world: World) -> None:
    world.store(1)
    world.commit(0)
    world.queues.is_damaged = True
    world.look()
    world.look()
    assert world.spent().row["age_ms"] is None
    assert world.spent().age(5_000) == (0, 0)
    assert world.spent().messages(100) == (1_000, 0)
    world.queues.is_damaged = False
    world.look()
    assert world.spent().row["age_ms"] == 3_000


def test_a_group_that_pops_has_got_what_it_popped(world: World) -> None:
    world.store(9)
    world.commit(2)
    world.popped["T", "g", 0] = 8
    world.look()
    assert world.spent().row["messages"] == 1
    del world.popped["T", "g", 0]
    world.look()
    assert world.spent().row["messages"] == 7
    assert world.spent().messages(100) == (0, 0), "pops decide no more where it goes on"


def test_which_groups_have_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, names=" b?, c*d ")
    for group in ("b1", "b22", "cd", "c-d", "cde", "xb1"):
        world.commit(0, group=group)
    monkeypatch.setattr(group_lag_times, "MOST_ROWS", 3)
    world.look()
    assert [row["group"] for row in world.groups["rows"]] == ["b1", "c-d", "cd"]
    assert world.groups["left_out"] == 0
    world.commit(0, group="a" * 250, topic="T" * 250)
    world.commit(0, group="b2")
    world.look(10_000)
    assert [row["group"] for row in world.groups["rows"]] == ["b1", "c-d", "cd"], "first come"
    assert world.groups["left_out"] == 1
    world.offsets.remove_group("c-d")
    world.look(10_000)
    assert [row["group"] for row in world.groups["rows"]] == ["b1", "b2", "cd"]
    assert world.groups["left_out"] == 0
    monkeypatch.setattr(group_lag_times, "MOST_ROWS", 4)
    world.commit(0, group="cd", topic="T" * 256)
    world.look(10_000)
    assert world.groups["left_out"] == 1, "its name would be cut"


def test_a_group_with_very_many_queues_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag_times, "MOST_QUEUES", 2)
    for queue_id in range(3):
        world.commit(0, group="g3", queue_id=queue_id)
        world.commit(0, group="g2", queue_id=min(queue_id, 1))
    world.look()
    assert [row["group"] for row in world.groups["rows"]] == ["g2"]
    assert world.groups["left_out"] == 1


def test_a_successor_goes_on_counting(world: World) -> None:
    world.commit(0)
    world.look()
    world.look()
    world.begin()
    world.look()
    assert world.spent().messages(100) == (1_000, 0), "nobody looked meanwhile"
    world.look()
    assert world.spent().messages(100) == (2_000, 0)


def test_without_room_for_a_row_it_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slots._max_series = 1
    for group in ("g1", "g2", "g3"):
        world.commit(0, group=group)
    world.look()
    assert [row["group"] for row in world.groups["rows"]] == ["g1"]
    assert world.groups["left_out"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_each_counted_moment_is_true(world: World, seed: int) -> None:
    """Random consumers and producers, known at each 100 ms, looked at when it comes."""
    chance = random.Random(seed)
    within = dict.fromkeys((*AGE_LE_MS, *MESSAGES_LE), 0)
    beyond = dict(within)
    world.commit(0)
    world.look(0)
    due, passed, late = 0, 0, 0
    for _ in range(1_500):
        stored = world.queues.stored.setdefault(("T", 0), [])
        committed = world.offsets.query_offset("g", "T", 0) or 0
        if chance.random() < 0.5:
            world.store(chance.choice((1, 3, 40)))
        if chance.random() < (0.02 if late % 3 else 0.4):
            world.commit(chance.randint(committed, len(stored)))
        late += chance.random() < 0.01
        committed = world.offsets.query_offset("g", "T", 0) or 0
        lag = len(stored) - committed
        age = world.clock.now_ms() - stored[committed] if lag else 0
        for bound in AGE_LE_MS:
            # Until the next 100 ms the age goes on, and events come only then.
            within[bound] += min(100, max(0, bound - age)) if lag else 100
            beyond[bound] += min(100, max(0, age + 100 - bound)) if lag else 0
        for bound in MESSAGES_LE:
            within[bound] += 100 * (lag <= bound)
            beyond[bound] += 100 * (lag > bound)
        world.clock.advance(100)
        passed += 100
        due -= 100
        if due <= 0:
            world.times.look()
            due = chance.choice((1_000, 1_000, 1_000, 4_300))
            spent = world.spent()
            for bound in AGE_LE_MS:
                least, most = spent.age(bound)
                assert least <= within[bound], (bound, passed)
                assert most <= beyond[bound], (bound, passed)
            for bound in MESSAGES_LE:
                least, most = spent.messages(bound)
                assert least <= within[bound], (bound, passed)
                assert most <= beyond[bound], (bound, passed)
    spent = world.spent()
    for known in (*map(spent.age, (2_000, 5_000)), spent.messages(1_000)):
        assert sum(known) > 0.5 * passed, "it proves little"
