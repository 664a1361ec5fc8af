"""ChangeInvisibleTimeProcessor: request code 200053; a popped message stays invisible for longer,
or for less long.

Runs on the loop thread of `remoting`. The message gets a check point of its own, then its old one
is acknowledged. Checks, codes and words are those of RocketMQ's ChangeInvisibleTimeProcessor.

Tested by tests/broker/pop/test_pop_model.py.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.check_point import CheckPoint
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.lite_handles import NO_LITE_TOPICS, LiteHandles
from broker.pop.pop_acks import PopAcks, popped_messages
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_names import UNSET_REMARK
from broker.pop.pop_queue_check import PopQueueCheck
from broker.processor.table_processor import TableProcessor
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.extra_info_util import ExtraInfo, parse_extra_info
from remoting.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode


class ChangeInvisibleTimeProcessor(TableProcessor):
    """Owned by: the loop thread."""

    def __init__(
        self,
        buffer: PopBufferMergeService,
        acks: PopAcks,
        queues: PopQueueCheck,
        offsets: ConsumerOffsetManager,
        order: ConsumerOrderInfoManager | None,
        now_ms: Callable[[], int],
        broker_name: str,
    ) -> None:
        """order: None refuses messages of ordered pops."""
        super().__init__({RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change})
        self._buffer = buffer
        self._acks = acks
        self._queues = queues
        self._offsets = offsets
        self._order = order
        self._now_ms = now_ms
        self._broker_name = broker_name
        self.lite: LiteHandles | None = None
        """None: there are no lite topics. Set before the first request."""

    def _change(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        header = decode_header(ChangeInvisibleTimeRequestHeader, request.ext_fields)
        self._queues.check_queue(connection, header.topic, header.queue_id)
        is_lite = self.lite is not None and self.lite.serves(header.consumer_group, header.topic)
        if header.lite_topic or is_lite:
            return _answer(request, self._change_lite(header))
        low, high = self._queues.offsets(header.topic, header.queue_id)
        if not low <= header.offset < high:
            raise RequestError(ResponseCode.NO_MESSAGE, UNSET_REMARK)
        info = self._handle_of(header)
        # Its old check point may be of this millisecond: the new one needs a key of its own.
        now_ms = max(self._now_ms(), info.pop_time_ms + 1)
        if not self._queues.can_wait(now_ms, header.invisible_time):
            raise RequestError(ResponseCode.SYSTEM_ERROR, UNSET_REMARK)
        if info.is_order:
            return _answer(request, self._change_ordered(header, info))
        return self._change_popped(connection, request, header, info, now_ms)

    def _handle_of(self, header: ChangeInvisibleTimeRequestHeader) -> ExtraInfo:
        try:
            info = parse_extra_info(header.extra_info)
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._queues.check_handle(header.consumer_group, header.offset, info)
        return info

    def _change_lite(
        self, header: ChangeInvisibleTimeRequestHeader
    ) -> ChangeInvisibleTimeResponseHeader | None:
        if self.lite is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, NO_LITE_TOPICS)
        info = self._handle_of(header)
        if not self._queues.can_wait(self._now_ms(), header.invisible_time):
            raise RequestError(ResponseCode.SYSTEM_ERROR, UNSET_REMARK)
        return self.lite.change(header, info)

    def _change_popped(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        info: ExtraInfo,
        now_ms: int,
    ) -> RemotingCommand | None:
        popped = CheckPoint(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.offset,
            (0,),
            now_ms,
            header.invisible_time,
            info.revive_queue_id,
            suspends=header.suspend,
        )
        is_ours = info.broker_name == self._broker_name
        start_offset = info.ck_queue_offset if is_ours else -1
        merged = self._buffer.change(popped, (*popped[:3], start_offset, info.pop_time_ms))
        if merged is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, UNSET_REMARK)
        answer = _answer(
            request,
            ChangeInvisibleTimeResponseHeader(
                pop_time=now_ms,
                invisible_time=header.invisible_time,
                revive_qid=info.revive_queue_id,
            ),
        )
        if merged:
            return answer
        old = popped_messages(*popped[:3], info, [header.offset])

        def done(failure: str) -> None:
            """Without the ack the message is handed out once more: the client hears it."""
            connection.send_command(_failure(request, failure) if failure else answer)

        self._acks.store(old, done)
        return None

    def _change_ordered(
        self, header: ChangeInvisibleTimeRequestHeader, info: ExtraInfo
    ) -> ChangeInvisibleTimeResponseHeader | None:
        """None: the message is acknowledged already."""
        if self._order is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "this broker has no ordered pops")
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        committed = self._offsets.query_offset(group, topic, queue_id)
        if committed is not None and header.offset < committed:
            return None
        next_visible_ms = self._now_ms() + header.invisible_time
        self._order.update_next_visible_time(
            topic, group, queue_id, header.offset, info.pop_time_ms, next_visible_ms
        )
        return ChangeInvisibleTimeResponseHeader(
            pop_time=info.pop_time_ms,
            invisible_time=next_visible_ms - info.pop_time_ms,
            revive_qid=info.revive_queue_id,
        )


def _answer(
    request: RemotingCommand, header: ChangeInvisibleTimeResponseHeader | None
) -> RemotingCommand:
    return RemotingCommand(
        int(ResponseCode.SUCCESS),
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=UNSET_REMARK,
        ext_fields={} if header is None else encode_header(header),
    )


def _failure(request: RemotingCommand, remark: str) -> RemotingCommand:
    return RemotingCommand(
        int(ResponseCode.SYSTEM_ERROR), opaque=request.opaque, flag=RESPONSE_FLAG, remark=remark
    )
