"""All of pop over a log in memory: requests are a client's bytes, time stands still until told.

Processors, buffer, journal, records, revival, order table are the broker's own. Played are the log
(with its queues), the timer's delivery, the tables of topics and offsets. Each thing that outlives
a process (a word of the journal, a record, a saved table, an answer) may be the last: `fuse` says
how many there are before the process is killed, which raises Killed out of whatever runs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from broker.append.append_queue import Append
from broker.pop.ack_message_processor import AckMessageProcessor
from broker.pop.change_invisible_time_processor import ChangeInvisibleTimeProcessor
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.peek_message_processor import PeekMessageProcessor
from broker.pop.peeking_check import PeekingCheck
from broker.pop.pop_acks import PopAcks
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_journal import PopJournal
from broker.pop.pop_limits import PopLimits
from broker.pop.pop_message_processor import PopMessageProcessor, PopParts
from broker.pop.pop_message_reader import PopMessageReader, ReadLimits
from broker.pop.pop_queue_check import PopQueueCheck
from broker.pop.pop_revive_service import PopReviveService
from broker.pop.request_clock import RequestClock
from broker.pop.revive_parts import ReviveParts
from broker.pop.revive_progress import ReviveProgress
from broker.pop.revive_records import ReviveRecords
from broker.processor.held_rights import no_rights
from broker.settings.broker_config import BrokerConfig
from broker.timer.timer_hook import TimerHook, TimerSettings
from broker.timer.timer_put import TimerPut
from broker.topic.system_topics import TIMER_TOPIC
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.commit_log import TopicLog
from store.java_hash import tags_code
from store.message import Message
from store.message_codec import decode_record, encode_record
from store.message_store_config import MessageStoreConfig
from store.record import Record
from store.stored_units import CQ_UNIT
from tests.broker.broker_fakes import FakeClock
from tests.broker.pop.handle_world import Offsets as PlainOffsets
from tests.support.frame_decoder import FrameDecoder

NAME, REVIVE_TOPIC = "broker-a", "rmq_sys_REVIVE_LOG_C"
REVIVE_QUEUES = 2
MAX_INVISIBLE_MS = 3 * 86_400_000
PRECISION_MS = 1_000
FLUSH_MS, SAVE_MS = 500, 5_000
_FILE_SIZE = 1 << 21
_NO_HOST = bytes(8)
_NO_ROOM_MS = 5_000
Place = tuple[str, int]


class Killed(BaseException):
    """The process ended here."""


class NoAnswerError(Exception):
    """None has come yet."""


class Nothing:
    """Statistics, and the loop: what they are told is not looked at."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_of: None


