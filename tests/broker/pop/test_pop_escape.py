"""broker.pop.pop_escape: what an acting slave revives elsewhere, and what it says is handled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.escape_bridge import EscapeError
from broker.pop.ack_msg import AckMsg
from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_escape import PopEscape, PopEscapeParts
from broker.pop.pop_names import ACK_TAG, CK_TAG, REVIVE_GROUP
from store.message import Message
from store.message_codec import encode_record
from tests.broker.broker_fakes import OtherBrokers
from tests.support.memory_commit_log import message

REVIVE, NAME, POPPED_MS, INVISIBLE_MS = "rmq_sys_REVIVE_LOG_C", "broker-a", 1_000_000, 10_000
DUE_MS = POPPED_MS + INVISIBLE_MS
SLOT_MS = DUE_MS - 1_000


class World:
    """A slave's log: records by queue, in one list, and other brokers."""

    def __init__(self, root: Path) -> None:
        self.records: list[bytes] = []
        self.queues: dict[tuple[str, int], list[int]] = {}
        self.others = OtherBrokers()
        self.topics, self.groups = {"T"}, {"g"}
        self.offsets = ConsumerOffsetManager(root / "consumerOffset.json", (REVIVE_GROUP,))
        for number in range(6):
            self.store(message("T", 0, number, body=b"%d" % number, reconsume_times=number))
        self.pops = self.build()

    def build(self) -> PopEscape:
        return PopEscape(
            PopEscapeParts(
                topic=REVIVE,
                messages=SimpleNamespace(  # type: ignore[arg-type]
                    offsets=self.bounds,
                    known_queues=self.known_queues,
                    unit_at=self.unit_at,
                    record_at=self.record_at,
                ),
                offsets=self.offsets,
                find_topic=lambda name: SimpleNamespace() if name in self.topics else None,  # type: ignore[arg-type, return-value]
                find_group=lambda name: SimpleNamespace() if name in self.groups else None,  # type: ignore[arg-type, return-value]
                bridge=self.others,  # type: ignore[arg-type]
                broker_name=NAME,
                uses_retry_topic_v2=False,
            )
        )

    def store(self, stored: Message) -> None:
        self.queues.setdefault((stored.topic, stored.queue_id), []).append(len(self.records))
        self.records.append(encode_record(stored))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, len(self.queues.get((topic, queue_id), ()))

    def known_queues(self, topic: str) -> list[int]:
        return [queue_id for name, queue_id in self.queues if name == topic]

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        return self.queues[topic, queue_id][queue_offset], 1, 0

    def record_at(self, phy_offset: int) -> bytes | None:
        return self.records[phy_offset]

    def handled(self, queue_id: int = 0) -> int | None:
        return self.offsets.query_offset(REVIVE_GROUP, REVIVE, queue_id)


def point(start: int, count: int = 2, topic: str = "T", queue_id: int = 0) -> Message:
    body = PopCheckPoint(
        start_offset=start,
        pop_time=POPPED_MS,
        invisible_time=INVISIBLE_MS,
        num=count,
        topic=topic,
        group="g",
        queue_offset_diff=list(range(count)),
        broker_name=NAME,
    ).to_json_bytes()
    return record(CK_TAG, body, queue_id)


def ack(start: int, offset: int, queue_id: int = 0) -> Message:
    body = AckMsg(
        ack_offset=offset,
        start_offset=start,
        consumer_group="g",
        topic="T",
        pop_time=POPPED_MS,
        broker_name=NAME,
    ).to_json_bytes()
    return record(ACK_TAG, body, queue_id)


