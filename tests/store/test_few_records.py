"""FewRecordsDispatch: the same files, queue table and counts as arrays give, and as Java's."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.clock import SystemClock
from store.batch_consume_queue_table import BatchConsumeQueueTable
from store.batch_topics import BatchTopics
from store.careful_dispatch import CarefulDispatch
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.few_records import MOST_RECORDS, FewRecordsDispatch
from store.index_service import IndexService
from store.inner_batch import INNER_BATCH_FLAG
from store.log_dispatch import LogDispatch
from store.log_fences import LogFences, new_fence
from store.message import Message
from store.message_codec import encode_blank
from store.message_store_config import MessageStoreConfig
from store.record_properties import PropertyExtractor
from tests.store.test_index_service import without_tags
from tests.store.test_record_arrays import MESSAGES
from tests.support.memory_commit_log import MemoryCommitLog, RecordingPublisher, message

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"
LEVELS = MessageStoreConfig().delay_level_ms
LMQ = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010"


class World:
    """Everything that is derived from `log`, built by a ReputMessageService."""

    def __init__(
        self,
        log: MemoryCommitLog,
        root: Path,
        *,
        few: bool,
        with_lmq: bool = False,
        slots: int = 7,
        units: int = 40,
        queue_file: int = 200,
    ) -> None:
        self.log, self.root = log, root
        self.publisher = RecordingPublisher()
        self.left_out: list[int] = []
        self.newest: list[int] = []
        self.by_few: list[int] = []
        """Numbers of records that went the short way."""
        self.queues = ConsumeQueueTable(
            ConsumeQueueFiles(root / "consumequeue", queue_file, writable=True),
            self.publisher,
            on_left_out=lambda: self.left_out.append(1),
        )
        batch_queues = BatchConsumeQueueTable(
            ConsumeQueueFiles(root / "batchconsumequeue", 460, writable=True),
            self.publisher,
            self.queues,
            BatchTopics(root / "topics.json"),
            lambda start, end, dispatcher: None,
            lambda: 0,
        )
        index = IndexService(root / "index", slots, units, SystemClock(), lambda timestamp: None)
        self.index = index
        extractor = PropertyExtractor(LEVELS, with_lmq=with_lmq)
        self.seen_when_moved: list[tuple[int, int]] = []
        """Phy offsets that consume queues and index had reached then."""
        self.few = FewRecordsDispatch(
            log, extractor, self.queues, batch_queues.concerns, index, self._note_moved
        )
        dispatchers = [batch_queues.dispatch, self.queues.dispatch, index.dispatch]
        self.dispatch = LogDispatch(
            log,
            CarefulDispatch(log, extractor, dispatchers),
            self._publish,
            role=self,
            dispatch_few=self._dispatch_few if few else lambda start, end: None,
        )

    def is_slave(self) -> bool:
        return False

    def readable_end(self) -> int:
        return self.log.max_phy_offset

    def _publish(self, _phy_offset: int, store_timestamp: int | None) -> None:
        if store_timestamp is not None:
            self.newest.append(store_timestamp)

    def _note_moved(self) -> None:
        self.seen_when_moved.append((self.queues.max_phy_offset(), self.index.rebuild_from))

    def _dispatch_few(self, start: int, end: int) -> tuple[int, int] | None:
        found = self.few.dispatch(start, end)
        if found is not None:
            self.by_few.append(found[0])
        return found

    def follow(self, ends: Sequence[int]) -> None:
        """The log is published up to each of `ends`."""
        for end in ends:
            self.log.publish_up_to = end
            while self.dispatch.dispatch_once():
                pass

    def state(self) -> dict[str, object]:
        """Bytes of the files, and what others see."""
        files = {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.parent.name != "index"
        }
        # Their names say when they were made.
        indexes = [path.read_bytes() for path in sorted((self.root / "index").glob("*"))]
        seen = self.publisher
        table = (seen.rows, seen.offsets, seen.moves, seen.resets)
        queues = {
            (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset, queue.whole)
            for queue in self.queues
        }
        return {**files, "index": indexes, "table": table, "queues": queues, "left": self.left_out}


def ends_of(log: MemoryCommitLog, places: Sequence[int], chosen: random.Random) -> list[int]:
    """Ends of the log that a service sees one after the other: between records, at random."""
    ends = [place for place in places[1:] if chosen.random() < 0.4]
    return [*ends, log.start + len(log.data)]


def compare(
    log: MemoryCommitLog, ends: Sequence[int], root: Path, *, with_lmq: bool = False
) -> World:
    """The same log twice; gives the world with the short way."""
    worlds = [World(log, root / str(few), few=few, with_lmq=with_lmq) for few in (False, True)]
    for world in worlds:
        world.follow(ends)
    plain, short = worlds
    assert short.state() == plain.state()
    # What was dispatched before changes nothing; the index is where it was.
    for world in worlds:
        world.dispatch.reput_from_offset = log.start
        world.follow(ends)
    assert short.state() == plain.state()
    assert short.newest == plain.newest
    return short


def ordinary(count: int, seed: int = 1) -> tuple[MemoryCommitLog, list[int]]:
    """Records of several queues, tags, keys and kinds, two of them further on than they can be."""
    chosen = random.Random(seed)
    log = MemoryCommitLog(4096, 3 * 4096)
    following: dict[tuple[str, int], int] = {}
    places = []
    for number in range(count):
        topic, queue_id = chosen.choice(["T", "Topic", "日本"]), chosen.randrange(3)
        sys_flag = chosen.choice([0, 0, 0, 0x4, 0x8, 0xC, 0x10, 0x38])
        offset = following.get((topic, queue_id), 0)
        if number in (count // 3, count // 2):
            offset += chosen.choice([3, 10**6])
        elif sys_flag & 0xC in (0, 8):
            following[topic, queue_id] = offset + 1
        keys = " ".join(f"k{chosen.randrange(50)}" for _ in range(chosen.randrange(4)))
        properties = f"UNIQ_KEY\x01ключ{number}\x02KEYS\x01{keys}\x02TAGS\x01Tag{number % 4}"
        places.append(
            log.append(
                message(
                    topic,
                    queue_id,
                    offset,
                    sys_flag=sys_flag,
                    properties=properties.encode() if chosen.random() < 0.9 else b"",
                    store_timestamp=1_795_177_732_448 + number * chosen.choice([1, 700]),
                ),
                v2=chosen.random() < 0.2,
            )
        )
    return log, places


@pytest.mark.parametrize("seed", range(4))
def test_the_same_files_and_table_as_arrays(tmp_path: Path, seed: int) -> None:
    """Over ends of log files and index files, with gaps, transactions and queues left out."""
    log, places = ordinary(150, seed)
    short = compare(log, ends_of(log, places, random.Random(seed)), tmp_path)
    assert sum(short.by_few) > 100
    assert len(set(short.by_few)) > 3


@given(st.lists(st.tuples(MESSAGES, st.booleans()), min_size=1, max_size=12), st.randoms())
def test_any_records(parts: list[tuple[Message, bool]], chosen: random.Random) -> None:
    log = MemoryCommitLog()
    places = [log.append(record, v2=v2) for record, v2 in parts]
    with tempfile.TemporaryDirectory() as root:
        compare(log, ends_of(log, places, chosen), Path(root))


@pytest.mark.parametrize("node", ["master", "slave", "slave2"])
def test_golden_files(tmp_path: Path, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java broker's log, record by record: its consume queues and its index, byte for byte (but
    for the tags, which brokers before 5.5 do not index)."""
    without_tags(monkeypatch)
    paths = sorted((GOLDEN / node / "commitlog").iterdir())
    log = MemoryCommitLog(paths[0].stat().st_size, int(paths[0].name))
    log.data = bytearray(b"".join(path.read_bytes() for path in paths))
    world = World(log, tmp_path, few=True, slots=1000, units=4000, queue_file=2000)
    world.follow(list(golden_ends(log)))
    golden = {
        f"consumequeue/{path.relative_to(GOLDEN / node / 'consumequeue')}": path.read_bytes()
        for path in (GOLDEN / node / "consumequeue").rglob("*")
        if path.is_file()
    }
    (index,) = (GOLDEN / node / "index").iterdir()
    found = world.state()
    assert {name: found[name] for name in golden} == golden
    assert found["index"] == [index.read_bytes()]
    assert world.by_few.count(1) > 10


