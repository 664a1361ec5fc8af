"""PopMessageProcessor: request code 200050; hands messages out for a time.

Runs on the loop thread of `remoting`, so a queue needs no lock. What is handed out is in the
buffer's journal before the answer leaves; the log is not waited for. Checks, order of queues, codes
and words are those of RocketMQ's PopMessageProcessor. A request that finds nothing may wait
(PopLongPollingService) and is run again.

Tested by tests/broker/processor/test_waiting_requests.py.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.check_point import CheckPoint
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.pop_admission import POLLING_FULL, POLLING_TIMEOUT, PopAdmission
from broker.pop.pop_answer import ANSWER, ORDER_ANSWER, PopAnswer, refuse
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_filters import PopFilters
from broker.pop.pop_header import PopHeader, decode_pop_frame, pop_header
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_long_polling_service import PopLongPollingService
from broker.pop.pop_message_reader import PopMessageReader, QueueRead, newest_offset
from broker.pop.pop_request import PollingResult, PopRequest
from broker.pop.pop_retry_topics import check_can_come_back
from broker.pop.pop_stats import PopStats
from broker.pop.pop_targets import check_queue_id, consuming_group, readable_topic
from broker.pop.queue_walk import QueueWalk
from broker.pop.request_clock import RequestClock
from broker.pop.retry_record import under_asked_topics
from broker.pop.waiting_rights import note_rights
from broker.processor.held_rights import HoldRights
from broker.processor.table_processor import TableProcessor
from broker.settings.broker_config import BrokerConfig
from broker.subscription.group_attributes import priority_factor
from broker.topic.table_protocols import FindGroup, FindTopic
from broker.topic.topic_attributes import has_priorities
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.topic_config import TopicConfig
from remoting.command_custom_header import decode_header
from remoting.connection import Buffer, Connection
from remoting.errors import RequestError
from remoting.headers.extra_info_util import (
    ExtraInfo,
    msg_offset_item,
    retry_flag,
    start_offset_item,
)
from remoting.headers.pop import PopMessageRequestHeader
from remoting.key_builder import (
    POP_ORDER_REVIVE_QUEUE,
    RETRY_PREFIX,
    pop_retry_topic,
    pop_retry_topic_v1,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_dispatcher import refusal_of
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY
from store.get_message_status import (
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_MESSAGE,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_TOO_SMALL,
)
from store.message_store_config import MessageStoreConfig

POP_PREFIX: Final = b'{"code":200050,'
_INIT_MODE_MIN: Final = 0
_WRONG_OFFSET: Final = frozenset({OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY})
_NOTHING_MATCHED: Final = frozenset({NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING})

_QueuePop = tuple[PopRequest, PopAnswer, str, int, int, QueueRead]
"""What a pop has found in one queue: for whom, its answer so far, topic, queue id, offset, read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """The collaborators of this processor."""

    reader: PopMessageReader
    buffer: PopBufferMergeService
    inflight: PopInflightMessageCounter
    offsets: ConsumerOffsetManager
    find_topic: FindTopic
    find_group: FindGroup
    retry_topics: TopicConfigManager
    order: ConsumerOrderInfoManager | None
    """None: ordered pops are refused."""
    waiters: PopLongPollingService[PopRequest] | None
    """None: nothing waits."""
    stats: PopStats
    hold_rights: HoldRights
    """Of requests that wait."""
    clock: RequestClock
    log_end: Callable[[], int]
    """Of the published log."""
    is_in_memory: Callable[[str, int, int], bool]
    """Whether a queue's message is so near the log's end that it counts as in memory: (topic,
    queue id, queue offset)."""


def _priority_factor(parts: PopParts, header: PopHeader, topic: TopicConfig | None) -> int:
    """Of the group; 0: the pop does not go by priority."""
    if header.is_order or topic is None or not has_priorities(topic.attributes):
        return 0
    group = parts.find_group(header.consumerGroup)
    return 0 if group is None else priority_factor(group.attributes)


