"""CommitLog: places, files, the order of publication, what a dead writer left."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.commit_log import (
    CommitLog,
    NextFileNotReadyError,
    TopicLog,
    is_storable,
    own_record,
    record_size,
)
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    MAX_PHY_OFFSET,
    RUNNING_FLAGS,
    STORE_TIMESTAMP,
)
from store.errors import MessageIllegalError, StoreError
from store.mapped_file import create_allocated, file_name
from store.message import Message
from store.message_codec import (
    BLANK_SIZE,
    RecordKind,
    check_record,
    decode_record,
    encode_host,
    encode_record,
    fixed_size,
)
from store.record import Record
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page

FILE_SIZE = 4096
HOST4, HOST6 = encode_host("127.0.0.1", 10911), encode_host("fd00::1", 10911)


class World:
    """A log over shared counters; `published` is what readers saw at each ring."""

    def __init__(self, directory: Path, files: int = 4) -> None:
        self.directory = directory / "commitlog"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.page = fresh_page()
        self.counters = self.page.counters
        self.clock = ManualClock()
        self.published: list[int] = []
        for number in range(files):
            self.allocate(number)
        self.log = self.new_log()
        self.log.open(HOST4)
        self.topic = self.log.topic("T")

    def new_log(self) -> CommitLog:
        return CommitLog(self.directory, FILE_SIZE, self.page, self.clock, self._ring)

    def _ring(self) -> None:
        self.published.append(self.counters[MAX_PHY_OFFSET])

    def allocate(self, number: int) -> None:
        create_allocated(self.directory / file_name(number * FILE_SIZE), FILE_SIZE)
        self.counters[ALLOCATED_END] = (number + 1) * FILE_SIZE

    def put(self, body: bytes = b"body", queue_id: int = 0, **changes: Any) -> tuple[int, int]:
        fields: dict[str, Any] = {
            "flag": 1,
            "sys_flag": 0,
            "born_timestamp": 2,
            "born_host": HOST4,
            "reconsume_times": 3,
            "prepared_transaction_offset": 4,
            "properties": b"K\x01v",
        }
        fields |= changes
        return self.log.append(self.topic, (Record(queue_id=queue_id, body=body, **fields),))[0]

    def bytes_of(self, number: int) -> bytes:
        return (self.directory / file_name(number * FILE_SIZE)).read_bytes()

    def walk(self) -> list[Message]:
        """Every record up to max_phy_offset, checked."""
        found, at = [], 0
        while at < self.counters[MAX_PHY_OFFSET]:
            view = memoryview(self.bytes_of(at // FILE_SIZE))
            position = at % FILE_SIZE
            result = check_record(view, position, FILE_SIZE, at, check_crc=True)
            assert result.kind in (RecordKind.MESSAGE, RecordKind.BLANK), result.reason
            if result.kind is RecordKind.MESSAGE:
                found.append(decode_record(view, position)[0])
            at += result.size
        assert at == self.counters[MAX_PHY_OFFSET]
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def record(body: bytes = b"body", **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "queue_id": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 0,
        "born_host": HOST4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "properties": b"",
    }
    return Record(**{**fields, **changes})


SIZE = fixed_size(0) + 4 + 2 + 3
"""Bytes of `put()`'s record."""


# -- putting and publishing ----------------------------------------------------------------------


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30, 0x302])
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256))])
def test_the_bytes_are_those_of_the_codec(tmp_path: Path, sys_flag: int, body: bytes) -> None:
    world = World(tmp_path)
    born = HOST6 if sys_flag & 0x10 else HOST4
    world.log.store_host = HOST6 if sys_flag & 0x20 else HOST4
    place = world.put(body, 5, sys_flag=sys_flag, born_host=born)
    world.log.commit()
    message = Message(
        topic="T",
        queue_id=5,
        flag=1,
        queue_offset=place[1],
        phy_offset=place[0],
        sys_flag=sys_flag,
        born_timestamp=2,
        born_host=born,
        store_timestamp=world.clock.now_ms(),
        store_host=world.log.store_host,
        reconsume_times=3,
        prepared_transaction_offset=4,
        body=body,
        properties=b"K\x01v",
    )
    expected = encode_record(message)
    assert world.bytes_of(0)[: len(expected)] == expected
    assert world.counters[MAX_PHY_OFFSET] == len(expected)


def test_nothing_is_seen_before_the_commit(world: World) -> None:
    places = [world.put(), world.put(), world.put(queue_id=1), world.put()]
    assert places == [(0, 0), (SIZE, 1), (2 * SIZE, 0), (3 * SIZE, 2)]
    assert (world.counters[MAX_PHY_OFFSET], world.counters[APPEND_END]) == (0, 0)
    assert not any(world.bytes_of(0))
    assert world.log.position == 4 * SIZE
    world.log.commit()
    assert world.published == [4 * SIZE]
    assert world.counters[APPEND_END] == world.counters[MAX_PHY_OFFSET] == 4 * SIZE
    assert world.counters[STORE_TIMESTAMP] == world.clock.now_ms()
    world.log.commit()
    assert world.published == [4 * SIZE]