def test_golden_index_with_tags(tmp_path: Path) -> None:
    """Of 5.5, record by record."""
    store = GOLDEN.parent / "store-5.5.0"
    (path,) = (store / "commitlog").iterdir()
    log = MemoryCommitLog(path.stat().st_size)
    log.data = bytearray(path.read_bytes())
    world = World(log, tmp_path, few=True, slots=1000, units=4000, queue_file=2000)
    world.follow(list(golden_ends(log)))
    (index,) = (store / "index").iterdir()
    assert world.state()["index"] == [index.read_bytes()]
    assert world.by_few.count(1) > 10


def golden_ends(log: MemoryCommitLog) -> Iterator[int]:
    """Where each record ends; that of a file's blank is the next file's start."""
    at = 0
    while at < len(log.data):
        size = int.from_bytes(log.data[at : at + 4], "big")
        if size == 0:
            return
        at += size
        yield log.start + at


def fill(count: int, **fields: object) -> tuple[MemoryCommitLog, World, list[int]]:
    """A world that has seen the topic, and `count` further records."""
    log = MemoryCommitLog(4096)
    log.append(message("T", 0, 0))
    world = World(log, Path(tempfile.mkdtemp()), few=True, with_lmq=True)
    world.follow([log.max_phy_offset])
    log.publish_up_to = None
    places = [log.append(message("T", 0, n + 1, **fields)) for n in range(count)]
    return log, world, [*places, log.max_phy_offset]