class Disk:
    """What outlives a process, and the fuse of the one that runs."""

    def __init__(self) -> None:
        self.fuse: int | None = None
        self.data = bytearray(_FILE_SIZE)
        self.units: dict[Place, list[tuple[int, int, int]]] = {}
        self.published = 0
        self.flushed = 0
        self.saved_offsets: dict[tuple[str, str, int], int] = {}
        self.topics: dict[str, TopicConfig] = {}
        self.delivered: dict[int, int] = {}
        """The end of each timer message's delivery, by its phy offset."""

    def touch(self) -> None:
        """Something is about to outlive the process. Raises Killed."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def cut(self, end: int) -> None:
        """The log ends here."""
        self.published = end
        self.flushed = min(self.flushed, end)
        for place, units in self.units.items():
            self.units[place] = [unit for unit in units if unit[0] < end]
        self.delivered = {
            phy: done for phy, done in self.delivered.items() if phy < end and done <= end
        }


class MemoryLog:
    """CommitLog, queue table, units, reader: each as far as pop uses it."""

    file_size = _FILE_SIZE
    store_host = _NO_HOST
    store_host_flag = 0

    def __init__(self, disk: Disk, clock: FakeClock) -> None:
        self._disk = disk
        self._clock = clock
        self.position = disk.published
        self.writable = True
        self._topics: dict[str, TopicLog] = {}
        self._highs = {place: len(units) for place, units in disk.units.items()}

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def topic(self, name: str) -> TopicLog:
        return self._topics.setdefault(name, TopicLog(name, writes_v2=True))

    def next_offset(self, topic: str, queue_id: int) -> int | None:
        units = self._disk.units.get((topic, queue_id))
        return None if units is None else len(units)

    def check_room(self, _topic: TopicLog, _queue_id: int) -> None: ...

    def put(self, topic: str, record: Record) -> tuple[int, int]:
        """(phy offset, queue offset)."""
        self._disk.touch()
        units = self._disk.units.setdefault((topic, record.queue_id), [])
        message = Message(
            topic=topic, queue_id=record.queue_id, flag=record.flag, queue_offset=len(units),
            phy_offset=self.position, sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp, born_host=_NO_HOST, store_timestamp=self.now_ms,
            reconsume_times=record.reconsume_times, body=bytes(record.body),
            properties=record.properties,
        )  # fmt: skip
        raw = encode_record(message)
        self._disk.data[self.position : self.position + len(raw)] = raw
        units.append((self.position, len(raw), tags_code(message.find_property("TAGS"))))
        place = self.position, len(units) - 1
        self.position += len(raw)
        return place

    def commit(self) -> None:
        """The turn's records are published and dispatched."""
        self._disk.touch()
        self._disk.published = self.position
        self._highs = {place: len(units) for place, units in self._disk.units.items()}

    # -- queue table, units, reader ----------------------------------------------------------------

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, self._highs.get((topic, queue_id), 0)

    def read(self, topic: str, queue_id: int, queue_offset: int, count: int, high: int) -> bytes:
        units = self._disk.units[topic, queue_id][queue_offset : min(queue_offset + count, high)]
        return b"".join(CQ_UNIT.pack(*unit) for unit in units)

    def read_filtered(
        self, topic: str, queue_id: int, queue_offset: int, count: int, _codes: Any, _limit: int
    ) -> bytes:
        return self.read(topic, queue_id, queue_offset, count, self.offsets(topic, queue_id)[1])

    def is_right(self, *_of: object) -> bool:
        return True

    def view_of_file(self, _phy_offset: int) -> memoryview:
        return memoryview(self._disk.data).toreadonly()

    def record_at(self, phy_offset: int) -> bytes:
        _message, size = decode_record(self._disk.data, phy_offset)
        return bytes(self._disk.data[phy_offset : phy_offset + size])

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> Message:
        phy_offset, _size, _tags = self._disk.units[topic, queue_id][queue_offset]
        return decode_record(self._disk.data, phy_offset)[0]


class MemoryAppends:
    """AppendQueue: while there is no room, appends wait, five seconds at most."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.has_room = True
        self.held: deque[tuple[int, Append]] = deque()

    @property
    def is_writable(self) -> bool:
        return self._log.writable

    def append(self, append: Append, *, fails_fast: bool = False) -> None:
        if self.held or not self.has_room:
            self.held.append((self._log.now_ms, append))
        else:
            self._place(append)

    def retry(self) -> None:
        while self.held and self.has_room:
            self._place(self.held.popleft()[1])
        while self.held and self._log.now_ms - self.held[0][0] > _NO_ROOM_MS:
            self.held.popleft()[1].refused(ResponseCode.SYSTEM_ERROR, "no room")

    def _place(self, append: Append) -> None:
        if self._log.writable:
            append.placed([self._log.put(append.topic.name, one) for one in append.records])
        else:
            append.refused(ResponseCode.SERVICE_NOT_AVAILABLE, "not writable")


class Topics:
    """TopicConfigManager, as far as pop uses it."""

    retry_limit = 255

    def __init__(self, disk: Disk) -> None:
        self._table = disk.topics

    def find(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def create(
        self, topic: str, queue_nums: int, perm: int = 6, sys_flag: int = 0
    ) -> TopicConfig | None:
        return self._table.setdefault(
            topic,
            TopicConfig(
                topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
            ),
        )

    def can_be_pop_retry(self, _topic: str) -> bool:
        return True

    def create_pop_retry(self, topic: str, queue_nums: int = 1) -> TopicConfig | None:
        return self.create(topic, queue_nums)


class Offsets(PlainOffsets):
    """ConsumerOffsetManager."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk
        self.table = dict(disk.saved_offsets)
        self.resets: dict[tuple[str, str, int], int] = {}
        """By an operator, not taken up yet."""

    def save(self) -> None:
        self._disk.touch()
        self._disk.saved_offsets = dict(self.table)

    def limit_to(self, queue_ends: Callable[[str, int], int | None]) -> None:
        """As a start as a master does."""
        for (group, topic, queue_id), offset in self.table.items():
            end = queue_ends(topic, queue_id)
            if end is not None and offset > end:
                self.table[group, topic, queue_id] = end
        self.save()

    def take_reset_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.resets.pop((group, topic, queue_id), None)

    def has_offset_reset(self, *of: object) -> bool:
        return of in self.resets


