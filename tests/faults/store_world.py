"""A store without processes: shared page, table and files, a writer and a store driven by hand.

Used on both sides of a step kill: by the child that dies at a named step, and by the test that
reopens what it left. Nothing here has threads: the services' steps are called one by one, so that
a step has the same number in every run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.queue_table import QueueTableReader, create_queue_table
from ipc.service_thread import ServiceThread
from store.clean_exit import read_clean_exit
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.control_slots import ALLOCATED_END, APPEND_END, MAX_PHY_OFFSET
from store.default_message_store import DefaultMessageStore
from store.log_fences import fences_path, load_fences
from store.message import Message
from store.message_codec import decode_record, encode_host, is_blank_at
from store.message_store_config import MessageStoreConfig
from store.store_checker import check_store
from store.store_progress import StoreBells
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from store.topic_queue_table import rebuild_topic_queue_table

FILE_SIZE = 16_384
FILES = 3
BATCH = 5
HOST = encode_host("127.0.0.1", 10911)
TOPICS = ("Even", "Odd")


def message_of(number: int) -> tuple[str, int, bytes, bytes]:
    """(topic, queue, body, properties) of message `number`; sizes vary, tags and keys are set."""
    body = b"%06d" % number + bytes(range(32, 127)) * (number % 5)
    properties = f"KEYS\x01k{number}\x02TAGS\x01t{number}\x02".encode()
    return TOPICS[number % 2], number % 3, body, properties


def number_of(message: Message) -> int:
    """The number of a stored message."""
    return int(message.body[:6])


@dataclass
class World:
    """The shared memory of one life of a broker, and the directory that outlives it."""

    root: Path
    page_fd: int = -1
    table_fd: int = -1

    def boot(self) -> World:
        """A new life: fresh page and table; what was there is gone, as after a full crash."""
        self.close()
        self.page_fd, self.table_fd = ControlPage.create(), create_queue_table()
        return self

    def close(self) -> None:
        """Let go of the shared memory."""
        for fd in (self.page_fd, self.table_fd):
            if fd >= 0:
                os.close(fd)
        self.page_fd = self.table_fd = -1

    @property
    def config(self) -> MessageStoreConfig:
        """Small files."""
        return MessageStoreConfig(
            store_path_root_dir=str(self.root),
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=1_000 * CQ_UNIT_SIZE,
            max_hash_slot_num=16,
            max_index_num=60,
        )

    def page(self) -> ControlPage:
        """The page, mapped anew."""
        return ControlPage(self.page_fd)

    def counter(self, slot: int) -> int:
        """One number of the page."""
        return int(self.page().counters[slot])

    def queue_maxima(self) -> dict[tuple[str, int], int]:
        """What readers are told of every queue."""
        table = QueueTableReader(self.table_fd)
        return {(t, q): table.offsets(t, q)[1] for t, q, _ in table}


class StoreDesk:
    """A DefaultMessageStore whose services are stepped by hand."""

    def __init__(self, world: World, page: ControlPage | None = None) -> None:
        self.world = world
        self.page = page or world.page()
        bell = Bell(self.page, ProcessIndex.STORE, Bell.create())
        self._bell_fd = bell.event_fd
        self.rung = 0
        self.store = DefaultMessageStore(
            world.config,
            self.page,
            world.table_fd,
            StoreBells(bell, self._ring),
            SystemClock(),
            self._fail,
        )

    def _ring(self) -> None:
        self.rung += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        raise AssertionError(f"{service.name}: {error}")

    def open(self) -> StoreDesk:
        """Recover or rejoin, and have the files ready."""
        self.store.open()
        self.allocate()
        return self

    def allocate(self) -> None:
        """FILES files, wherever the log is."""
        service = self.store._allocate
        counters = self.page.counters
        wanted = (counters[MAX_PHY_OFFSET] // FILE_SIZE + FILES) * FILE_SIZE
        for _ in range(20):
            if counters[ALLOCATED_END] >= wanted:
                return
            service.step()
        raise AssertionError(f"allocated up to {counters[ALLOCATED_END]}, not {wanted}")

    def dispatch(self) -> None:
        """Everything that is published."""
        while self.store._dispatch.dispatch_once():
            pass

    def flush(self) -> None:
        """Log, queues, checkpoint."""
        self.store._flush._flusher.flush()
        self.store._services[2].finish()

    def shutdown(self) -> None:
        """The orderly stop; services that never ran are finished by hand."""
        for service in reversed(self.store._services):
            service.finish()
        self.store.shutdown(writer_has_stopped=True)
        os.close(self._bell_fd)

    def abandon(self) -> None:
        """As a killed process leaves it: nothing is written, descriptors go."""
        self.store._derived.queues.close()
        for file in self.store._derived.index._files:
            file.close()
        self.store._derived.source.close()
        if hasattr(self.store, "_flush"):
            self.store._flush._flusher.close()
            self.store._allocate._stop_preparing()
        os.close(self._bell_fd)


class Writer:
    """The log's writer as process `remoting` opens it."""

    def __init__(self, world: World, page: ControlPage | None = None) -> None:
        config = world.config
        page = page or world.page()
        directory, size = config.log_directories, config.mapped_file_size_commit_log
        self.log = CommitLog(directory, size, page, SystemClock(), lambda: None)
        self._reader = CommitLogReader(directory, size, page)
        self._table = QueueTableReader(world.table_fd)
        self._page = page

    def open(self) -> Writer:
        """Queue offsets, then the log."""
        rebuild_topic_queue_table(self.log, self._page, self._table, self._reader)
        self.log.open(HOST)
        return self

    def write(self, numbers: Iterable[int], batch: int = BATCH) -> None:
        """Put and commit, `batch` messages at a time."""
        for at, number in enumerate(numbers):
            topic, queue_id, body, properties = message_of(number)
            entry = self.log.topic(topic)
            record = own_record(
                queue_id,
                body,
                properties,
                now_ms=self.log.now_ms,
                store_host=HOST,
                store_host_flag=0,
            )
            self.log.append(entry, (record,))
            if at % batch == batch - 1:
                self.log.commit()
        self.log.commit()

    def close(self) -> None:
        """Orderly."""
        self.log.close()
        self._reader.close()