def test_the_order_of_publication(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """append_end before the bytes, max_phy_offset after them."""
    world.put()
    file = world.log._file
    assert file is not None
    seen: list[tuple[int, int]] = []
    write = type(file).write

    def spy(self: Any, position: int, data: bytes) -> None:
        seen.append((world.counters[APPEND_END], world.counters[MAX_PHY_OFFSET]))
        write(self, position, data)

    monkeypatch.setattr(type(file), "write", spy)
    world.log.commit()
    assert seen == [(SIZE, 0)]


def test_the_store_timestamp_is_the_turns(world: World) -> None:
    world.log.now_ms = 123
    world.put()
    world.log.now_ms = 124
    world.put()
    world.log.commit()
    assert [m.store_timestamp for m in world.walk()] == [123, 124]


@pytest.mark.parametrize(("kind", "counts"), [(0x0, True), (0x4, False), (0x8, True), (0xC, False)])
def test_half_and_rollback_messages_take_no_queue_offset(
    world: World, kind: int, counts: bool
) -> None:
    world.put()
    assert world.put(sys_flag=kind)[1] == (1 if counts else 0)
    assert world.put()[1] == (2 if counts else 1)


def test_the_running_flags_decide_what_is_writable(world: World) -> None:
    assert world.log.writable
    world.counters[RUNNING_FLAGS] = 2
    assert not world.log.writable


def test_a_value_that_does_not_fit_changes_nothing(world: World) -> None:
    with pytest.raises(struct.error):
        world.put(flag=2**31)
    assert world.put() == (0, 0)
    world.log.commit()
    assert len(world.walk()) == 1


def test_topic_names_are_limited_to_127_bytes(world: World) -> None:
    assert TopicLog("x" * 127, writes_v2=True).name_bytes[0] == 127
    for name in ("x" * 128, "é" * 64):
        with pytest.raises(StoreError, match="limit 127"):
            world.log.topic(name)


def test_a_forgotten_topic_begins_again(world: World) -> None:
    world.put()
    world.put(queue_id=3)
    world.log.forget_topic("T")
    world.log.forget_topic("unknown")
    assert (world.put()[1], world.put(queue_id=3)[1]) == (0, 0)


# -- files ---------------------------------------------------------------------------------------


def body_for(left: int) -> bytes:
    """A body whose record leaves `left` bytes in an empty file."""
    return bytes(FILE_SIZE - left - (SIZE - 4))


@pytest.mark.parametrize("left", [BLANK_SIZE, BLANK_SIZE + 1, SIZE + BLANK_SIZE - 1])
def test_a_blank_record_closes_a_file(world: World, left: int) -> None:
    world.put(body_for(left))
    assert world.put() == (FILE_SIZE, 1)
    world.log.commit()
    end = world.bytes_of(0)[-left:]
    assert struct.unpack_from(">iI", end) == (left, 0xCBD43194)
    assert world.published == [FILE_SIZE - left, FILE_SIZE, FILE_SIZE + SIZE]
    assert len(world.walk()) == 2


def test_a_record_may_leave_exactly_a_blank(world: World) -> None:
    assert world.put(body_for(SIZE + BLANK_SIZE)) == (0, 0)
    assert world.put() == (FILE_SIZE - SIZE - BLANK_SIZE, 1)
    assert world.put() == (FILE_SIZE, 2)


def test_a_next_file_that_is_not_there_refuses_without_a_trace(tmp_path: Path) -> None:
    world = World(tmp_path, files=1)
    world.put(body_for(50))
    world.log.commit()
    before = bytes(world.bytes_of(0)), list(world.counters)
    for _ in range(3):
        with pytest.raises(NextFileNotReadyError, match=file_name(FILE_SIZE)):
            world.put()
    assert (world.bytes_of(0), list(world.counters)) == before
    assert world.published[-1] == FILE_SIZE - 50, "the store is rung to make the file"
    world.allocate(1)
    assert world.put() == (FILE_SIZE, 1)


def test_the_first_file_may_come_later(tmp_path: Path) -> None:
    world = World(tmp_path, files=0)
    with pytest.raises(NextFileNotReadyError):
        world.put()
    world.allocate(0)
    assert world.put() == (0, 0)
    world.log.commit()
    assert len(world.walk()) == 1


def test_a_batch_is_placed_whole_or_not_at_all(tmp_path: Path) -> None:
    world = World(tmp_path, files=1)
    size = record_size(world.topic, record())
    world.put(body_for(3 * size))
    with pytest.raises(NextFileNotReadyError):
        world.log.append(world.topic, [record()] * 3)
    assert world.log.position == FILE_SIZE - 3 * size
    world.allocate(1)
    places = world.log.append(world.topic, [record()] * 3)
    assert places == [(FILE_SIZE + n * size, 1 + n) for n in range(3)]
    world.log.commit()
    assert len(world.walk()) == 4


def test_a_batch_larger_than_a_file(world: World) -> None:
    with pytest.raises(StoreError, match="does not fit a file"):
        world.log.append(world.topic, [record(bytes(1000))] * 4)
    assert world.log.position == 0
    assert world.put() == (0, 0)


@pytest.mark.parametrize("first", [False, True])
def test_a_record_larger_than_a_file_changes_nothing(world: World, first: bool) -> None:
    if first:
        world.put()
    place = world.log.position
    with pytest.raises(StoreError, match=f"does not fit a file of {FILE_SIZE}"):
        world.put(bytes(FILE_SIZE))
    assert world.log.position == place
    world.put()
    world.log.commit()
    assert len(world.walk()) == 1 + first


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3), st.integers(0, 1500)),
            st.just("commit"),
            st.lists(st.integers(0, 800), min_size=1, max_size=3),
        ),
        max_size=30,
    )
)
def test_the_log_against_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    world = World(tmp_path_factory.mktemp("log"), files=20)
    model: list[tuple[int, int, int]] = []
    next_offsets = dict.fromkeys(range(4), 0)

    def note(queue_id: int, size: int, place: tuple[int, int]) -> None:
        assert place[1] == next_offsets[queue_id]
        next_offsets[queue_id] += 1
        model.append((place[0], queue_id, size))

    for step in steps:
        if step == "commit":
            world.log.commit()
        elif isinstance(step, tuple):
            note(step[0], step[1], world.put(bytes(step[1]), step[0]))
        else:
            places = world.log.append(world.topic, [record(bytes(n)) for n in step])
            assert len({p // FILE_SIZE for p, _ in places}) == 1
            for size, place in zip(step, places, strict=True):
                note(0, size, place)
    world.log.close()
    assert [(m.phy_offset, m.queue_id, len(m.body)) for m in world.walk()] == model


# -- life ----------------------------------------------------------------------------------------


def test_open_zeroes_what_a_dead_writer_left(world: World) -> None:
    world.put()
    world.log.commit()
    path = world.directory / file_name(0)
    with path.open("r+b") as file:
        file.seek(SIZE)
        file.write(b"\xff" * 500)
    world.counters[APPEND_END] = SIZE + 300
    again = world.new_log()
    again.open(HOST4)
    assert world.counters[APPEND_END] == SIZE
    data = path.read_bytes()
    assert data[SIZE : SIZE + 300] == bytes(300)
    assert data[SIZE + 300 : SIZE + 500] == b"\xff" * 200
    assert again.position == SIZE
    assert len(world.walk()) == 1


def test_open_goes_on_where_the_log_ends(world: World) -> None:
    for _ in range(40):
        world.put(bytes(200))
    world.log.close()
    end = world.counters[MAX_PHY_OFFSET]
    assert end > FILE_SIZE
    again = world.new_log()
    again.open(HOST4)
    world.log, world.topic = again, again.topic("T")
    assert world.put() == (end, 0)
    again.close()
    assert len(world.walk()) == 41


def test_close_publishes_what_is_pending_and_may_be_repeated(world: World) -> None:
    world.put()
    world.log.close()
    world.log.close()
    assert world.published == [SIZE]


@pytest.mark.parametrize("name", ["/", "a/b", "..", ".", "", "nul\0", "%RETRY%/"])
def test_a_topic_that_can_have_no_directory_is_refused(name: str) -> None:
    """Its records would be in the log and in no queue."""
    assert not is_storable(name, writes_v2=True)
    with pytest.raises(MessageIllegalError, match="cannot be a directory name"):
        TopicLog(name, writes_v2=True)


@pytest.mark.parametrize("name", ["a.b", "white space", "ü" * 63, "x" * 127])
def test_odd_names_that_a_directory_may_have_are_stored(name: str) -> None:
    assert is_storable(name, writes_v2=False)
    assert TopicLog(name, writes_v2=False).name == name


@pytest.mark.parametrize("name", ["ü" * 64, "x" * 128, "%RETRY%" + "x" * 249])
def test_a_name_of_more_bytes_than_a_record_can_say(name: str) -> None:
    assert not is_storable(name, writes_v2=True)
    with pytest.raises(MessageIllegalError, match="topic name of"):
        TopicLog(name, writes_v2=True)


@pytest.mark.parametrize("size", [128, 255])
def test_a_long_retry_topic_has_records_of_version_2(world: World, size: int) -> None:
    name = "%RETRY%g_".ljust(size, "t")
    assert not is_storable(name, writes_v2=False)
    with pytest.raises(MessageIllegalError, match=f"topic name of {size} bytes \\(limit 127\\)"):
        TopicLog(name, writes_v2=False)
    topic = world.log.topic(name)
    record = own_record(
        3, b"body", b"k\x01v\x02", now_ms=5, store_host=world.log.store_host, store_host_flag=0
    )
    before = world.log.position
    assert world.log.append(topic, (record,))[0] == (before, 0)
    world.log.commit()
    assert world.log.position - before == record_size(topic, record) == 91 + 1 + 4 + size + 4
    [found] = [message for message in world.walk() if message.topic == name]
    assert (found.queue_id, found.body, found.properties) == (3, b"body", b"k\x01v\x02")