class MortalJournal(PopJournal):
    """Each of its words may be the last."""

    def __init__(self, path: Path, capacity: int, boot_id: bytes, disk: Disk) -> None:
        super().__init__(path, capacity, boot_id)
        self._disk = disk

    def add_queue(self, topic: str, group: str, queue_id: int, committed: int) -> int | None:
        self._disk.touch()
        return super().add_queue(topic, group, queue_id, committed)

    def set_committed(self, queue: int, offset: int) -> None:
        self._disk.touch()
        super().set_committed(queue, offset)

    def free_queue(self, queue: int) -> None:
        self._disk.touch()
        super().free_queue(queue)

    def add(self, *row: Any, **fields: Any) -> int | None:
        self._disk.touch()
        return super().add(*row, **fields)

    def set_bits(self, row: int, bits: int) -> None:
        self._disk.touch()
        super().set_bits(row, bits)

    def set_stored(self, row: int, end: int) -> None:
        self._disk.touch()
        super().set_stored(row, end)

    def free(self, row: int) -> None:
        self._disk.touch()
        super().free(row)

    def remove(self) -> None:
        self._disk.touch()
        super().remove()

    def close(self) -> None:
        """The process has ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MemorySocket:
    """A Connection that keeps what is written until the turn ends."""

    remote_address = "127.0.0.1:40000"
    is_open = True

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.waiting.append(bytes(frame))

    def write_many(self, pieces: list[Any], _size: int) -> None:
        self.waiting.append(b"".join(map(bytes, pieces)))

    def send_command(self, command: RemotingCommand) -> None:
        self.waiting.append(encode_command(command))


class TurnLoop:
    """ReviveLoop: `look` is called by the world."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_at_multiple(self, _period_ms: int, _function: Callable[[], None]) -> None: ...

    @property
    def watches(self) -> TurnLoop:
        """As LoopWatches."""
        return self

    def call_once(self, _function: Callable[[], None]) -> None: ...

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.soon.append(function)


