"""Light message queues: units and places against what Java brokers stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipc.queue_table import QueueTableReader, QueueTableWriter, create_queue_table
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import ALLOCATED_END, DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.errors import StoreError
from store.lmq_dispatch import LmqDispatch, named_queues
from store.lmq_places import is_lmq_name, lmq_places
from store.log_dispatch import dispatch_range
from store.mapped_file import create_allocated, file_name
from store.message import Message
from store.message_codec import decode_record, encode_host
from store.message_store_config import MessageStoreConfig
from store.record_properties import PropertyExtractor
from store.store_checker import check_store
from store.topic_queue_table import claim_queue_offsets, rebuild_topic_queue_table
from store.unit_check import count_right, is_right
from tests.store import lmq_golden
from tests.store.lmq_golden import FILE_SIZE, LmqGolden
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page

HOST = encode_host("127.0.0.1", 10911)


class World:
    """A store whose log is Java's, or begins empty; nothing is dispatched yet."""

    def __init__(self, root: Path, log: bytes = b"") -> None:
        self.root = root
        self.page = fresh_page()
        directory = root / "commitlog"
        directory.mkdir(parents=True)
        create_allocated(directory / file_name(0), FILE_SIZE)
        self.page.counters[ALLOCATED_END] = FILE_SIZE
        if log:
            with (directory / file_name(0)).open("r+b") as file:
                file.write(log)
            self.page.counters[MAX_PHY_OFFSET] = len(log)
        fd = create_queue_table()
        self.table_reader = QueueTableReader(fd)
        self.files = ConsumeQueueFiles(root / "consumequeue", 2000, writable=True)
        self.queues = ConsumeQueueTable(self.files, QueueTableWriter(fd))
        self.queues.load()
        self.reader = CommitLogReader(directory, FILE_SIZE, self.page)
        self.writer = CommitLog(
            directory, FILE_SIZE, self.page, ManualClock(), lambda: None, most_light_queues=100
        )

    def dispatch(self, *, with_lmq: bool = True) -> None:
        extractor = PropertyExtractor(
            MessageStoreConfig().delay_level_ms, with_keys=False, with_lmq=with_lmq
        )
        end = self.page.counters[MAX_PHY_OFFSET]
        dispatch_range(self.reader, 0, end, extractor, (self.queues.dispatch,))
        self.page.counters[DISPATCHED_OFFSET] = end

    def units(self, topic: str, queue_id: int = 0) -> bytes:
        queue = self.queues.find(topic, queue_id)
        return b"" if queue is None else queue.read_units(0, 1000).tobytes()

    def open_writer(self) -> None:
        rebuild_topic_queue_table(self.writer, self.page, self.table_reader, self.reader)
        self.writer.open(HOST)

    def put(self, topic: str, *all_properties: bytes) -> list[tuple[int, int]]:
        records = [
            own_record(0, b"x", text, now_ms=1, store_host=HOST, store_host_flag=0)
            for text in all_properties
        ]
        places = self.writer.append(self.writer.topic(topic), records)
        self.writer.commit()
        return places

    def message(self, at: int) -> Message:
        record = self.reader.record_at(at)
        assert record is not None
        return decode_record(record, 0)[0]

    def light_offsets(self, at: int) -> str | None:
        return self.message(at).find_property("INNER_MULTI_QUEUE_OFFSET")


@pytest.fixture(params=lmq_golden.VERSIONS)
def golden(request: pytest.FixtureRequest) -> LmqGolden:
    return lmq_golden.load(request.param)


def dispatches_delayed(golden: LmqGolden) -> bool:
    """4.9 dispatches a delayed message when it comes and again when it is due."""
    return len(golden.queues["%LMQ%a/0"]) == 5 * 20


def test_every_unit_is_javas(tmp_path: Path, golden: LmqGolden) -> None:
    world = World(tmp_path, golden.log)
    world.dispatch()
    assert {f"{queue.topic}/{queue.queue_id}" for queue in world.queues} == golden.queues.keys()
    for name, units in golden.queues.items():
        topic, queue_id = name.split("/")
        found = world.units(topic, int(queue_id))
        if name == "%LMQ%a/0" and dispatches_delayed(golden):
            # What waits for its time is in no light queue of ours: its place stays blank.
            assert found[: 2 * 20] + found[3 * 20 :] == units[: 2 * 20] + units[3 * 20 :]
        else:
            assert found == units, name


def test_without_the_setting_there_are_no_light_queues(tmp_path: Path, golden: LmqGolden) -> None:
    world = World(tmp_path, golden.log)
    world.dispatch(with_lmq=False)
    assert {queue.topic for queue in world.queues} == {"T", "SCHEDULE_TOPIC_XXXX", "%LMQ%d"}


def test_javas_units_are_right_and_others_wrong(tmp_path: Path, golden: LmqGolden) -> None:
    world = World(tmp_path, golden.log)
    for name in ("%LMQ%b", "%LMQ%c", "%LMQ%d"):
        units = golden.queues[f"{name}/0"]
        assert count_right(world.reader, units, name.encode(), 0, 0) == len(units) // 20
        assert count_right(world.reader, units, name.encode(), 0, 1) == 0
    first = golden.queues["%LMQ%b/0"][:20]
    at, size = int.from_bytes(first[:8], "big"), int.from_bytes(first[8:12], "big")
    assert is_right(world.reader, at, size, b"%LMQ%b", 0, 0)
    assert not is_right(world.reader, at, size, b"%LMQ%c", 0, 0)
    assert not is_right(world.reader, at, size + 1, b"%LMQ%b", 0, 0)


