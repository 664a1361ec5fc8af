"""PopLiteMessageProcessor: request code 200070; hands out messages of a client's lite topics.

Runs on the loop thread of `remoting`. The events of the client say which light queues to look at;
each is read in order, by the rules of ordered pops: it is closed to the group until what was handed
out is acknowledged or visible again, and the group's offset stays where it is. Many queues come in
one answer. A request that finds nothing waits for an event of its client. Checks, codes and words
follow PopLiteMessageProcessor of RocketMQ 5.5; orderCountInfo has an item for each message, where
RocketMQ's leaves some out and clients then ignore all.

Tested by tests/broker/lite/test_pop_lite_message_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.lite.lite_event_dispatcher import LiteEventDispatcher
from broker.lite.lite_metadata_util import find_lite_group, is_lite_parent
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_subscription import LiteSubscription
from broker.lite.lite_subscription_registry import MOST_CLIENT_ID, LiteSubscriptionRegistry
from broker.lite.pop_lite_long_polling_service import PopLiteLongPollingService
from broker.lite.pop_lite_request import PopLiteRequest, poll_of
from broker.pop.pop_admission import POLLING_FULL, POLLING_TIMEOUT, PopAdmission
from broker.pop.pop_answer import refuse
from broker.pop.pop_message_reader import EVERYTHING, PopMessageReader, QueueRead
from broker.pop.pop_request import PollingResult
from broker.pop.pop_stats import PopStats
from broker.pop.pop_targets import consuming_group, readable_topic
from broker.pop.request_clock import RequestClock
from broker.pop.waiting_rights import note_rights
from broker.processor.held_rights import HoldRights
from broker.processor.table_processor import TableProcessor
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.command_custom_header import decode_header
from remoting.connection import Buffer, Connection
from remoting.errors import RequestError
from remoting.frame import JsonAnswer
from remoting.headers.extra_info_util import NORMAL_TOPIC, offset_count_item
from remoting.headers.lite import PopLiteMessageRequestHeader
from remoting.key_builder import POP_ORDER_REVIVE_QUEUE
from remoting.lite_names import is_lite_queue
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
from store.lmq_places import LMQ_QUEUE_ID
from store.message_codec import PHY_OFFSET_AT

_TO_PASS: Final = frozenset(
    {OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY, NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING}
)
_MOST_PASSES: Final = 8
_ENOUGH_BYTES: Final = 4 * 1024 * 1024
"""Of an answer that gets no more queues: with what one more may hold, it fits a frame (16 MiB) with
messages of 11 MiB. Each queue may have one message of any size."""
_ANSWER: Final = JsonAnswer(
    {
        "invisibleTime": b'"%d"',
        "orderCountInfo": b'"%b"',
        "popTime": b'"%d"',
        "reviveQid": b'"%d"',
    },
    remark=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopLiteParts:
    """The collaborators of this processor."""

    admission: PopAdmission
    registry: LiteSubscriptionRegistry
    dispatcher: LiteEventDispatcher
    queues: LiteQueues
    reader: PopMessageReader
    find_topic: FindTopic
    find_group: FindGroup
    """Of known groups; makes none."""
    stats: PopStats
    hold_rights: HoldRights
    clock: RequestClock
    log_end: Callable[[], int]
    """Of the published log."""


class _Popped:
    """What a request has got so far."""

    __slots__ = ("counts", "pop_time_ms", "records", "size")

    def __init__(self, pop_time_ms: int) -> None:
        self.pop_time_ms = pop_time_ms
        self.records: list[Buffer] = []
        self.counts: list[str] = []
        self.size = 0


class PopLiteMessageProcessor(TableProcessor):
    """Owned by: the loop thread."""

    def __init__(self, parts: PopLiteParts) -> None:
        super().__init__({RequestCode.POP_LITE_MESSAGE: self._serve})
        self._parts = parts
        self.waiters: PopLiteLongPollingService
        """Set before the first request."""

    # -- entries -------------------------------------------------------------------------------

    def _serve(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        assert isinstance(connection, Connection)
        if request.is_oneway:
            return None
        asked = decode_header(PopLiteMessageRequestHeader, request.ext_fields)
        sent_ms = self._parts.clock.sent_ms(asked.born_time)
        self._check(asked, sent_ms)
        access_key = request.ext_fields.get(ACCESS_KEY)
        self._run(
            PopLiteRequest(connection, request.opaque, asked, access_key, poll_of(asked), sent_ms)
        )
        return None

    def run_again(self, request: PopLiteRequest) -> None:
        """A request that waited: there may be something now, or its time is over."""
        try:
            if request.check_rights is not None:
                request.check_rights()
            self._check(request.asked, request.sent_ms)
            self._run(request)
        except Exception as error:  # noqa: BLE001 - the request guard, for what waited
            refusal = refusal_of(request.connection, RequestCode.POP_LITE_MESSAGE, error)
            refuse(
                self._parts.stats,
                request.connection,
                request.opaque,
                RequestCode.POP_LITE_MESSAGE,
                refusal,
            )

    # -- checks (in RocketMQ's order) ------------------------------------------------------------

    def _check(self, asked: PopLiteMessageRequestHeader, sent_ms: int) -> None:
        parts = self._parts
        parts.admission.check(sent_ms, asked.poll_time, asked.max_msg_num, asked.invisible_time)
        for name, text in (("clientId", asked.client_id), ("attemptId", asked.attempt_id or "")):
            if len(text) > MOST_CLIENT_ID:
                raise RequestError(
                    ResponseCode.INVALID_PARAMETER,
                    f"{name} of {len(text)} characters (limit {MOST_CLIENT_ID})",
                )
        topic = readable_topic(parts.find_topic(asked.topic), asked.topic)
        if not is_lite_parent(topic):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic [{asked.topic}] message type not match",
            )
        group = consuming_group(parts.find_group(asked.consumer_group), asked.consumer_group)
        lite_group = find_lite_group(group)
        if lite_group is None or lite_group.topic != asked.topic:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"subscription bind topic not match, {asked.consumer_group}",
            )

    # -- one pop -------------------------------------------------------------------------------

    def _run(self, request: PopLiteRequest) -> None:
        asked, parts = request.asked, self._parts
        client = parts.registry.find(asked.client_id, asked.consumer_group)
        popped = _Popped(parts.clock.now_ms())
        if client is not None and client.group.config.topic == asked.topic:
            client.polled_ms, client.is_away = parts.clock.monotonic_ms(), False
            while len(popped.records) < asked.max_msg_num and popped.size < _ENOUGH_BYTES:
                lmq = parts.dispatcher.take(client)
                if lmq is None:
                    break
                self._pop_queue(request, lmq, popped)
        self._finish(request, client, popped)

    def _pop_queue(self, request: PopLiteRequest, lmq: str, popped: _Popped) -> None:
        asked, queues = request.asked, self._parts.queues
        group = asked.consumer_group
        if not is_lite_queue(lmq) or queues.order.check_block(asked.attempt_id, lmq, group):
            return  # It makes an event when it is free.
        read = self._read(request, lmq, asked.max_msg_num - len(popped.records))
        if not read.offsets:
            return
        places = tuple(
            int.from_bytes(each[PHY_OFFSET_AT : PHY_OFFSET_AT + 8]) for each in read.records
        )
        counts = queues.order.update(
            asked.attempt_id,
            (lmq, group),
            popped.pop_time_ms,
            asked.invisible_time,
            read.offsets,
            places,
        )
        popped.counts += [
            offset_count_item(NORMAL_TOPIC, LMQ_QUEUE_ID, offset, count) if count else "0"
            for offset, count in zip(read.offsets, counts, strict=True)
        ]
        popped.records += read.records
        size = sum(map(len, read.records))
        popped.size += size
        self._parts.stats.add_get(group, asked.topic, len(read.records), size)

    def _read(self, request: PopLiteRequest, lmq: str, count: int) -> QueueRead:
        """From where the group stands on; over what is not there any more."""
        parts, group = self._parts, request.asked.consumer_group
        offset, log_end = parts.queues.start(group, lmq), parts.log_end()
        read = parts.reader.read(lmq, LMQ_QUEUE_ID, offset, count, EVERYTHING, log_end)
        for _ in range(_MOST_PASSES):
            if read.status not in _TO_PASS or read.next_offset == offset:
                break
            offset = read.next_offset
            parts.queues.commit(request.connection.remote_address, group, lmq, offset)
            read = parts.reader.read(lmq, LMQ_QUEUE_ID, offset, count, EVERYTHING, log_end)
        return read

    # -- answering -----------------------------------------------------------------------------

    def _finish(
        self, request: PopLiteRequest, client: LiteSubscription | None, popped: _Popped
    ) -> None:
        asked, parts = request.asked, self._parts
        code, remark = int(ResponseCode.SUCCESS), b"FOUND"
        if not popped.records:
            remark = b"NO_MESSAGE_IN_QUEUE"
            names = asked.consumer_group, asked.topic
            note_rights(
                parts.hold_rights, request, RequestCode.POP_LITE_MESSAGE, request.access_key, names
            )
            result = self.waiters.polling(request, len(asked.attempt_id or ""))
            if result is PollingResult.POLLING_SUC:
                return
            code = POLLING_FULL if result is PollingResult.POLLING_FULL else POLLING_TIMEOUT
        elif client is not None and client.events:
            self.waiters.wake_client(client)
        parts.stats.add_answers(RequestCode.POP_LITE_MESSAGE, code)
        values = (
            code,
            asked.invisible_time,
            ";".join(popped.counts).encode(),
            popped.pop_time_ms,
            POP_ORDER_REVIVE_QUEUE,
            request.opaque,
            remark,
        )
        head = _ANSWER.render(values, popped.size)
        request.connection.write_many([head, *popped.records], len(head) + popped.size)