class PopMessageProcessor(TableProcessor):
    """Answers pops. Owned by: the loop thread."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        parts: PopParts,
        seed: int | None = None,
    ) -> None:
        super().__init__({RequestCode.POP_MESSAGE: self._serve})
        self.admission: Final = PopAdmission(broker, store, parts.clock)
        """Lite pops are asked here, too."""
        self.use(broker, store)
        self._parts = parts
        self._random = random.Random(seed)
        self._check_points = itertools.count()
        self._filters = PopFilters()

    def use(self, broker: BrokerConfig, store: MessageStoreConfig) -> None:
        """Apply changed settings."""
        self._settings = broker
        self.admission.use(broker, store)
        self._has_timers = store.timer_wheel_enable

    # -- entries -------------------------------------------------------------------------------

    def process_fast(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for JSON frames of code 200050; False hands the frame to
        `process_request`."""
        try:
            frame = decode_pop_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        if frame.flag:
            return False
        try:
            self._pop(connection, frame.opaque, frame.extFields)
        except RequestError as error:
            self._refuse(connection, frame.opaque, error)
        return True

    def _serve(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        assert isinstance(connection, Connection)
        if request.is_oneway:
            return None
        header = decode_header(PopMessageRequestHeader, request.ext_fields)
        self._pop(
            connection, request.opaque, pop_header(header, request.ext_fields.get(ACCESS_KEY))
        )
        return None

    def run_again(self, request: PopRequest) -> None:
        """A request that waited: there may be something now, or its time is over."""
        connection = request.connection
        try:
            if request.check_rights is not None:
                request.check_rights()
            self._check(connection, request.header, request.sent_ms)
            self._run(request)
        except Exception as error:  # noqa: BLE001 - the request guard, for what waited
            refusal = refusal_of(connection, RequestCode.POP_MESSAGE, error)
            self._refuse(connection, request.opaque, refusal)

    def _refuse(self, connection: Connection, opaque: int, error: RequestError) -> None:
        refuse(self._parts.stats, connection, opaque, RequestCode.POP_MESSAGE, error)

    # -- checks (in RocketMQ's order) -----------------------------------------------------------

    def _pop(self, connection: Connection, opaque: int, header: PopHeader) -> None:
        sent_ms = self._parts.clock.sent_ms(header.bornTime)
        self._check(connection, header, sent_ms)
        wanted = self._filters.wanted(header.expType, header.exp)
        self._run(PopRequest(connection, opaque, header, wanted, sent_ms))

    def _check(self, connection: Connection, header: PopHeader, sent_ms: int) -> None:
        self._check_broker(header, sent_ms)
        parts = self._parts
        topic = readable_topic(parts.find_topic(header.topic), header.topic)
        check_queue_id(topic, header.topic, header.queueId, connection.remote_address)
        consuming_group(parts.find_group(header.consumerGroup), header.consumerGroup)
        if not header.is_order:
            v2 = self._settings.enable_retry_topic_v2
            check_can_come_back(self._parts.retry_topics, header.topic, header.consumerGroup, v2=v2)
        elif self._parts.order is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "this broker has no ordered pops")

    def _check_broker(self, header: PopHeader, sent_ms: int) -> None:
        self.admission.check(sent_ms, header.pollTime, header.maxMsgNums, header.invisibleTime)
        if not self._has_timers:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{self._settings.broker_ip1}] pop message is forbidden because "
                "timerWheelEnable is false",
            )

    # -- one pop -------------------------------------------------------------------------------

    def _run(self, request: PopRequest) -> None:
        header, settings, is_order = request.header, self._settings, request.is_order
        drawn = int(self._random.random() * 100)  # randrange takes five times as long
        revive_queue_id = (
            POP_ORDER_REVIVE_QUEUE
            if is_order
            else next(self._check_points) % settings.revive_queue_num
        )
        answer = PopAnswer(self._parts.clock.now_ms(), revive_queue_id)
        topic = self._parts.find_topic(header.topic)
        walk = QueueWalk.of(drawn, _priority_factor(self._parts, header, topic), settings)
        retry = None if is_order else self._retry_topic(header, drawn)
        if retry is not None and walk.retry_first:
            self._pop_topic(request, answer, retry, walk)
        if header.queueId >= 0:
            self._pop_queue(request, answer, header.topic, header.queueId)
        elif topic is not None:
            self._pop_topic(request, answer, topic, walk)
        if retry is not None and not walk.retry_first and answer.count < request.most:
            self._pop_topic(request, answer, retry, walk)
        self._finish(request, answer)

    def _retry_topic(self, header: PopHeader, drawn: int) -> TopicConfig | None:
        """The retry topic of this request: an answer has room for one with each flag."""
        settings = self._settings
        v2 = settings.enable_retry_topic_v2
        if v2 and settings.retrieve_message_from_pop_retry_topic_v1 and drawn % 2 == 0:
            name = pop_retry_topic_v1(header.topic, header.consumerGroup)
        else:
            name = pop_retry_topic(header.topic, header.consumerGroup, v2)
        return self._parts.find_topic(name)

    def _pop_topic(
        self, request: PopRequest, answer: PopAnswer, topic: TopicConfig, walk: QueueWalk
    ) -> None:
        for queue_id in walk.queues(topic.read_queue_nums):
            self._pop_queue(request, answer, topic.topic_name or "", queue_id)

    def _pop_queue(self, request: PopRequest, answer: PopAnswer, topic: str, queue_id: int) -> None:
        parts, group, is_order = self._parts, request.group, request.is_order
        offset = self._pop_offset(topic, request, queue_id)
        _low, high = parts.reader.offsets(topic, queue_id)
        if is_order:
            assert parts.order is not None
            if parts.order.check_block(
                request.header.attemptId, topic, group, queue_id, request.invisible_ms
            ):
                return
            parts.inflight.clear(topic, group, queue_id)
        if (
            answer.count >= request.most
            or self._is_over_threshold(topic, group, queue_id)
            or not (is_order or parts.buffer.can_add(topic, group, queue_id))
        ):
            answer.rest += high - offset
            return
        if offset == high:
            return
        offset, read = self._read(request, answer, topic, queue_id, offset)
        found = request, answer, topic, queue_id, offset, read
        if read.offsets:
            self._take(found)
            return
        if read.status in _NOTHING_MATCHED:
            self._pass_over(found)
        answer.rest += read.max_offset - read.next_offset

    def _is_over_threshold(self, topic: str, group: str, queue_id: int) -> bool:
        settings = self._settings
        return (
            settings.enable_pop_message_threshold
            and self._parts.inflight.count(topic, group, queue_id)
            > settings.pop_inflight_message_threshold
        )

    def _read(
        self, request: PopRequest, answer: PopAnswer, topic: str, queue_id: int, offset: int
    ) -> tuple[int, QueueRead]:
        """From `offset` on, or from where the queue is, if it is not there. Returns where."""
        reader = self._parts.reader
        count, log_end = request.most - answer.count, self._parts.log_end()
        read = reader.read(topic, queue_id, offset, count, request.wanted, log_end)
        if read.status in _WRONG_OFFSET:
            offset = read.next_offset
            remote = request.connection.remote_address
            self._parts.offsets.commit_offset(remote, request.group, topic, queue_id, offset)
            read = reader.read(topic, queue_id, offset, count, request.wanted, log_end)
        return offset, read

    # -- offsets -------------------------------------------------------------------------------

    def _pop_offset(self, topic: str, request: PopRequest, queue_id: int) -> int:
        group, parts = request.group, self._parts
        reset = parts.offsets.take_reset_offset(group, topic, queue_id)
        if reset is not None:
            if parts.order is not None:
                parts.order.clear_block(topic, group, queue_id)
            parts.buffer.clear_offset_queue(topic, group, queue_id)
            parts.offsets.commit_offset("ResetPopOffset", group, topic, queue_id, reset)
            return reset
        offset = parts.buffer.pop_offset(topic, group, queue_id)
        if offset is None:
            offset = self._init_offset(topic, queue_id, request.header.initMode)
            parts.offsets.commit_offset("getPopOffset", group, topic, queue_id, offset)
        return offset

    def _init_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        bounds = self._parts.reader.offsets(topic, queue_id)
        if init_mode == _INIT_MODE_MIN or topic.startswith(RETRY_PREFIX):
            return bounds[0]
        looks = self._settings.init_pop_offset_by_check_msg_in_mem
        return newest_offset(bounds, lambda: looks and self._parts.is_in_memory(topic, queue_id, 0))

    # -- what was read -------------------------------------------------------------------------

    def _popped(self, found: _QueuePop) -> CheckPoint:
        request, answer, topic, queue_id, offset, read = found
        return CheckPoint(
            topic,
            request.group,
            queue_id,
            offset,
            tuple([each - offset for each in read.offsets]),
            answer.pop_time_ms,
            request.invisible_ms,
            answer.revive_queue_id,
            read.next_offset,
        )

    def _take(self, found: _QueuePop) -> None:
        """Hand messages out: note them first."""
        request, answer, topic, queue_id, offset, read = found
        parts = self._parts
        count = len(read.offsets)
        if request.is_order:
            self._note_ordered(found)
        elif not parts.buffer.add(self._popped(found)):
            answer.rest += count
            return
        flag = retry_flag(topic)
        answer.items.append(start_offset_item(flag, queue_id, offset))
        answer.offsets.append(msg_offset_item(flag, queue_id, read.offsets))
        answer.rest += read.max_offset - read.next_offset
        answer.count += count
        records: list[Buffer] = list(read.records)
        if flag != "0" and not self._settings.pop_response_return_actual_retry_topic:
            info = ExtraInfo(
                offset,
                answer.pop_time_ms,
                request.invisible_ms,
                answer.revive_queue_id,
                flag,
                self._settings.broker_name,
            )
            records = under_asked_topics(read.records, request.header.topic, info, queue_id)
        answer.records += records
        size = sum(map(len, records))
        answer.size += size
        parts.stats.add_get(request.group, topic, count, size)
        parts.inflight.increment(topic, request.group, queue_id, count)

    def _note_ordered(self, found: _QueuePop) -> None:
        request, answer, topic, queue_id, offset, read = found
        header, order = request.header, self._parts.order
        assert order is not None
        order.update(
            header.attemptId,
            topic,
            header.consumerGroup,
            queue_id,
            answer.pop_time_ms,
            header.invisibleTime,
            read.offsets,
            answer.order_items,
        )
        remote = request.connection.remote_address
        self._parts.offsets.commit_offset(remote, header.consumerGroup, topic, queue_id, offset)

    def _pass_over(self, found: _QueuePop) -> None:
        """Nothing here is for the group."""
        request, _answer, topic, queue_id, _offset, read = found
        if request.is_order:
            remote, group = request.connection.remote_address, request.group
            self._parts.offsets.commit_offset(remote, group, topic, queue_id, read.next_offset)
        else:
            self._parts.buffer.add(self._popped(found))

    # -- answering -----------------------------------------------------------------------------

    def _finish(self, request: PopRequest, answer: PopAnswer) -> None:
        header, waiters = request.header, self._parts.waiters
        code, remark = int(ResponseCode.SUCCESS), b"FOUND"
        if not answer.records:
            result = PollingResult.POLLING_TIMEOUT
            if waiters is not None:
                hold = self._parts.hold_rights
                names = request.group, header.topic
                note_rights(hold, request, RequestCode.POP_MESSAGE, header.AccessKey, names)
                result = waiters.polling(request, header.kept)
            code = POLLING_FULL if result is PollingResult.POLLING_FULL else POLLING_TIMEOUT
            remark = b"NO_MESSAGE_IN_QUEUE"
            if result is PollingResult.POLLING_SUC:
                code = -1
        if answer.rest > 0 and waiters is not None and code <= 0:
            waiters.notify(header.topic, header.consumerGroup, header.queueId)
        if code < 0:
            return
        self._parts.stats.add_answers(RequestCode.POP_MESSAGE, code)
        values: tuple[int | bytes, ...] = (
            code,
            answer.pop_time_ms,
            request.invisible_ms,
            answer.revive_queue_id,
            answer.rest,
            ";".join(answer.items).encode(),
            ";".join(answer.offsets).encode(),
        )
        template = ANSWER
        if request.is_order:
            template = ORDER_ANSWER
            values += (";".join(answer.order_items).encode(),)
        head = template.render((*values, request.opaque, remark), answer.size)
        request.connection.write_many([head, *answer.records], len(head) + answer.size)
