"""Offsets of a lite topic's former life, after a table of offsets was taken over.

The truth is the list of messages: who takes a table over gives a group each message of a lite
topic's present life, whatever the table says of the one before.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.lite.former_lives import FormerLives
from broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager
from remoting.lite_names import to_lmq_name
from store.errors import QueueDamagedError
from tests.broker.lite.served_world import PARENT, RECORD, LiteServed

LMQ = to_lmq_name(PARENT, "s")
FAR = 1 << 62
"""A log has not lost its end."""


def begun_again(world: LiteServed, messages: int) -> None:
    """The lite topic ends, and begins again with so many."""
    world.queues.pop(LMQ, None)
    for _ in range(messages):
        world.send("s")


def taken_over(world: LiteServed, known_to: int | None, offset: int = 3) -> None:
    """A table that says that the group has got so many."""
    world.offsets.commit_offset("copied", "G", LMQ, 0, offset)
    world.former_lives.begin({f"{LMQ}@G"}, known_to, FAR)
    world.subscribe("PARTIAL_ADD", "s")


@pytest.fixture
def world(tmp_path: Path) -> LiteServed:
    world = LiteServed(tmp_path)
    for _ in range(3):
        world.send("s")
    return world


@pytest.mark.parametrize("messages", [1, 2, 3, 4, 9])
def test_nothing_of_the_new_life_is_hidden(world: LiteServed, messages: int) -> None:
    """As many as before, too: then the offset is where the new life ends."""
    known_to = world.place
    begun_again(world, messages)
    taken_over(world, known_to)
    assert world.popped() == list(range(3, 3 + messages))
    for number in range(messages):
        world.ack("s", number)
    assert world.popped() == []
    world.send("s")
    assert world.popped() == [3 + messages], "it is looked at once"


def test_an_offset_of_the_present_life_counts(world: LiteServed) -> None:
    begun_again(world, 4)
    taken_over(world, world.place - 3 * RECORD)
    assert world.popped() == [6]


def test_without_knowledge_offsets_are_believed(world: LiteServed) -> None:
    begun_again(world, 4)
    taken_over(world, None)
    assert world.popped() == [6]


def test_a_log_that_has_lost_its_end(world: LiteServed) -> None:
    """What the table knew of is gone, and a lite topic begins where that was."""
    known_to = world.place
    begun_again(world, 4)
    world.offsets.commit_offset("copied", "G", LMQ, 0, 3)
    world.former_lives.begin({f"{LMQ}@G"}, known_to + 9 * RECORD, known_to)
    world.subscribe("PARTIAL_ADD", "s")
    assert world.popped() == [3, 4, 5, 6]


def test_what_was_set_meanwhile_counts(world: LiteServed) -> None:
    """By an operator: 25, or a subscription that begins anew."""
    known_to = world.place
    begun_again(world, 4)
    world.offsets.commit_offset("copied", "G", LMQ, 0, 3)
    world.former_lives.begin({f"{LMQ}@G"}, known_to, FAR)
    world.lite_queues.commit("operator", "G", LMQ, 2)
    world.subscribe("PARTIAL_ADD", "s")
    assert world.popped() == [5, 6]


def test_other_groups_and_queues_are_not_looked_at(world: LiteServed) -> None:
    world.former_lives.begin({f"{LMQ}@H"}, 0, FAR)
    world.offsets.commit_offset("x", "G", LMQ, 0, 3)
    assert world.lite_queues.committed("G", LMQ) == 3
    assert world.former_lives.is_former("H", LMQ)
    assert not world.former_lives.is_former("H", LMQ)


def test_a_queue_that_cannot_be_read_now_is_looked_at_later(world: LiteServed) -> None:
    known_to = world.place
    world.queues.pop(LMQ)
    world.former_lives.begin({f"{LMQ}@G"}, known_to, FAR)
    assert not world.former_lives.is_former("G", LMQ)
    world.send("s")
    assert world.former_lives.is_former("G", LMQ)


def test_a_queue_that_is_being_rebuilt_is_looked_at_later() -> None:
    """Whoever asks is the loop: nothing may be raised."""
    places: list[int] = []

    def first_place(_lmq: str) -> int:
        if not places:
            raise QueueDamagedError("being rebuilt")
        return places[0]

    lives = FormerLives(first_place)
    lives.begin({f"{LMQ}@G"}, 100, FAR)
    assert not lives.is_former("G", LMQ)
    places.append(100)
    assert lives.is_former("G", LMQ)


# -- the table -------------------------------------------------------------------------------------


def manager(path: Path) -> LmqConsumerOffsetManager:
    made = LmqConsumerOffsetManager(path / "lmqConsumerOffset.json", path / "consumerOffset.json")
    made.load()
    return made


def test_what_is_not_in_the_masters_table_has_ended(tmp_path: Path) -> None:
    """Else the slave would keep it beside the next copy, which is newer than the new life."""
    slave = manager(tmp_path)
    old = {f"{LMQ}@G": {0: 5}, "T@G": {0: 5}, "%LMQ%x@G": {0: 5}}
    slave.merge_from_master(old, {})
    slave.merge_from_master({}, old)
    assert slave.query_offset("G", LMQ, 0) is None
    assert [slave.query_offset("G", topic, 0) for topic in ("T", "%LMQ%x")] == [5, 5]
    slave.merge_from_master(old, {})
    slave.merge_from_master({f"{LMQ}@G": {0: 1}}, {})
    assert slave.query_offset("G", LMQ, 0) == 1, "another life's, lower"


def test_nor_after_a_cut_of_the_slaves_log(tmp_path: Path) -> None:
    slave = manager(tmp_path)
    slave.merge_from_master({f"{LMQ}@G": {0: 5}, "T@G": {0: 5}}, {})
    slave.replace_from_master({})
    assert slave.query_offset("G", LMQ, 0) is None
    assert slave.query_offset("G", "T", 0) == 5


def test_light_queues_of_applications_are_none_of_lite_topics(tmp_path: Path) -> None:
    """A slave takes commits of their groups while its master is away."""
    queue = "%LMQ%$SYS%clients"
    slave = manager(tmp_path)
    slave.commit_offset("x", "G", queue, 0, 5)
    slave.merge_from_master({f"{queue}@G": {0: 2}}, {})
    assert slave.query_offset("G", queue, 0) == 5
    slave.merge_from_master({}, {})
    assert slave.query_offset("G", queue, 0) == 5
    assert not slave.lite_keys()
    (tmp_path / "master").mkdir()
    master = manager(tmp_path / "master")
    master.commit_offset("x", "G", queue, 0, 2)
    master.raise_to({f"{queue}@G": {0: 5}}, lambda *_queue: 9)
    assert master.query_offset("G", queue, 0) == 5


def test_a_master_that_comes_back_takes_nothing_of_lite_topics_from_its_slave(
    tmp_path: Path,
) -> None:
    master = manager(tmp_path)
    master.raise_to({f"{LMQ}@G": {0: 5}, "T@G": {0: 5}}, lambda *_queue: 9)
    assert master.query_offset("G", LMQ, 0) is None
    assert master.query_offset("G", "T", 0) == 5


def test_the_file_says_how_new_it_is(tmp_path: Path) -> None:
    first = manager(tmp_path)
    first.commit_offset("x", "G", LMQ, 0, 5)
    first.persist()
    assert manager(tmp_path).known_to() is None, "as in a file of Java's"
    first.known_to = lambda: 77
    first.persist()
    again = manager(tmp_path)
    assert (again.known_to(), again.lite_keys()) == (77, {f"{LMQ}@G"})
    assert b"knownTo" not in again.encode(), "43 is what it was"
    again.persist()
    assert manager(tmp_path).known_to() == 77


@pytest.mark.parametrize("wrong", ['"7"', "-1", "null", "1.5", "[]"])
def test_a_position_that_is_none_is_not_known(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "lmqConsumerOffset.json"
    path.write_text(f'{{"knownTo":{wrong},"lmqOffsetTable":{{}},"offsetTable":{{}}}}')
    assert manager(tmp_path).known_to() is None


@pytest.mark.parametrize("seed", range(20))
def test_any_history_of_lives_and_copies(tmp_path: Path, seed: int) -> None:
    """A master and its slave's table; at any moment the slave takes over."""
    chance = random.Random(seed)
    world, slave = LiteServed(tmp_path), manager(tmp_path)
    got: set[int] = set()
    known_to, seen, copy = 0, {}, {}
    for _ in range(chance.randrange(30)):
        step = chance.randrange(5)
        if step == 0:
            world.queues.pop(LMQ, None)
            world.lite_queues.forget("G", LMQ)
        elif step <= 2:
            world.send("s")
        elif step == 3:
            world.subscribe("PARTIAL_ADD", "s")
            got |= set(places := world.popped())
            for _ in places:
                world.ack("s", world.lite_queues.committed("G", LMQ))
        else:
            known_to, copy = world.place, {}
            offset = world.offsets.query_offset("G", LMQ, 0)
            if offset is not None:
                copy = {f"{LMQ}@G": {0: offset}}
            if chance.random() < 0.5:
                world.send("s")
            slave.merge_from_master(copy, seen)
            seen = copy
    present = {int.from_bytes(record[28:36]) // RECORD for record in world.queues.get(LMQ, ())}
    other = LiteServed(tmp_path / "other")
    other.queues, other.place = world.queues, world.place
    offset = slave.query_offset("G", LMQ, 0)
    if offset is not None:
        other.offsets.commit_offset("copied", "G", LMQ, 0, offset)
    other.former_lives.begin(slave.lite_keys(), known_to, FAR)
    other.subscribe("PARTIAL_ADD", "s")
    assert got | set(other.popped()) >= present