@pytest.mark.parametrize("count", [1, MOST_RECORDS])
def test_few_are_taken(count: int) -> None:
    _, world, places = fill(count, store_timestamp=77)
    assert world.few.dispatch(places[0], places[-1]) == (count, 77)
    assert world.publisher.of("T", 0) == (0, count + 1)


def test_each_of_many_turns_makes_its_units(tmp_path: Path) -> None:
    """One record a turn, as of a broker with little traffic: a turn that is forgotten would be a
    message that no consumer ever sees."""
    count = 1_200
    log = MemoryCommitLog(4 << 20)
    places = [log.append(message("T", n % 2, n // 2)) for n in range(count)]
    ends = [*places[1:], log.max_phy_offset]
    world = World(log, tmp_path, few=True, queue_file=20 * count)
    world.follow(ends)
    assert world.by_few == [1] * (count - 1), "all but the first of the topic"
    files = sorted((tmp_path / "consumequeue" / "T").glob("*/*"))
    units = [file.read_bytes()[:8] for file in files]
    assert units == [place.to_bytes(8, "big") for place in places[:2]]
    for queue_id, file in enumerate(files):
        data = file.read_bytes()
        found = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 10 * count, 20)]
        assert found == places[queue_id::2]


def test_consumers_are_told_before_the_index_is_built() -> None:
    _, world, places = fill(2, properties=b"KEYS\x01k")
    assert world.few.dispatch(places[0], places[2]) is not None
    assert world.seen_when_moved == [(places[2], 0)]
    assert world.index.rebuild_from == places[1]


def test_many_are_left() -> None:
    _, world, places = fill(MOST_RECORDS + 1)
    assert world.few.dispatch(places[0], places[-1]) is None
    assert world.few.dispatch(places[0], places[-2]) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x013"},
        {"sys_flag": INNER_BATCH_FLAG},
        {"properties": LMQ},
        {"topic": "seen for the first time"},
    ],
)
def test_what_is_not_ordinary_is_left(fields: dict[str, object]) -> None:
    """Nothing is written then, of its neighbours neither."""
    log, world, places = fill(1)
    place = log.append(message(**{"topic": "T", "queue_offset": 2, **fields}))
    assert world.few.dispatch(places[0], log.max_phy_offset) is None
    assert world.publisher.of("T", 0) == (0, 1)
    assert world.few.dispatch(places[0], place) is not None


@pytest.mark.parametrize("cut", [1, 60, 100])
def test_half_a_record_is_left(cut: int) -> None:
    log, world, places = fill(2)
    assert world.few.dispatch(places[0], log.max_phy_offset - cut) is None
    assert world.publisher.of("T", 0) == (0, 1)


@pytest.mark.parametrize("field", [0, 4, 35, 87])
def test_damage_is_left(field: int) -> None:
    """Size, magic, place and body size of a record."""
    log, world, places = fill(3)
    log.data[places[1] + field] ^= 0x10
    assert world.few.dispatch(places[0], places[-1]) is None
    assert world.publisher.of("T", 0) == (0, 1)