class PopWorld:
    """See the module. As `frames` of PopClient, too."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        """seed: of the processor, and of which settings there are."""
        self.root = root
        self._seed = seed
        self._merges = seed % 7 > 0
        self._stay_ms = 10_000 if seed % 3 else 100
        self._v2 = seed % 5 == 1
        self.clock = FakeClock(1_795_000_000_000)
        self.disk = Disk()
        self._boots = 1
        self.journal: MortalJournal | None = None
        self._flush_ms = self._save_ms = self.clock.now_ms()
        topics = Topics(self.disk)
        topics.create(REVIVE_TOPIC, REVIVE_QUEUES)
        topics.create(TIMER_TOPIC, 1)
        self.start()

    # -- life ------------------------------------------------------------------------------------

    def topic(self, name: str, queues: int) -> None:
        Topics(self.disk).create(name, queues)

    def close(self) -> None:
        """Give what the last process had back; idempotent."""
        if self.journal is not None:
            self.journal.close()

    def power_loss(self) -> None:
        """The machine starts anew: what was flushed is there, and the tables as they were saved."""
        self._boots += 1
        self.disk.cut(self.disk.flushed)

    def start(self, fuse: int | None = None) -> None:
        """A new process: it has what is on the disk, up to what was published. fuse: it may be
        killed, too, before it serves."""
        self.close()
        disk = self.disk
        disk.fuse = fuse
        disk.cut(disk.published)
        self.socket, self.loop = MemorySocket(), TurnLoop()
        self._answers: dict[int, RemotingCommand] = {}
        self.log = MemoryLog(disk, self.clock)
        self.appends = MemoryAppends(self.log)
        self.topics, self.offsets = Topics(disk), Offsets(disk)
        self._read_time_ms = 0
        limits = PopLimits(REVIVE_QUEUES, MAX_INVISIBLE_MS, NAME)
        hook = TimerHook(
            TimerSettings(
                enabled=True, precision_ms=PRECISION_MS, max_delay_ms=MAX_INVISIBLE_MS,
                congest_num=2**31 - 1,
            ),
            lambda _slot_ms: 0, self.clock, self.topics,
        )  # fmt: skip
        timers = TimerPut(hook, self.log, self.appends)  # type: ignore[arg-type]
        self.records = ReviveRecords(timers, REVIVE_TOPIC, Nothing())
        boot_id = self._boots.to_bytes(16)
        self.journal = journal = MortalJournal(self.root / "popjournal", 256, boot_id, disk)
        self.buffer = PopBufferMergeService(
            self._broker_config(), limits, journal,
            self.records, self.offsets, self.clock.now_ms, lambda: disk.flushed,
        )  # fmt: skip
        self.offsets.limit_to(self.log.next_offset)
        self.buffer.recover(self.log.position, self.log.next_offset)
        self.order = ConsumerOrderInfoManager(
            self.root / "consumerOrderInfo.json", self.clock, self.topics.find, self._find_group
        )
        self.order.load()
        self.order.limit_to(self.log.next_offset)
        self.order.save_if_changed()
        self._build_processors(limits)
        self.progress = ReviveProgress(self.root / "progress", boot_id, 8)
        self._build_revival()
        disk.fuse = None

    def _build_processors(self, limits: PopLimits) -> None:
        inflight = self.inflight = PopInflightMessageCounter(0)
        read_limits = ReadLimits(1 << 20, 1 << 20, 32, 1 << 40)
        log: Any = self.log
        self.reader = PopMessageReader(
            read_limits, log, log, log, None, self.log.next_offset  # type: ignore[arg-type]
        )  # fmt: skip
        clock = RequestClock(self.clock.now_ms, self.clock.monotonic_ms)
        broker = self._broker_config()
        self.pop = PopMessageProcessor(
            broker,
            MessageStoreConfig(timer_max_delay_sec=MAX_INVISIBLE_MS // 1000),
            PopParts(
                reader=self.reader, buffer=self.buffer, inflight=inflight, offsets=self.offsets,
                find_topic=self.topics.find, find_group=self._find_group,
                retry_topics=self.topics, order=self.order, waiters=None, stats=Nothing(),
                hold_rights=no_rights, clock=clock, log_end=lambda: self.disk.published,
                is_in_memory=lambda *_of: True,
            ),
            self._seed,
        )  # fmt: skip
        queues = PopQueueCheck(
            limits, self.topics.find, self._find_group, self.reader, self.clock.now_ms
        )
        acks = PopAcks(self.buffer, self.records, inflight, NAME)
        self.ack = AckMessageProcessor(acks, queues, self.offsets, self.order, None, Nothing())
        self.change = ChangeInvisibleTimeProcessor(
            self.buffer, acks, queues, self.offsets, self.order, self.clock.now_ms, NAME
        )

        looks = PeekingCheck(
            broker, self.topics.find, self._find_group, log, self.buffer.pop_offset,
        )  # fmt: skip
        self.peek = PeekMessageProcessor(looks, self.reader, lambda: self.disk.published, Nothing())

    def _broker_config(self) -> BrokerConfig:
        return BrokerConfig(
            broker_name=NAME, broker_ip1="127.0.0.1", revive_interval=1_000,
            revive_queue_num=REVIVE_QUEUES, pop_from_retry_probability=20,
            enable_retry_topic_v2=self._v2, retrieve_message_from_pop_retry_topic_v1=False,
            pop_response_return_actual_retry_topic=False, init_pop_offset_by_check_msg_in_mem=True,
            enable_pop_message_threshold=False, pop_inflight_message_threshold=1_000,
            enable_pop_buffer_merge=self._merges, pop_ck_stay_buffer_time=self._stay_ms,
            pop_ck_stay_buffer_time_out=3_000, pop_ck_offset_max_queue_size=100,
            skip_when_ck_re_put_reach_max_times=False,
        )  # fmt: skip

    def _build_revival(self) -> None:
        log: Any = self.log
        self.revive = PopReviveService(
            self._broker_config(),
            ReviveParts(
                commit_log=log, append_queue=self.appends, table=log, units=log, reader=log,
                offsets=self.offsets, records=self.records, topics=self.topics,
                find_topic=self.topics.find, find_group=self._find_group, inflight=self.inflight,
                progress=self.progress, stats=Nothing(), counts=Nothing(),
                room_waits=Nothing(),  # type: ignore[arg-type]
                timer_read_time_ms=lambda: self._read_time_ms,
                published_offset=lambda: self.disk.published,
                flushed_offset=lambda: self.disk.flushed,
            ),
            REVIVE_TOPIC, REVIVE_QUEUES,
        )  # fmt: skip
        self.revive.start(self.loop)

    @staticmethod
    def _find_group(name: str) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(group_name=name)

    def stop(self) -> None:
        """An orderly stop. The next process is to be started."""
        self.turn()
        self.revive.stop()
        self.buffer.drain()
        self.turn()
        self.revive.finish()
        self.progress.close()
        self.buffer.finish()
        self.disk.flushed = self.disk.published
        self.offsets.save()
        self.order.save_if_changed()
        self.buffer.remove_journal()

    # -- the loop --------------------------------------------------------------------------------

    def turn(self) -> None:
        """The rest of a turn: what waited gets its place, the log is published, answers leave."""
        self.appends.retry()
        self.log.commit()
        decoder = FrameDecoder()
        for frame in self.socket.waiting:
            self.disk.touch()
            decoder.feed(frame)
            command = decoder.next_command()
            assert command is not None
            self._answers[command.opaque] = command
        self.socket.waiting.clear()
        soon, self.loop.soon = self.loop.soon, []
        for function in soon:
            function()

    def services(self) -> None:
        """The timer delivers, the buffer and the revival look at what is due; tables are saved,
        the log is flushed, each in its time."""
        self.deliver()
        self.turn()
        self.buffer.scan()
        self.turn()
        self.revive.run_pass()
        self.turn()
        now_ms = self.clock.now_ms()
        if now_ms - self._flush_ms >= FLUSH_MS:
            self.flush()
        if now_ms - self._save_ms >= SAVE_MS:
            self._save_ms = now_ms
            self.offsets.save()
            self.order.save_if_changed()

    def follow_reset(self, topic: str, group: str, queue_id: int) -> None:
        """An offset was set: the buffer hears of it."""
        is_reset = self.offsets.has_offset_reset(group, topic, queue_id)
        self.buffer.offset_was_set(topic, group, queue_id, is_reset=is_reset)

    def flush(self) -> None:
        """What is published is on the disk."""
        self._flush_ms = self.clock.now_ms()
        self.disk.flushed = self.disk.published

    def deliver(self) -> None:
        """The timer, up to the slot that is open now."""
        read_ms = self.clock.now_ms() // PRECISION_MS * PRECISION_MS
        units = self.disk.units.get((TIMER_TOPIC, 0), [])
        due = []
        for phy_offset, _size, _tags in units[: self.log.offsets(TIMER_TOPIC, 0)[1]]:
            message = decode_record(self.disk.data, phy_offset)[0]
            slot_ms = int(message.find_property("TIMER_OUT_MS") or 0)
            if phy_offset not in self.disk.delivered and slot_ms < read_ms:
                due.append((slot_ms, phy_offset, message))
        if due and (self.appends.held or not self.appends.has_room or not self.log.writable):
            return
        for _slot_ms, phy_offset, message in sorted(due, key=lambda one: one[:2]):
            properties = message.property_map()
            topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
            text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
            self.log.put(topic, plain_record(message.body, text, queue_id))
            self.disk.delivered[phy_offset] = self.log.position
        self._read_time_ms = max(self._read_time_ms, read_ms)

    # -- clients ---------------------------------------------------------------------------------

    def send(self, topic: str, queue_id: int, body: bytes, tag: str = "") -> bool:
        """Whether it was stored. Its answer leaves when the turn ends."""
        if not self.log.writable or not self.appends.has_room:
            return False
        self.log.put(topic, plain_record(body, f"TAGS\x01{tag}" if tag else "", queue_id))
        self.turn()
        return True

    def post(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """A request; the turn is not over."""
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, texts, body)
        frame = encode_command(request)
        header = bytes(frame[8 : 8 + (int.from_bytes(frame[4:8]) & 0xFFFFFF)])
        others = {200050: self.pop, 200052: self.peek, 200053: self.change}
        processor: Any = others.get(code, self.ack)
        fast: Any = getattr(processor, "process_fast", lambda *_of: False)
        if code != 200151 and fast(self.socket, header, memoryview(b"")):
            return request.opaque
        try:
            answer = processor.process_request(self.socket, request)
        except RequestError as error:
            answer = request.response(error.code, error.remark)
        if answer is not None:
            self.socket.send_command(answer)
        return request.opaque

    def take(self, opaque: int) -> RemotingCommand:
        """The answer. Raises NoAnswerError."""
        self.turn()
        answer = self._answers.pop(opaque, None)
        if answer is None:
            raise NoAnswerError
        return answer

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        """One request and its answer. Raises NoAnswerError."""
        return self.take(self.post(code, fields, body))


def plain_record(body: bytes, properties: str, queue_id: int) -> Record:
    """What a client sends."""
    return Record(
        queue_id=queue_id, flag=0, sys_flag=0, born_timestamp=1, born_host=_NO_HOST,
        reconsume_times=0, prepared_transaction_offset=0, body=body,
        properties=properties.encode(),
    )  # fmt: skip
