"""StoreAccess over a real log and consumequeue: what pool threads read, and the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.store_access.store_access import StoreAccess
from broker.store_access.store_commands import StoreCommands
from ipc.command_channel import CommandError
from remoting.errors import RequestError
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import QueueDamagedError
from store.index_service import QueryOffsetResult
from store.java_hash import string_hash
from store.mapped_file import file_name
from store.stored_units import CQ_UNIT_SIZE
from tests.broker.hot_path_world import HotPathWorld, send_request
from tests.broker.send.test_send_message_processor import batch_body


class Commands:
    """CommandClient; `failure` is raised."""

    def __init__(self, order: list[Any]) -> None:
        self.order = order
        self.failure: Exception | None = None

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        assert 0 < timeout_ms < 5_000
        self.order.append((command, arguments))
        if self.failure is not None:
            raise self.failure
        return {}


class Index:
    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        assert (topic, key, max_num, begin_ms, end_ms) == ("T", "k", 5, 1, 9)
        return QueryOffsetResult(
            phy_offsets=[3, 4], index_last_update_timestamp=77, index_last_update_phy_offset=88
        )


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.hot = HotPathWorld(tmp_path, file_size=4096, files=8, units_per_file=10)
        self.hot.topic()
        self.order: list[Any] = []
        self.commands = Commands(self.order)
        self.access = StoreAccess(
            self.hot.table,
            self.hot.loop_reader,
            self.hot.units,
            Index(),  # type: ignore[arg-type]
            lambda *place: self.hot.damaged.append(place),
            self.hot.batch_queues,
            memory_limit=1000,
        )
        self.store_commands = StoreCommands(
            self.commands,  # type: ignore[arg-type]
            self.hot.table,
            before_delete=self._before,
            after_delete=lambda topic, deleted: self.order.append(("after", topic, deleted)),
        )

    def _before(self, topic: str) -> int:
        self.order.append(("before", topic))
        return 4711

    def fill(self, count: int, **fields: Any) -> None:
        client = self.hot.client()
        for _ in range(count):
            self.hot.clock.advance(10)
            self.hot.turn()
            assert client.call(send_request(properties="TAGS\x01A", **fields)).code == 0
        self.hot.dispatch()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_queues_and_offsets(world: World) -> None:
    world.fill(3, queue_id=2)
    world.fill(1, queue_id=0)
    assert world.access.offsets("T", 2) == (0, 3)
    assert world.access.offsets("unknown", 0) == (0, 0)
    assert world.access.known_queues("T") == [0, 2]
    assert world.access.known_queues("unknown") == []


def test_records_units_and_times(world: World) -> None:
    world.fill(25)
    messages, raw = world.hot.records(), world.hot.raw_records()
    for number, message in enumerate(messages):
        unit = world.access.unit_at("T", 0, number)
        assert unit == (message.phy_offset, len(raw[number]), string_hash("A"))
        assert world.access.record_at(message.phy_offset) == raw[number]
        assert world.access.store_timestamp_at(message.phy_offset) == message.store_timestamp
        found = world.access.offset_by_timestamp("T", 0, message.store_timestamp)
        assert found == number
    assert world.access.record_at(messages[3].phy_offset + 1) is None
    assert world.access.max_phy_offset == world.hot.counters[MAX_PHY_OFFSET]


@pytest.mark.parametrize("offset", [-1, 3, 10**9, 2**70])
def test_units_outside_the_queue(world: World, offset: int) -> None:
    world.fill(3)
    assert world.access.unit_at("T", 0, offset) is None
    assert world.access.unit_at("unknown", 0, 0) is None
    assert world.access.unit_at("../up", -1, 0) is None


@pytest.mark.parametrize("topic", ["unknown", "../up", "", "nul\0"])
def test_times_of_unknown_queues(world: World, topic: str) -> None:
    assert world.access.offset_by_timestamp(topic, 0, 5) == 0


def test_what_is_below_the_start_of_the_log(world: World) -> None:
    world.fill(40)
    first = world.hot.records()[0].phy_offset
    world.hot.counters[MIN_PHY_OFFSET] = 4096
    assert world.access.min_phy_offset == 4096
    assert world.access.record_at(first) is None
    assert world.access.store_timestamp_at(first) == -1
    assert world.access.offset_by_timestamp("T", 0, 0) > 0


@pytest.mark.parametrize("at", [0, 7, 8, 11])
def test_a_wrong_entry_is_reported_and_not_believed(world: World, at: int) -> None:
    world.fill(8)
    path = world.hot.queue_path / "T" / "0" / file_name(0)
    data = bytearray(path.read_bytes())
    data[3 * CQ_UNIT_SIZE + at] ^= 8
    path.write_bytes(data)
    with pytest.raises(QueueDamagedError, match="T/0: the entry at offset 3"):
        world.access.unit_at("T", 0, 3)
    with pytest.raises(QueueDamagedError):
        world.access.offset_by_timestamp("T", 0, world.hot.clock.now_ms() - 45)
    assert set(world.hot.damaged) == {("T", 0, 3)}
    assert world.access.unit_at("T", 0, 4) is not None


def test_a_queue_without_its_file_is_reported(world: World) -> None:
    world.fill(3)
    (world.hot.queue_path / "T" / "0" / file_name(0)).unlink()
    with pytest.raises(QueueDamagedError):
        world.access.unit_at("T", 0, 1)
    assert world.hot.damaged == [("T", 0, 1)]


def test_in_memory_is_a_distance_from_the_end(world: World) -> None:
    world.fill(20)
    end = world.access.max_phy_offset
    assert world.access.in_memory(end - 1000)
    assert not world.access.in_memory(end - 1001)


def test_the_index(world: World) -> None:
    assert world.access.query_index("T", "k", 5, 1, 9) == ([3, 4], 77, 88)


def test_a_topic_is_deleted_behind_the_barrier(world: World) -> None:
    world.store_commands.delete_topic_queues("T")
    assert world.order == [
        ("before", "T"),
        ("delete_topic", {"topic": "T", "barrier": 4711}),
        ("after", "T", True),
    ]


def test_a_deletion_that_fails_lets_the_sends_go_on(world: World) -> None:
    world.commands.failure = CommandError("store is away")
    with pytest.raises(CommandError):
        world.store_commands.delete_topic_queues("T")
    assert world.order[-1] == ("after", "T", False)


def test_unused_topics_are_found_here(world: World) -> None:
    world.fill(1)
    world.fill(1, topic="Gone")
    world.fill(1, topic="Gone", queue_id=1)
    world.store_commands.clean_unused_topic(["T", "NeverWritten"])
    assert [entry for entry in world.order if entry[0] == "before"] == [("before", "Gone")]


def test_plain_commands(world: World) -> None:
    world.store_commands.clean_expired_consume_queue()
    world.store_commands.delete_expired_commit_log()
    assert world.order == [("clean_consume_queue", {}), ("clean_commit_log", {})]


def test_a_topic_with_batch_queues(world: World) -> None:
    """A unit is that of the record which holds the offset, times are searched among the batches."""
    world.hot.topic("B", attributes={"+queue.type": "BatchCQ"})
    access, client = world.access, world.hot.client()
    assert (access.min_offset("B", 0), access.min_offset("T", 0)) == (-1, 0)
    body = batch_body((0, b"one", b""), (0, b"two", b""))
    times = []
    for number in range(3):
        world.hot.clock.advance(1000)
        world.hot.turn()
        times.append(world.hot.clock.now_ms())
        fields = {"topic": "B", "batch": "true", "properties": f"UNIQ_KEY\x01K{number}"}
        assert client.call(send_request(body, code=320, **fields)).code == 0
    world.hot.dispatch()
    records = world.hot.records()
    for offset in range(6):
        unit = access.unit_at("B", 0, offset)
        assert unit is not None
        assert unit[0] == records[offset // 2].phy_offset
    assert access.unit_at("B", 0, 6) is None
    assert access.min_offset("B", 0) == 0
    found = [access.offset_by_timestamp("B", 0, time_ms) for time_ms in (0, *times, times[-1] + 1)]
    assert found == [0, 0, 2, 4, 4]
    path = world.hot.queue_path.parent / "batchconsumequeue/B/0" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[46 + 7] ^= 1
    path.write_bytes(data)
    with pytest.raises(QueueDamagedError, match="the entry at offset 3 is damaged or missing"):
        access.unit_at("B", 0, 3)
    assert world.hot.damaged == []
    with pytest.raises(RequestError, match="can be pulled, not popped"):
        world.hot.batch_queues.find_poppable("B")
    assert world.hot.batch_queues.find_poppable("T") is world.hot.topics.find("T")