def test_the_next_offsets_after_a_start(tmp_path: Path, golden: LmqGolden) -> None:
    """From the log alone, and from the queue table: as Java answers 30."""
    world = World(tmp_path, golden.log)
    wanted = {found["fields"]["topic"]: int(found["ext"]["offset"]) for found in golden.answers(30)}
    for dispatched in (False, True):
        if dispatched:
            world.dispatch()
        world.open_writer()
        found = {name: world.writer.next_offset(name, 0) or 0 for name in wanted}
        assert found == wanted
        assert world.writer.lmq is not None
        assert world.writer.lmq.queue_count == 4


def test_our_places_are_javas(tmp_path: Path) -> None:
    """The same messages written by us: the same queues and offsets in every record."""
    golden = lmq_golden.load("5.3.3")
    world = World(tmp_path)
    world.open_writer()
    for message in golden.messages():
        sent = b"\x02".join(
            pair
            for pair in message.properties.split(b"\x02")
            if pair and not pair.startswith(b"INNER_MULTI_QUEUE_OFFSET")
        )
        [(at, _)] = world.put(message.topic, sent + b"\x02INNER_MULTI_QUEUE_OFFSET\x0177,78")
        found = world.message(at)
        if message.topic == "T":
            assert found.property_map() == message.property_map()
        world.dispatch()
    assert {q.topic: q.max_offset for q in world.queues if q.topic.startswith("%LMQ%")} == {
        "%LMQ%a": 4,
        "%LMQ%b": 2,
        "%LMQ%c": 2,
        "%LMQ%d": 1,
    }
    assert check_store(tmp_path).is_clean


def test_a_batch_and_repeated_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open_writer()
    name = b"INNER_MULTI_DISPATCH\x01"
    places = world.put("T", name + b"%LMQ%a,%LMQ%a", b"K\x01v", name + b"%LMQ%a,%LMQ%b")
    found = [world.light_offsets(at) for at, _ in places]
    assert found == ["0,0", None, "1,0"]
    for topic in ("%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        [(at, _)] = world.put(topic, name + b"%LMQ%a")
        assert world.light_offsets(at) is None
    world.dispatch()
    assert len(world.units("%LMQ%a")) == 2 * 20


def test_sent_and_dispatched_to_one_queue(tmp_path: Path) -> None:
    """Both in one chunk: its units come in log order."""
    world = World(tmp_path)
    world.open_writer()
    name = b"INNER_MULTI_DISPATCH\x01%LMQ%a"
    places = [world.put(topic, text)[0][0] for topic, text in (("T", name), ("%LMQ%a", b"")) * 2]
    world.dispatch()
    units = world.units("%LMQ%a")
    assert [int.from_bytes(units[at : at + 8], "big") for at in range(0, len(units), 20)] == places
    assert world.queues.take_damaged() == []
    assert count_right(world.reader, units, b"%LMQ%a", 0, 0) == 4


def test_offsets_of_a_repaired_record_are_claimed(tmp_path: Path) -> None:
    golden = lmq_golden.load("5.3.3")
    world = World(tmp_path)
    world.open_writer()
    claim_queue_offsets(world.writer, memoryview(golden.log))
    assert world.writer.next_offset("%LMQ%a", 0) == 4
    world.writer.forget_topic("%LMQ%a")
    assert world.writer.next_offset("%LMQ%a", 0) is None


def test_room_for_new_queues() -> None:
    class Entry:
        def __init__(self, name: str) -> None:
            self.name = name
            self.next_offsets: dict[int, int] = {}

    entries: dict[str, Entry] = {}
    lmq = LmqDispatch(lambda name: entries.setdefault(name, Entry(name)), 2)
    assert lmq.has_room(["%LMQ%a", "%LMQ%b"])
    assert not lmq.has_room(["%LMQ%a", "%LMQ%b", "%LMQ%c"])
    lmq.advance({"%LMQ%a": 1, "%LMQ%b": 1})
    assert lmq.has_room(["%LMQ%a", "%LMQ%b"])
    assert not lmq.has_room(["%LMQ%c"])
    lmq.forget("%LMQ%a")
    assert lmq.has_room(["%LMQ%c"])


@pytest.mark.parametrize(
    ("names", "offsets", "wanted"),
    [
        ("%LMQ%a,%LMQ%b", "3,0", {"%LMQ%a": 3, "%LMQ%b": 0}),
        ("%LMQ%a,,", "3", {"%LMQ%a": 3}),
        ("%LMQ%a,T,%LMQ%b", "3,,4", {"%LMQ%a": 3, "%LMQ%b": 4}),
        ("%LMQ%a,%LMQ%b", "3", {}),
        ("%LMQ%a", "-1", {}),
        ("%LMQ%a", "x", {}),
        ("%LMQ%a/b,%LMQ%c", "1,2", {"%LMQ%c": 2}),
        ("", "1", {}),
        ("%LMQ%" + "x" * 123, "1", {}),
    ],
)
def test_places_in_properties(names: str, offsets: str, wanted: dict[str, int]) -> None:
    text = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}"
    assert lmq_places(text.encode()) == wanted


def test_names() -> None:
    assert is_lmq_name("%LMQ%a")
    assert not is_lmq_name("LMQ%a")
    assert named_queues(b"K\x01INNER_MULTI_DISPATCH") == []
    assert named_queues(b"INNER_MULTI_DISPATCH\x01 \x02") == []
    assert named_queues(b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b,\x02K\x01v") == ["%LMQ%a", "%LMQ%b"]


def test_one_setting_needs_the_other() -> None:
    assert MessageStoreConfig(enable_lmq=True, enable_multi_dispatch=True).dispatches_lmq
    assert not MessageStoreConfig(enable_lmq=True).dispatches_lmq
    with pytest.raises(StoreError, match="set both, or neither"):
        MessageStoreConfig(enable_multi_dispatch=True).validate()