def test_a_blank_and_the_next_file_are_left() -> None:
    log, world, places = fill(1)
    left = log.file_size - len(log.data)
    log.data += encode_blank(left).ljust(left, b"\0")
    assert world.few.dispatch(places[0], log.max_phy_offset) is None
    place = log.append(message("T", 0, 2))
    assert world.few.dispatch(places[0], log.max_phy_offset) is None
    assert world.few.dispatch(places[0], places[1]) == (1, message().store_timestamp)
    assert world.few.dispatch(place, log.max_phy_offset) == (1, message().store_timestamp)


def test_what_is_fenced_is_left() -> None:
    log, world, places = fill(3)
    log.fences = LogFences([new_fence(places[1], places[2], "a test")])
    assert world.few.dispatch(places[0], places[3]) is None
    assert world.few.dispatch(places[1], places[2]) is None
    assert world.few.dispatch(places[0], places[1]) is not None
    assert world.few.dispatch(places[2], places[3]) is not None


def test_light_queues(tmp_path: Path) -> None:
    log = MemoryCommitLog()
    places = []
    for number in range(20):
        light = LMQ[:-1] + b"%d" % (number // 3)
        properties = light if number % 3 == 0 else b"TAGS\x01a"
        places.append(log.append(message("T", 0, number, properties=properties)))
    short = compare(log, [*places[1:], log.max_phy_offset], tmp_path, with_lmq=True)
    assert short.publisher.of("%LMQ%a", 0) == (0, 7)
    assert len(short.by_few) > 10


def test_topics_with_batch_queues_are_left(tmp_path: Path) -> None:
    """As soon as there is one, also other topics'."""
    attributes = {"attributes": {"queue.type": "BatchCQ"}}
    (tmp_path / "topics.json").write_text(json.dumps({"topicConfigTable": {"B": attributes}}))
    log = MemoryCommitLog()
    ends = [log.append(message(topic, 0, n)) for n in range(4) for topic in ("B", "T")][1:]
    world = World(log, tmp_path, few=True)
    world.follow([*ends, log.start + len(log.data)])
    assert not world.by_few
    assert (tmp_path / "batchconsumequeue" / "B").is_dir()
    assert world.publisher.of("T", 0) == (0, 4)


def test_a_full_disk_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys come with the next attempt, the unit is not doubled."""
    log, places = ordinary(12)
    world = World(log, tmp_path / "a", few=True)
    world.follow(places[1:9])
    log.publish_up_to = None
    put, full = world.index.put_few, [True]

    def put_few(entries: Sequence[object]) -> None:
        if full.pop():
            raise OSError(28, "no room")
        put(entries)  # type: ignore[arg-type]

    monkeypatch.setattr(world.index, "put_few", put_few)
    with pytest.raises(OSError, match="no room"):
        world.dispatch.dispatch_once()
    monkeypatch.setattr(world.index, "put_few", put)
    end = log.start + len(log.data)
    world.follow([end])
    plain = World(log, tmp_path / "b", few=False)
    plain.follow([*places[1:9], end])
    found, wanted = world.state(), plain.state()
    assert found.pop("table")[:2] == wanted.pop("table")[:2]  # type: ignore[index]
    assert found == wanted


class KilledError(BaseException):
    """Instead of the process' end."""


@pytest.mark.parametrize("writes", range(4))
def test_killed_after_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Of units, of entries of the index, of its header; the next process finds what there is."""
    log, places = ordinary(40)
    ends = [*places[1:], log.start + len(log.data)]
    world = World(log, tmp_path / "a", few=True)
    world.follow(ends[:30])
    log.publish_up_to = ends[34]
    pwrite, done = os.pwrite, []

    def write(fd: int, data: bytes, at: int) -> int:
        if len(done) == writes:
            raise KilledError
        done.append(at)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(KilledError):
        world.dispatch.dispatch_once()
    monkeypatch.undo()
    after = World(log, tmp_path / "a", few=True)
    after.queues.load()
    after.queues.recover()
    after.index.load(exited_ok=True, safe_timestamp=0)
    after.follow(ends)
    plain = World(log, tmp_path / "b", few=False)
    plain.follow(ends)
    # What is known in memory began anew.
    memory = {"table", "queues", "left"}
    found, wanted = (
        {name: data for name, data in world.state().items() if name not in memory}
        for world in (after, plain)
    )
    assert found == wanted
    assert len(after.by_few) > 20
