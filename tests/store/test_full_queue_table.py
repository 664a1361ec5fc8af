"""A queue table that is full: the writer makes no further queue, `store` goes on and starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ipc import queue_table
from store.commit_log import CommitLog
from store.consume_queue import ConsumeQueue
from store.consume_queue_reader import ConsumeQueueReader
from store.control_slots import STORE_STATE, StoreState
from store.delay_levels import parse_delay_levels
from store.errors import QueueTableFullError
from store.message_store_config import MessageStoreConfig
from store.published_queues import PublishedQueues
from store.queue_room import RESERVED_ROWS, QueueRoom
from tests.store.test_default_message_store import FILE_SIZE, Life, record
from tests.support.deadline import wait_until

pytestmark = pytest.mark.interpreted
"""MAX_QUEUES of compiled modules cannot be changed."""


class Rows:
    """QueueRows: a table of `most` queues, in which `seen` have a row."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seen: set[tuple[str, int]] = set()

    def find_row(self, topic: str, queue_id: int) -> int | None:
        return 0 if (topic, queue_id) in self.seen else None

    def has_room(self, queues: int, name_bytes: int) -> bool:
        return len(self.seen) + queues <= self.most


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "store").start()
    yield life
    life.stop()


def test_the_writer_makes_no_queue_that_nobody_could_read(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    rows = Rows(3)
    life.log._room = QueueRoom(rows)
    life.put(2, "A")
    life.put(1, "B")
    rows.seen = {("A", 0)}  # the store is behind
    life.put(1, "C")
    before = life.log.position
    for topic in ("D", "E"):
        entry = life.log.topic(topic)
        with pytest.raises(QueueTableFullError, match=f"queue 0 of topic {topic} would be a new"):
            life.log.append(entry, (record(b"x", b""),))
        with pytest.raises(QueueTableFullError):
            life.log.append(entry, [record(b"x", b""), record(b"y", b"")])
        assert entry.next_offsets == {}
    assert life.log.position == before
    assert len([line for line in caplog.messages if "queue table is full" in line]) == 1
    rows.seen = {("A", 0), ("B", 0), ("C", 0)}
    life.put(2, "A")
    rows.most = 4
    life.put(1, "D")
    life.log.forget_topic("B")
    life.put(1, "B")


def test_a_batch_with_one_new_queue_is_not_stored_in_part(life: Life) -> None:
    rows = Rows(1)
    life.log._room = QueueRoom(rows)
    life.put(1, "A")
    entry, before = life.log.topic("A"), life.log.position
    other = msgspec.structs.replace(record(b"y", b""), queue_id=1)
    with pytest.raises(QueueTableFullError):
        life.log.append(entry, [record(b"x", b""), other])
    assert (life.log.position, entry.next_offsets) == (before, {0: 1})


def test_many_new_queues_are_counted_in_little_memory(life: Life) -> None:
    """What has a row is forgotten, now and then."""
    rows = Rows(1 << 20)
    room = QueueRoom(rows)
    for number in range(20_000):
        room.take("T", number)
        rows.seen.add(("T", number))
    assert len(room._new) <= 1_024
    assert room.has_room(["L"] * 10)
    room.take("T", -1)
    rows.seen.add(("T", -1))
    rows.most = 20_002
    assert room.has_room(["L"])
    assert not room.has_room(["L", "M"])


def test_rows_are_kept_for_the_queues_in_which_messages_wait(life: Life) -> None:
    rows = Rows(4)
    life.log._room = QueueRoom(rows, reserved=2)
    life.put(1, "A")
    life.put(1, "B")
    with pytest.raises(QueueTableFullError):
        life.put(1, "C")
    with pytest.raises(QueueTableFullError):
        life.log.check_room(life.log.topic("C"), 0)
    life.put(1, "SCHEDULE_TOPIC_XXXX")
    life.put(1, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    with pytest.raises(QueueTableFullError):
        life.put(1, "rmq_sys_wheel_timer")


def test_the_names_of_kept_rows_are_counted_too() -> None:
    """The table is full of names as well."""
    asked: list[tuple[int, int]] = []

    class Names(Rows):
        def has_room(self, queues: int, name_bytes: int) -> bool:
            asked.append((queues, name_bytes))
            return True

    room = QueueRoom(Names(1), reserved=RESERVED_ROWS)
    longest = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert room.has_room(["T"])
    assert room.has_room([longest])
    assert asked == [
        (1 + RESERVED_ROWS, 1 + RESERVED_ROWS * len(longest)),
        (1, len(longest)),
    ]
    levels = parse_delay_levels(MessageStoreConfig().message_delay_level)
    assert len(levels) + 3 <= RESERVED_ROWS


def test_light_queues_need_room_too(life: Life) -> None:
    rows = Rows(2)
    log = CommitLog(
        life.config.commit_log_path, FILE_SIZE, life.page, life.clock, lambda: None,
        most_light_queues=10, room=QueueRoom(rows),
    )  # fmt: skip
    assert log.lmq is not None
    assert log.lmq.has_room(["%LMQ%a", "%LMQ%b"])
    assert not log.lmq.has_room(["%LMQ%a", "%LMQ%b", "%LMQ%c"])
    log.lmq.advance({"%LMQ%a": 1})
    rows.seen = {("%LMQ%a", 0), ("T", 0)}
    assert log.lmq.has_room(["%LMQ%a"])
    assert not log.lmq.has_room(["%LMQ%b"])
    rows.most, rows.seen = 3, {("T", 0)}
    log.lmq.advance({"%LMQ%c": 1})
    log.lmq.advance({"%LMQ%d": 1, "%LMQ%c": 2})
    assert not log.lmq.has_room(["%LMQ%b"]), "those that have no row yet count"
    rows.seen |= {("%LMQ%c", 0), ("%LMQ%d", 0)}
    rows.most = 4
    assert log.lmq.has_room(["%LMQ%b"])


def test_a_log_with_too_many_queues_is_served_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a Java broker, or an older one of ours, wrote: it ended `store` at every start."""
    topics = ["A", "B", "C", "D"]
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 2)
    life = Life(tmp_path / "store").start()
    for number, topic in enumerate(topics):
        life.put(3 + number, topic)
    life.wait_dispatched()
    assert [life.table.offsets(topic, 0) for topic in topics] == [(0, 3), (0, 4), (0, 0), (0, 0)]
    life.put(1, "A")
    life.stop()
    again = Life(tmp_path / "store").start()
    again.wait_dispatched()
    assert len(list(again.table)) == 2
    # Another two may have the rows: what they hold goes on from where it was.
    again.log._room = QueueRoom(again.table)
    expected = {"A": 4, "B": 4, "C": 5, "D": 6}
    for topic, _queue_id, _row in list(again.table):
        again.put(1, topic)
        expected[topic] += 1
    again.stop()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1 << 20)
    whole = Life(tmp_path / "store").start()
    whole.wait_dispatched()
    ends = [whole.table.offsets(topic, 0) for topic in topics]
    assert ends == [(0, expected[topic]) for topic in topics]
    for topic, (low, high) in zip(topics, ends, strict=True):
        assert -1 not in whole.queue(topic)
        assert len(whole.queue(topic)) == high - low
    whole.stop()


def test_a_store_that_rejoins_keeps_the_queues_without_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1)
    life = Life(tmp_path / "store").start()
    life.put(3, "A")
    life.put(3, "B")
    life.wait_dispatched()
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    life.put(1, "A")
    life.wait_dispatched()
    reader = ConsumeQueueReader(life.config)
    assert None not in [reader.find_unit("B", 0, number) for number in range(3)]
    reader.close()
    life.stop()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1 << 20)
    whole = Life(tmp_path / "store").start()
    whole.wait_dispatched()
    wait_until(lambda: whole.table.offsets("A", 0) == (0, 4))
    assert whole.table.offsets("B", 0) == (0, 3)
    assert len(set(whole.queue("B"))) == 3
    whole.stop()


def test_compaction_logs_of_queues_without_a_row_are_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1)
    fd = queue_table.create_queue_table()
    table, reader = queue_table.QueueTableWriter(fd), queue_table.QueueTableReader(fd)
    published = PublishedQueues[ConsumeQueue](table, lambda _queue: None)
    for topic in ("First", "Second"):
        published.publish_compacted(topic, 0, 1, 5)
    assert [topic for topic, _queue_id, _row in reader] == ["First"]
    assert reader.compacted("First", 0) == (1, 5)
    assert reader.compacted("Second", 0) == (0, 0)
    os.close(fd)