# -- judging -----------------------------------------------------------------------------------


def walk(world: World, end: int) -> Iterator[tuple[Message, int]]:
    """(message, end of its record) of every record of the log before `end` that can be read."""
    fences = load_fences(fences_path(world.config.commit_log_path))
    at = 0
    while at < end:
        if (fence := fences.find(at)) is not None:
            at = fence.end
            continue
        start = at - at % FILE_SIZE
        data = world.config.log_directories.path_of(start).read_bytes()
        position = at - start
        if is_blank_at(data, position):
            at = start + FILE_SIZE
            continue
        message, size = decode_record(data, position)
        assert message.phy_offset == at
        at += size
        yield message, at


def published_numbers(world: World, end: int) -> list[int]:
    """The messages whose records end at or before `end`, in order."""
    return [number_of(message) for message, _ in walk(world, end)]


def assert_nothing_behind(world: World, end: int) -> None:
    """Every byte of the log from `end` on is zero, however many files follow."""
    for path in sorted(world.config.commit_log_path.iterdir()):
        start = int(path.name)
        data = path.read_bytes()[max(end - start, 0) :]
        assert not any(data), f"{path.name}: something lives behind {end}"


def assert_whole(
    world: World, desk: StoreDesk, expected: list[int], *, index_once: bool = False
) -> None:
    """Log, queue offsets, queue table and units hold exactly `expected`, in order; the index
    finds every key (with index_once: once). Queue offsets are dense where nothing is fenced."""
    dense = not load_fences(fences_path(world.config.commit_log_path))
    messages = [message for message, _ in walk(world, world.counter(MAX_PHY_OFFSET))]
    assert [number_of(message) for message in messages] == expected
    queues: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for message in messages:
        queues[message.topic, message.queue_id].append(message)
    maxima = world.queue_maxima()
    if dense:
        assert maxima == {key: len(found) for key, found in queues.items()}
    for (topic, queue_id), found in queues.items():
        offsets = [m.queue_offset for m in found]
        assert offsets == sorted(set(offsets)), (topic, queue_id)
        assert offsets[-1] < maxima[topic, queue_id]
        if dense:
            assert offsets == list(range(len(found))), (topic, queue_id)
        assert_units(world, topic, queue_id, found)
    for message in messages:
        key = f"k{number_of(message)}"
        hits = desk.store._derived.index.query(message.topic, key, 64, 0, 1 << 60).phy_offsets
        found_times = hits.count(message.phy_offset)
        assert found_times == 1 or (found_times and not index_once), f"{key}: {hits}"


def assert_units(world: World, topic: str, queue_id: int, found: list[Message]) -> None:
    """The units of a queue from its start are those of `found`, tags codes included."""
    count = found[-1].queue_offset + 1
    with closing(ConsumeQueueReader(world.config)) as reader:
        raw = reader.read_units(topic, queue_id, 0, count)
    assert len(raw) == count * CQ_UNIT_SIZE, f"{topic}/{queue_id}: {len(raw)} bytes"
    units = list(CQ_UNIT.iter_unpack(raw))
    others = [unit for n, unit in enumerate(units) if n not in {m.queue_offset for m in found}]
    assert all(unit[1] == PRE_BLANK_SIZE for unit in others), f"{topic}/{queue_id}: {others}"
    for message in found:
        unit = units[message.queue_offset]
        assert unit[0] == message.phy_offset, f"{topic}/{queue_id} {message.queue_offset}: {unit}"
        assert unit[2] == tags_code(message), f"{topic}/{queue_id} {message.queue_offset}: {unit}"


def tags_code(message: Message) -> int:
    """Java's hashCode of the tag."""
    code = 0
    for character in message.find_property("TAGS") or "":
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


def assert_closes_clean(world: World, desk: StoreDesk) -> None:
    """The orderly stop leaves a store that needs no recovery."""
    end = world.counter(MAX_PHY_OFFSET)
    assert world.counter(APPEND_END) == end
    desk.shutdown()
    report = check_store(world.root, hash_slots=16)
    assert all("fenced" in error for error in report.errors), report.lines()
    assert not report.notes, report.lines()
    assert not world.config.abort_path.exists()
    word = read_clean_exit(world.config.clean_exit_path)
    assert word is not None
    assert word.max_phy_offset == end
    assert_nothing_behind(world, end)
