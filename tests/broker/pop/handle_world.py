"""The processors of 200051, 200151 and 200053 over a real buffer, journal and records.

Requests go in as a client's bytes. The timer is played: it takes what TimerHook takes. Every record
for it is kept as it was asked for.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

from broker.pop.ack_message_processor import AckMessageProcessor
from broker.pop.change_invisible_time_processor import ChangeInvisibleTimeProcessor
from broker.pop.check_point import CheckPoint
from broker.pop.pop_acks import PopAcks
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_journal import PopJournal
from broker.pop.pop_limits import PopLimits
from broker.pop.pop_queue_check import PopQueueCheck
from broker.pop.revive_records import ReviveRecords
from broker.settings.broker_config import BrokerConfig
from broker.timer.timer_hook import find_deliver_ms
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection

NAME, TOPIC, GROUP, OTHER = "broker-a", "T", "G", "H"
QUEUES, END, REVIVE_QUEUES = 4, 300, 8
MAX_INVISIBLE_MS = 3 * 86_400_000
NOW_MS = 1_795_000_000_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_C"
BOOT = b"0123456789abcdef"
Fields = dict[str, Any]


class TimerRecord(NamedTuple):
    """What was handed to the timer."""

    queue_id: int
    body: bytes
    properties: str


class Timers:
    """PutsTimers."""

    def __init__(self, world: HandleWorld) -> None:
        self._world = world
        self.records: list[TimerRecord] = []

    def put(self, topic: str, queue_id: int, body: bytes, properties: str, on_done: Any) -> None:
        assert topic == REVIVE_TOPIC
        due_ms = find_deliver_ms(properties, self._world.now_ms)
        if due_ms is None or due_ms - self._world.now_ms > MAX_INVISIBLE_MS:
            on_done(ResponseCode.MESSAGE_ILLEGAL, -1)
            return
        self.records.append(TimerRecord(queue_id, body, properties))
        on_done(ResponseCode.SUCCESS, 100 * len(self.records))


class Counts:
    def stored(self, *_of: object) -> None: ...

    def add_answers(self, *_of: object) -> None: ...


class Offsets:
    """The part of ConsumerOffsetManager that pop uses."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}

    def commit_offset(
        self, _remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        self.table[group, topic, queue_id] = offset

    commit_own_offset = commit_offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.table.get((group, topic, queue_id))

    def has_offset_reset(self, *_of: object) -> bool:
        return False


class Queues:
    """QueueOffsets."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        return (0, END) if topic == TOPIC and queue_id == 0 else (0, 0)


class HandleWorld:
    """See the module."""

    def __init__(self, path: Path, capacity: int = 64) -> None:
        self.path = path
        self._capacity = capacity
        self.now_ms = NOW_MS
        self.flushed = 0
        self.offsets = Offsets()
        self.timers = Timers(self)
        self.start()

    def start(self) -> None:
        """A new process: what it has is the journal, the log and the saved offsets."""
        limits = PopLimits(REVIVE_QUEUES, MAX_INVISIBLE_MS, NAME)
        records = ReviveRecords(self.timers, REVIVE_TOPIC, Counts())
        self.journal = PopJournal(self.path, self._capacity, BOOT)
        self.buffer = PopBufferMergeService(
            BrokerConfig(pop_ck_offset_max_queue_size=100),
            limits,
            self.journal,
            records,
            self.offsets,
            lambda: self.now_ms,
            lambda: self.flushed,
        )
        self.buffer.recover(100 * len(self.timers.records), lambda _topic, _queue: END)
        queues = PopQueueCheck(
            limits,
            {TOPIC: TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES)}.get,
            {name: SubscriptionGroupConfig(group_name=name) for name in (GROUP, OTHER)}.get,
            Queues(),
            lambda: self.now_ms,
        )
        inflight = PopInflightMessageCounter(0)
        acks = PopAcks(self.buffer, records, inflight, NAME)
        self.ack = AckMessageProcessor(acks, queues, self.offsets, None, None, Counts())
        self.change = ChangeInvisibleTimeProcessor(
            self.buffer, acks, queues, self.offsets, None, lambda: self.now_ms, NAME
        )

    @property
    def used_rows(self) -> int:
        """Rows of the journal that hold something."""
        return len(self.journal._read_rows())

    # -- what an honest group does ---------------------------------------------------------------

    def pop(
        self, start: int = 0, count: int = 3, group: str = GROUP, queue_id: int = 0
    ) -> CheckPoint:
        diffs = tuple(range(count))
        popped = CheckPoint(
            TOPIC, group, queue_id, start, diffs, self.now_ms, 60_000, 5, start + count
        )
        assert self.buffer.add(popped)
        return popped

    def flush(self, after_ms: int) -> None:
        """Time goes by, and everything is stored and flushed."""
        self.now_ms += after_ms
        self.buffer.scan()
        self.flushed = 100 * len(self.timers.records)
        self.buffer.scan()

    # -- requests --------------------------------------------------------------------------------

    def ask_ack(self, *, is_fast: bool = False, **fields: object) -> RemotingCommand:
        """200051."""
        return self._ask(200051, {**ack_fields(), **fields}, is_fast=is_fast)

    def ask_change(self, **fields: object) -> RemotingCommand:
        """200053."""
        return self._ask(200053, {**ack_fields(), "invisibleTime": 30_000, **fields})

    def ask_batch(self, *entries: Fields, broker_name: str = NAME) -> RemotingCommand:
        """200151."""
        body = json.dumps({"brokerName": broker_name, "acks": entries}).encode()
        return self._ask(200151, {}, body)

    def _ask(
        self, code: int, fields: Fields, body: bytes = b"", *, is_fast: bool = False
    ) -> RemotingCommand:
        connection = FakeConnection()
        request = RemotingCommand(
            code, opaque=7, ext_fields={key: str(value) for key, value in fields.items()}, body=body
        )
        processor = self.change if code == 200053 else self.ack
        if is_fast:
            frame = encode_command(request)
            header = bytes(frame[8 : 8 + (int.from_bytes(frame[4:8]) & 0xFFFFFF)])
            if self.ack.process_fast(connection, header, memoryview(body)):
                [answer] = connection.sent
                return answer
        try:
            answered = processor.process_request(connection, request)
        except RequestError as error:
            return request.response(error.code, error.remark)
        if answered is not None:
            return answered
        [answer] = connection.sent
        return answer


def handle(**others: object) -> str:
    """A message's handle, of the pop of a moment ago."""
    parts: Fields = {
        "start": 0, "pop_time": NOW_MS, "invisible": 60_000, "revive": 5, "retry": 0,
        "broker": NAME, "queue": 0, "offset": 0, **others,
    }  # fmt: skip
    return " ".join(map(str, parts.values()))


def ack_fields() -> Fields:
    """A good ack's."""
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "extraInfo": handle(), "offset": 0,
    }  # fmt: skip


def entry(bits: bytes = b"\x01", **others: object) -> Fields:
    """A good entry of a batch of acks."""
    return {
        "c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 5, "pt": NOW_MS, "it": 60_000,
        "b": base64.b64encode(bits).decode(), **others,
    }  # fmt: skip
