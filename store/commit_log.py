"""CommitLog: the batch append by the log's one writer.

Runs on the loop thread of `remoting` on a master. Every kind of record enters the log through
`append` (all of them or nothing), which gives the records their places at once, and `commit`, which
writes what was appended since the last commit to the file in one call and publishes it. The hot
loops of sends have two entrances of their own, `put_fields` (one record) and `put_sent_batch` (a
batch, from a client's bytes): they take what needs no place but the one in its queue, and store the
bytes that `append` would (tests/test_architecture.py holds who calls them). Order of publication:
append_end, bytes, max_phy_offset, bells. After a crash of the writer `open` zeroes [max_phy_offset,
append_end), so that no unpublished record comes back to life. It knows no flush, no replica, no
feature: whoever waits for those waits for offsets. Corresponds to CommitLog.asyncPutMessage /
DefaultAppendMessageCallback of RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.batch_records import ArePlain, BatchCommon, BatchPlace, encode_batch
from store.consume_queue_files import is_safe_topic
from store.control_slots import APPEND_END, MAX_PHY_OFFSET, RUNNING_FLAGS, STORE_TIMESTAMP
from store.crc32 import LONG, crc32, long_crc32
from store.errors import MessageIllegalError
from store.inner_batch import INNER_BATCH_FLAG, inner_num, with_base
from store.lmq_dispatch import LmqDispatch
from store.log_directories import LogDirectories
from store.log_end import NextFileNotReadyError as NextFileNotReadyError
from store.log_end import open_for_writing, zero_unpublished
from store.log_file import LogFile
from store.message_codec import (
    BLANK_SIZE,
    BODY_CRC_MASK,
    BORN_HOST_V6_FLAG,
    HOSTS_V6_FLAGS,
    HOSTS_V6_SHIFT,
    MAGIC_V1,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    STORE_HOST_V6_FLAG,
    TOPIC_LIMIT,
    TOPIC_LIMIT_V2,
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    USUAL_PROPERTIES_LENGTHS,
    encode_blank,
    encode_topic,
    fixed_size,
)
from store.queue_room import QueueRoom
from store.record import Record

log = logging.getLogger(__name__)

_V6_HOST_SIZE: Final = 20
_RETRY_PREFIX: Final = "%RETRY%"
_UNCOUNTED: Final = TRANSACTION_PREPARED & TRANSACTION_ROLLBACK
"""The bit of the kinds of records that get no place in a consumequeue."""
assert _UNCOUNTED == TRANSACTION_PREPARED
assert not _UNCOUNTED & (TRANSACTION_NOT | TRANSACTION_COMMIT)


def topic_limit(topic: str, *, writes_v2: bool) -> int:
    """Most bytes of this topic's name: a V1 record's, and V2's for retry topics, which only the
    broker makes. writes_v2: autoMessageVersionOnTopicLen."""
    return TOPIC_LIMIT_V2 if writes_v2 and topic.startswith(_RETRY_PREFIX) else TOPIC_LIMIT


def is_storable(topic: str, *, writes_v2: bool) -> bool:
    """Whether records of `topic` can get a consume queue: a directory name that fits a record."""
    size = len(topic.encode("utf-8", "replace"))
    return is_safe_topic(topic) and size <= topic_limit(topic, writes_v2=writes_v2)


class TopicLog:
    """One topic as the writer sees it: its records' magic, its name as these hold it, and the next
    offset of each queue."""

    __slots__ = ("magic", "name", "name_bytes", "next_offsets")

    def __init__(
        self, name: str, next_offsets: dict[int, int] | None = None, *, writes_v2: bool
    ) -> None:
        """next_offsets: by queue id; kept and changed here. Raises MessageIllegalError."""
        encoded = name.encode()
        limit = topic_limit(name, writes_v2=writes_v2)
        if len(encoded) > limit:
            raise MessageIllegalError(
                f"topic name of {len(encoded)} bytes (limit {limit}): {name[:40]!r}…"
            )
        if not is_safe_topic(name):
            # Its records would be in the log, and in no queue.
            raise MessageIllegalError(f"topic name {name[:40]!a} cannot be a directory name")
        self.name = name
        self.magic, self.name_bytes = encode_topic(encoded)
        self.next_offsets: dict[int, int] = {} if next_offsets is None else next_offsets


def own_record(
    queue_id: int,
    body: bytes,
    properties: bytes,
    *,
    now_ms: int,
    store_host: bytes,
    store_host_flag: int,
) -> Record:
    """A record that the broker itself sends: its born host is the store host, 8 or 20 bytes."""
    return Record(
        queue_id=queue_id,
        flag=0,
        sys_flag=store_host_flag | BORN_HOST_V6_FLAG if store_host_flag else 0,
        born_timestamp=now_ms,
        born_host=store_host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


def record_size(topic: TopicLog, record: Record) -> int:
    """Bytes that `record` will take in the log."""
    variable = len(record.body) + len(topic.name_bytes) + len(record.properties)
    return fixed_size(record.sys_flag) + variable


class CommitLog:
    """The writing end of the commit log. Owned by: the one thread that puts and commits."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        page: ControlPage,
        clock: Clock,
        on_publish: Callable[[], None],
        *,
        most_light_queues: int | None = None,
        room: QueueRoom | None = None,
        writes_v2: bool = True,
    ) -> None:
        """place: the log's directory, or directories.
        on_publish: rings the bells; it is called after max_phy_offset has moved.
        most_light_queues: maxLmqConsumeQueueNum; None: records have no places in light queues.
        room: asked before a queue is made; None: there is always room.
        writes_v2: autoMessageVersionOnTopicLen."""
        self._directories = LogDirectories.of(place)
        self._file_size = file_size
        self._page = page
        self._counters = page.counters
        self._clock = clock
        self._on_publish = on_publish
        self._room = room
        self._writes_v2 = writes_v2
        self._pending: list[bytes] = []
        """What was put since the last commit, in pieces."""
        self._topics: dict[str, TopicLog] = {}
        self._next_offsets: dict[str, dict[int, int]] = {}
        """By topic and queue id; also of names that the settings allow no more."""
        self.lmq: Final = (
            LmqDispatch(self.topic, most_light_queues, room)
            if most_light_queues is not None
            else None
        )
        """The light queues; None: the settings have none."""
        self._file: LogFile | None = None
        self._file_start = 0
        self._file_end = 0
        self.position = 0
        """Where the next record will start; for others to read."""
        self.opened_at = 0
        """The log's end when this time as its writer began: what lies before, others may have put,
        or this broker before its last start."""
        self._committed = 0
        self.store_host = b""
        self.now_ms = clock.now_ms()
        """The store timestamp of records put in this turn; the owner refreshes it."""

    # -- life ----------------------------------------------------------------------------------

    def open(self, store_host: bytes) -> None:
        """Start writing at max_phy_offset; zero what a dead writer left unpublished.

        store_host: 4 or 16 address bytes and the port as int32, big-endian.
        """
        self.store_host = store_host
        if self.lmq is not None:
            self.lmq.load(name for name, queues in self._next_offsets.items() if queues)
        self.position = self._committed = self.opened_at = self._counters[MAX_PHY_OFFSET]
        zero_unpublished(self._directories, self._file_size, self._page)
        try:
            self._use(self._open(self.position - self.position % self._file_size))
        except NextFileNotReadyError:
            log.info("the first file is not ready yet; it will be opened with the first record")

    def close(self) -> None:
        """Publish what is pending, release the file, forget where queues end: for a next `open`."""
        self.commit()
        if self._file is not None:
            self._file.close()
            self._file, self._file_start, self._file_end = None, 0, 0
        for offsets in self._next_offsets.values():
            offsets.clear()

    def _open(self, file_start: int) -> LogFile:
        return open_for_writing(self._directories, file_start, self._file_size, self._page)

    def _use(self, file: LogFile) -> None:
        if self._file is not None:
            self._file.close()
        self._file = file
        self._file_start, self._file_end = file.start_offset, file.end_offset

    @property
    def store_host_flag(self) -> int:
        """The bit of sysFlag that says how long the store host is."""
        return STORE_HOST_V6_FLAG if len(self.store_host) == _V6_HOST_SIZE else 0

    # -- queue offsets -------------------------------------------------------------------------

    def topic(self, name: str) -> TopicLog:
        """The writer's entry of a topic, made on first use. MessageIllegalError: not storable."""
        entry = self._topics.get(name)
        if entry is None:
            offsets = self._next_offsets.get(name)
            entry = TopicLog(name, offsets, writes_v2=self._writes_v2)
            self._topics[name], self._next_offsets[name] = entry, entry.next_offsets
        return entry

    def next_offsets(self, name: str) -> dict[int, int]:
        """Of each queue of a topic that is stored, the next record's offset, to be changed. Of any
        name: records may be there of one that is not storable here."""
        return self._next_offsets.setdefault(name, {})

    def next_offset(self, name: str, queue_id: int) -> int | None:
        """The queue offset of the next record; None for a queue without records."""
        offsets = self._next_offsets.get(name)
        return None if offsets is None else offsets.get(queue_id)

    def forget_topic(self, name: str) -> None:
        """The topic's queues were deleted: the next record of each starts at offset 0."""
        self._next_offsets.get(name, {}).clear()
        if self.lmq is not None:
            self.lmq.forget(name)

    # -- appending -----------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """False while the store refuses writes (disk full, index or queue errors)."""
        return not self._counters[RUNNING_FLAGS]

    def check_room(self, topic: TopicLog, queue_id: int) -> None:
        """Of a message that is delivered to this queue later: raises QueueTableFullError where it
        would make it, and wait for room in front of others."""
        if self._room is not None and queue_id not in topic.next_offsets:
            self._room.check(topic.name, queue_id)

    def put_fields(
        self,
        topic: TopicLog,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        properties: bytes,
    ) -> tuple[int, int]:
        """Give a record its place: (phy_offset, queue_offset). It is durable nowhere yet.

        Written plainly: the hot path, where a Record for each call cost 0.2 us. The sys_flag
        carries the host bits already. Raises NextFileNotReadyError and QueueTableFullError before
        anything has changed. Sizes are the caller's to check.
        """
        offsets = topic.next_offsets
        name, body_size, properties_size = topic.name_bytes, len(body), len(properties)
        fixed, pack_head = RECORD_HEADS[(sys_flag & HOSTS_V6_FLAGS) >> HOSTS_V6_SHIFT]
        size = fixed + body_size + len(name) + properties_size
        phy_offset = self.position
        if phy_offset + size + BLANK_SIZE > self._file_end:
            if size + BLANK_SIZE > self._file_size:
                raise MessageIllegalError(
                    f"record of {size} bytes does not fit a file of {self._file_size}"
                )
            self._roll(size)
            phy_offset = self.position
        is_uncounted = sys_flag & _UNCOUNTED
        queue_offset = 0 if is_uncounted else offsets.get(queue_id, -1)
        if queue_offset < 0:
            queue_offset = 0
            if self._room is not None:
                self._room.take(topic.name, queue_id)
            if self.lmq is not None:
                self.lmq.made(topic.name)
        self._pending += (
            pack_head(
                size,
                topic.magic,
                (long_crc32 if body_size >= LONG else crc32)(body) & BODY_CRC_MASK,
                queue_id,
                flag,
                queue_offset,
                phy_offset,
                sys_flag,
                born_timestamp,
                born_host,
                self.now_ms,
                self.store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_size,
            ),
            body,
            name,
            USUAL_PROPERTIES_LENGTHS[properties_size]
            if properties_size < len(USUAL_PROPERTIES_LENGTHS)
            else PROPERTIES_LENGTH.pack(properties_size),
            properties,
        )
        if not is_uncounted:
            offsets[queue_id] = queue_offset + 1
        self.position = phy_offset + size
        return phy_offset, queue_offset

    def append(self, topic: TopicLog, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Place the records of one topic, at least one, back to back in one file, or none of them.

        Returns (phy_offset, queue_offset) of each. Light queues that they name give them their
        places; what they say of these themselves is replaced. Inner batches (sysFlag) get theirs as
        INNER_BASE, all records or none. MessageIllegalError: larger than a file;
        QueueTableFullError: a queue would be a new one; NextFileNotReadyError: later.
        """
        if self.lmq is not None:
            return self._put_dispatched(self.lmq, topic, records)
        return self._put_all(topic, records)

    def _put_dispatched(
        self, lmq: LmqDispatch, topic: TopicLog, records: Sequence[Record]
    ) -> list[tuple[int, int]]:
        wrapped, following = lmq.wrap(topic.name, [record.properties for record in records])
        records = [
            record
            if properties is record.properties
            else msgspec.structs.replace(record, properties=properties)
            for record, properties in zip(records, wrapped, strict=True)
        ]
        places = self._put_all(topic, records)
        lmq.advance(following)
        return places

    def _put_all(self, topic: TopicLog, records: Sequence[Record]) -> list[tuple[int, int]]:
        are_inner = bool(records[0].sys_flag & INNER_BATCH_FLAG)
        if are_inner:
            records = self._based(topic, records)
        elif len(records) == 1:
            return [self._put(topic, records[0])]  # It checks the same for one: 1.3 us less.
        total = sum(record_size(topic, record) for record in records)
        if total + BLANK_SIZE > self._file_size:
            what = "batch" if len(records) > 1 else "record"
            raise MessageIllegalError(
                f"{what} of {total} bytes does not fit a file of {self._file_size}"
            )
        if self._room is not None:
            for record in records:
                if record.queue_id not in topic.next_offsets and not record.sys_flag & _UNCOUNTED:
                    self._room.take(topic.name, record.queue_id)
        if self.position + total + BLANK_SIZE > self._file_end:
            self._roll(total)
        put = self._put_inner_batch if are_inner else self._put
        return [put(topic, record) for record in records]

    def _based(self, topic: TopicLog, records: Sequence[Record]) -> list[Record]:
        """Inner batches with the queue offsets of their first messages. Nothing is counted yet."""
        based: list[Record] = []
        following: dict[int, int] = {}
        for record in records:
            queue_id = record.queue_id
            base = following.get(queue_id, topic.next_offsets.get(queue_id, 0))
            if not record.sys_flag & _UNCOUNTED:
                following[queue_id] = base + inner_num(record.sys_flag, record.properties)
            properties = with_base(record.properties, base)
            based.append(msgspec.structs.replace(record, properties=properties))
        return based

    def _put_inner_batch(self, topic: TopicLog, record: Record) -> tuple[int, int]:
        """One record that uses up a queue offset for each message that it holds; one of a
        transaction that is prepared or rolled back uses up none, as any other."""
        phy_offset, base = self._put(topic, record)
        if not record.sys_flag & _UNCOUNTED:
            following = base + inner_num(record.sys_flag, record.properties)
            topic.next_offsets[record.queue_id] = following
        return phy_offset, base

    def _put(self, topic: TopicLog, record: Record) -> tuple[int, int]:
        body = record.body
        return self.put_fields(
            topic,
            record.queue_id,
            record.flag,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            body if isinstance(body, bytes) else bytes(body),
            record.properties,
        )

    def put_sent_batch(
        self,
        topic: TopicLog,
        common: BatchCommon,
        body: memoryview,
        most: int,
        are_plain: ArePlain,
    ) -> Sequence[int] | None:
        """Place the messages of a batch as a client sent it; the phy_offset of each. None: not a
        plain batch (encode_batch), over `most` bytes, no room in this file, the first of its queue,
        or of a topic with V2 records: `append` is for those."""
        queue_offset = topic.next_offsets.get(common.queue_id, -1)
        if queue_offset < 0 or topic.magic != MAGIC_V1:
            return None
        room = min(most, self._file_end - self.position - BLANK_SIZE)
        place = BatchPlace(self.position, queue_offset, self.now_ms, self.store_host, room)
        records = encode_batch(body, common, place, are_plain)
        if records is None:
            return None
        data, phy_offsets = records
        self._pending.append(data)
        topic.next_offsets[common.queue_id] = queue_offset + len(phy_offsets)
        self.position += len(data)
        return phy_offsets

    def commit(self) -> None:
        """Write what was put since the last commit to the file, publish it, ring."""
        pending = self._pending
        if not pending:
            return
        data = pending[0] if len(pending) == 1 else b"".join(pending)
        self._publish(data, self._committed + len(data))
        pending.clear()
        self._on_publish()

    def _publish(self, data: bytes, end: int) -> None:
        """Write `data` at the published end, then publish up to `end` at once."""
        assert self._file is not None
        counters = self._counters
        counters[APPEND_END] = end
        self._file.write(self._committed - self._file_start, data)
        counters[STORE_TIMESTAMP] = self.now_ms
        counters[MAX_PHY_OFFSET] = end
        self._committed = end

    def _roll(self, size: int) -> None:
        """Make room for `size` bytes: close the current file with a blank record, go to the next.

        The next file must be there first: a record that does not fit is refused without a trace.
        The blank is published with all that it covers: nobody ever writes or reads inside of it.
        """
        if self._file is None:
            self._use(self._open(self.position - self.position % self._file_size))
            if self.position + size + BLANK_SIZE <= self._file_end:
                return
        next_start = self._file_end
        try:
            following = self._open(next_start)
        except NextFileNotReadyError:
            self._on_publish()
            raise
        self.commit()
        self._publish(encode_blank(next_start - self._committed), next_start)
        self.position = next_start
        self._use(following)
        self._on_publish()
