"""AckMessageProcessor: request codes 200051 and 200151; popped messages are acknowledged.

Runs on the loop thread of `remoting`. Checks, codes and words are those of RocketMQ's
AckMessageProcessor, but an ack that could not be stored is answered with an error.

Tested by tests/broker/pop/test_forged_handles.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.ack_frame import decode_ack_frame
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.lite_handles import NO_LITE_TOPICS, LiteHandles
from broker.pop.pop_acks import PopAcks, PoppedMessages, popped_messages
from broker.pop.pop_long_polling_service import PopLongPollingService
from broker.pop.pop_queue_check import PopQueueCheck
from broker.pop.pop_request import PopRequest
from broker.pop.pop_stats import PopStats
from broker.processor.table_processor import TableProcessor
from remoting.body.batch_ack import BatchAck, BatchAckMessageRequestBody
from remoting.command_custom_header import decode_header
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.frame import JsonAnswer
from remoting.headers.extra_info_util import ExtraInfo, parse_extra_info, real_topic
from remoting.headers.pop import AckMessageRequestHeader
from remoting.key_builder import POP_ORDER_REVIVE_QUEUE, polling_key
from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

ACK_PREFIX: Final = b'{"code":200051,'
_ANSWER: Final = JsonAnswer(None)


class AckMessageProcessor(TableProcessor):
    """Owned by: the loop thread."""

    def __init__(
        self,
        acks: PopAcks,
        queues: PopQueueCheck,
        offsets: ConsumerOffsetManager,
        order: ConsumerOrderInfoManager | None,
        waiters: PopLongPollingService[PopRequest] | None,
        stats: PopStats,
    ) -> None:
        """order: None refuses acks of ordered pops."""
        super().__init__(
            {RequestCode.ACK_MESSAGE: self._ack, RequestCode.BATCH_ACK_MESSAGE: self._batch}
        )
        self._acks = acks
        self._queues = queues
        self._offsets = offsets
        self._order = order
        self._waiters = waiters
        self._stats = stats
        self.lite: LiteHandles | None = None
        """None: there are no lite topics. Set before the first request."""

    # -- one message ---------------------------------------------------------------------------

    def process_fast(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for JSON frames of code 200051; False hands the frame to
        `process_request`."""
        try:
            frame = decode_ack_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        fields = frame.extFields
        opaque = frame.opaque
        try:
            info = parse_extra_info(fields.extraInfo)
            if frame.flag or info.is_order or fields.liteTopic:
                return False
            self._queues.check_ack(connection, fields.topic, fields.queueId, fields.offset)
            self._queues.check_handle(fields.consumerGroup, fields.offset, info)
            messages = popped_messages(
                fields.topic, fields.consumerGroup, fields.queueId, info, [fields.offset]
            )
        except (RequestError, ValueError):
            return False  # The general path finds the same, and answers it.

        def answer(failure: str) -> None:
            if failure:
                self._answer_failure(connection, opaque, frame.code, failure)
            else:
                self._stats.add_answers(frame.code, 0)
                connection.write(_ANSWER.render((0, opaque)))

        self._acks.ack(messages, answer)
        return True

    def _ack(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        header = decode_header(AckMessageRequestHeader, request.ext_fields)
        if header.lite_topic:
            self._queues.check_queue(connection, header.topic, header.queue_id)
            return self._ack_lite(connection, request, header)
        self._queues.check_ack(connection, header.topic, header.queue_id, header.offset)
        info = _parsed(header.extra_info)
        self._queues.check_handle(header.consumer_group, header.offset, info)
        of = header.topic, header.consumer_group, header.queue_id
        messages = popped_messages(*of, info, [header.offset])
        if info.is_order:
            return self._ordered(connection, request, [messages])
        self._acks.ack(messages, lambda failure: self._answer(connection, request, failure))
        return None

    def _ack_lite(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        header: AckMessageRequestHeader,
    ) -> RemotingCommand:
        if self.lite is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, NO_LITE_TOPICS)
        info = _parsed(header.extra_info)
        self._queues.check_handle(header.consumer_group, header.offset, info)
        self.lite.ack(connection.remote_address, header, info)
        return request.response(ResponseCode.SUCCESS)

    # -- batches -------------------------------------------------------------------------------

    def _batch(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        body = BatchAckMessageRequestBody() if not request.body else None
        body = body or BatchAckMessageRequestBody.from_request(request.body)
        if not body.acks:
            return request.response(ResponseCode.NO_MESSAGE, "the request acknowledges nothing")
        entries = [self._entry(ack, body.broker_name or "") for ack in body.acks]
        ordered = [one for one in entries if one.revive_queue_id == POP_ORDER_REVIVE_QUEUE]
        stored = [
            one for one in entries if one.offsets and one.revive_queue_id != POP_ORDER_REVIVE_QUEUE
        ]
        refusal = self._ordered(connection, request, ordered)
        left = len(stored)
        failures: list[str] = []

        def done(failure: str) -> None:
            nonlocal left
            left -= 1
            if failure:
                failures.append(failure)
            if not left:
                self._answer(connection, request, ";".join(failures), refusal)

        if not stored:
            return refusal
        for messages in stored:
            self._acks.ack(messages, done)
        return None

    def _entry(self, ack: BatchAck, broker_name: str) -> PoppedMessages:
        try:
            topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
            offsets = ack.offsets()
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        info = ExtraInfo(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_queue_id,
            ack.retry,
            broker_name,
        )
        self._queues.check_handle(ack.consumer_group, ack.start_offset, info)
        low, high = self._queues.find_offsets(topic, ack.queue_id)
        offsets = [offset for offset in offsets if low <= offset <= high]
        return popped_messages(topic, ack.consumer_group, ack.queue_id, info, offsets)

    # -- ordered -------------------------------------------------------------------------------

    def _ordered(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        acked: list[PoppedMessages],
    ) -> RemotingCommand:
        """Acknowledge messages of ordered pops; the answer."""
        answer = request.response(ResponseCode.SUCCESS)
        for messages in acked:
            for offset in messages.offsets:
                refusal = self._ack_orderly(connection, messages, offset)
                if refusal:
                    answer = request.response(ResponseCode.MESSAGE_ILLEGAL, refusal)
        return answer

    def _ack_orderly(
        self, connection: ConnectionLike, messages: PoppedMessages, offset: int
    ) -> str:
        """Why the ack is illegal; "" if it is not."""
        topic, group, queue_id = messages.topic, messages.group, messages.queue_id
        old = self._offsets.query_offset(group, topic, queue_id)
        old = -1 if old is None else old
        order = self._order
        if order is None:
            return "this broker has no ordered pops"
        if offset < old:
            return ""
        following = order.commit_and_next(topic, group, queue_id, offset, messages.pop_time_ms, old)
        if following == -1:
            return (
                f"offset is illegal, key:{polling_key(topic, group, queue_id)}, old:{old}, "
                f"commit:{offset}, next:{following}, {connection.remote_address}"
            )
        if following >= 0:
            if not self._offsets.has_offset_reset(group, topic, queue_id):
                self._offsets.commit_offset(
                    connection.remote_address, group, topic, queue_id, following
                )
            is_blocked = order.check_block(None, topic, group, queue_id, messages.invisible_time_ms)
            if self._waiters is not None and not is_blocked:
                # A proxy's pops wait for any queue.
                self._waiters.queue_is_free(topic, group, queue_id)
        return ""

    # -- answering -----------------------------------------------------------------------------

    def _answer(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        failure: str,
        answer: RemotingCommand | None = None,
    ) -> None:
        if failure:
            self._answer_failure(connection, request.opaque, request.code, failure)
        else:
            answer = answer or request.response(ResponseCode.SUCCESS)
            self._stats.add_answers(request.code, answer.code)
            connection.send_command(answer)

    def _answer_failure(
        self, connection: ConnectionLike, opaque: int, code: int, failure: str
    ) -> None:
        self._stats.add_answers(code, ResponseCode.SYSTEM_ERROR)
        connection.send_command(
            RemotingCommand(
                int(ResponseCode.SYSTEM_ERROR), opaque=opaque, flag=RESPONSE_FLAG, remark=failure
            )
        )


def _parsed(extra_info: str) -> ExtraInfo:
    """Raises RequestError in the words of Java's exception."""
    try:
        return parse_extra_info(extra_info)
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