def record(tag: str, body: bytes, queue_id: int) -> Message:
    return message(
        REVIVE,
        queue_id,
        body=body,
        properties=f"TAGS\x01{tag}".encode(),
        store_timestamp=SLOT_MS,
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_was_not_acknowledged_is_copied_once_all_acks_were_seen(world: World) -> None:
    world.pops.take(point(1, 3), SLOT_MS)
    world.pops.take(ack(1, 2), SLOT_MS + 1_000)
    world.pops.settle(DUE_MS - 1)
    assert (world.others.bodies(), world.pops.waits_from()) == ([], SLOT_MS)
    world.pops.settle(DUE_MS)
    assert world.others.bodies() == [b"1", b"3"]
    copy, like = world.others.taken[0], world.others.like[0]
    assert (copy.topic, like, copy.reconsume_times) == ("%RETRY%g_T", "T", 2)
    assert "1ST_POP_TIME" not in copy.properties or str(POPPED_MS) in copy.properties
    assert world.pops.waits_from() is None
    world.pops.settle(DUE_MS + 1_000)
    assert world.others.bodies() == [b"1", b"3"]
    assert world.handled() is None, "these are in no queue of the revive topic"


def test_what_had_come_out_of_the_timer_goes_on_where_the_master_was(world: World) -> None:
    for each in (point(0, 1), point(1, 1), ack(1, 1), point(2, 1)):
        world.store(each)
    world.offsets.commit_own_offset("r", REVIVE_GROUP, REVIVE, 0, 0)
    world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.handled()) == ([b"2"], 3)
    world.pops.take(point(3, 1), DUE_MS)
    world.pops.settle(DUE_MS + 1_000)
    assert (world.others.bodies(), world.handled()) == ([b"2", b"3"], 3)


def test_acks_of_the_wheel_are_matched_with_check_points_of_the_topic(world: World) -> None:
    world.store(point(1, 2))
    world.pops.take(ack(1, 1), SLOT_MS)
    world.pops.settle(DUE_MS)
    assert world.others.bodies() == [b"2"]


def test_the_same_check_point_from_both_is_one(world: World) -> None:
    world.store(point(1, 1))
    world.pops.take(point(1, 1), SLOT_MS)
    world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.pops.waits_from()) == ([b"1"], None)


def test_a_copy_that_nobody_takes_holds_what_is_behind_it(world: World) -> None:
    world.store(point(1, 3))
    world.pops.take(point(4, 1), SLOT_MS)
    world.others.errors = [EscapeError("nobody")]
    with pytest.raises(EscapeError):
        world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.handled(), world.pops.waits_from()) == ([], None, SLOT_MS)
    world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.handled()) == ([b"1", b"2", b"3", b"4"], 0)
    assert world.pops.waits_from() is None


def test_a_copy_that_fails_in_the_middle_is_not_made_again(world: World) -> None:
    world.pops.take(point(1, 3), SLOT_MS)
    world.pops.settle(DUE_MS - 1)
    world.others.errors = [None, EscapeError("nobody")]
    with pytest.raises(EscapeError):
        world.pops.settle(DUE_MS)
    world.pops.settle(DUE_MS)
    assert world.others.bodies() == [b"1", b"2", b"3"]


def test_of_a_topic_or_group_that_is_gone_nothing_is_revived(world: World) -> None:
    world.store(point(1, 1))
    world.groups.clear()
    world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.handled()) == ([], 0)


def test_a_retry_topic_stays_itself(world: World) -> None:
    world.store(message("%RETRY%g_T", 0, 0, body=b"again"))
    world.pops.take(point(0, 1, "%RETRY%g_T"), SLOT_MS)
    world.pops.settle(DUE_MS)
    (copy,), (like,) = world.others.taken, world.others.like
    assert (copy.topic, like) == ("%RETRY%g_T", "T")


def test_damaged_records_are_passed_over(world: World) -> None:
    for each in (record(CK_TAG, b"{", 0), record(ACK_TAG, b"[]", 0), point(1, 1)):
        world.store(each)
    world.pops.take(record(CK_TAG, b"x", 0), SLOT_MS)
    world.pops.settle(DUE_MS)
    assert (world.others.bodies(), world.handled()) == ([b"1"], 2)


def test_the_next_time_it_acts_it_begins_anew(world: World) -> None:
    world.pops.take(point(1, 1), SLOT_MS)
    world.pops.forget()
    assert world.pops.waits_from() is None
    world.pops.settle(DUE_MS)
    assert world.others.bodies() == []
