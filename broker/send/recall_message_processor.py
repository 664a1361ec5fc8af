"""370: recalls a timer message that has not been delivered yet.

On the loop. A recall is a timer message itself, due in the slot of the one it recalls, with that
one's key in TIMER_DEL_UNIQKEY; TimerDequeueService drops both. Whether there is such a message is
not known when the recall is answered. Follows RecallMessageProcessor of RocketMQ.

Tested by tests/broker/append/test_reserved_properties.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker.append.admitted_properties import is_value
from broker.append.append_queue import Refusal
from broker.append.durability_waiters import DurabilityWaiters
from broker.processor.table_processor import TableProcessor
from broker.settings.broker_config import BrokerConfig
from broker.timer.recall_message_handle import RecallMessageHandle, decode_handle
from broker.timer.slot_delivery import delete_key
from broker.timer.timer_hook import TIMER_DELETE_KEY
from broker.timer.timer_put import TimerPut
from broker.topic.system_topics import PERM_WRITE, TIMER_TOPIC, check_send_allowed
from broker.topic.table_protocols import FindTopic
from ipc.clock import Clock
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.send_message import RecallMessageRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.message_store_config import MessageStoreConfig

RECALL_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_UNSET_REMARK: Final = "not set any response code"
"""RocketMQ's answer to a recall that succeeded."""
_UNAVAILABLE: Final = "recall failed, broker service not available"


class RecallMessageProcessor(TableProcessor):
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        find_topic: FindTopic,
        timer_put: TimerPut,
        waiters: DurabilityWaiters,
        clock: Clock,
        find_refusal: Callable[[str], Refusal | None],
    ) -> None:
        """find_refusal: why nothing may be stored in a topic (AppendQueue)."""
        super().__init__({RequestCode.RECALL_MESSAGE: self.recall_message})
        self.use(broker, store)
        self._find_topic = find_topic
        self._timer_put = timer_put
        self._waiters = waiters
        self._clock = clock
        self._find_refusal = find_refusal

    def use(self, broker: BrokerConfig, store: MessageStoreConfig) -> None:
        """Settings were changed."""
        self._settings = broker
        self._is_slave = store.is_slave
        self._max_delay_ms = store.timer_max_delay_ms
        self._append_topic = store.append_topic_for_timer_delete_key

    def recall_message(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """370. The answer leaves once the recall is as durable as a send."""
        region = {"MSG_REGION": self._settings.region_id}
        try:
            header = decode_header(RecallMessageRequestHeader, request.ext_fields)
            handle = self._check(header)
        except RequestError as error:
            return request.response(error.code, error.remark, region)

        def answer(code: ResponseCode) -> None:
            """RocketMQ says SUCCESS though no replica has it; the next leader would deliver the
            message then. Whoever asks again does no harm."""
            fields = {**region, "msgId": handle.unique_key}
            remark = (
                _UNSET_REMARK if code is ResponseCode.SUCCESS else f"recall failed, {code.name}"
            )
            connection.send_command(request.response(code, remark, fields))

        def on_done(code: ResponseCode, end_offset: int) -> None:
            if code is not ResponseCode.SUCCESS:
                remark = "recall failed, execute error"
                connection.send_command(request.response(ResponseCode.SYSTEM_ERROR, remark, region))
            elif self._waiters.active:
                self._waiters.add(end_offset, answer, None)
            else:
                answer(code)

        properties = self._properties(handle, header.producer_group)
        self._timer_put.put(handle.topic, 0, _BODY, properties, on_done)
        return None

    def _check(self, header: RecallMessageRequestHeader) -> RecallMessageHandle:
        """RocketMQ's checks in its order. Raises RequestError."""
        self._check_broker()
        if self._find_topic(header.topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        try:
            handle = decode_handle(header.recall_handle or "")
        except ValueError as error:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if not is_value(header.producer_group or ""):
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, group invalid")
        check_send_allowed(header.topic)
        if handle.topic != header.topic:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._settings.broker_name:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, _UNAVAILABLE)
        deliver_ms = int(handle.deliver_ms) if _NUMBER.fullmatch(handle.deliver_ms) else -1
        if not 0 < deliver_ms - self._clock.now_ms() < self._max_delay_ms:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _check_broker(self) -> None:
        settings = self._settings
        if not settings.recall_message_enable:
            raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._is_slave:
            raise RequestError(ResponseCode.SLAVE_NOT_AVAILABLE, _UNAVAILABLE)
        writeable = (
            settings.broker_permission & PERM_WRITE
            or settings.allow_recall_when_broker_not_writeable
        )
        starts_ms = settings.start_accept_send_request_time_stamp
        if self._clock.now_ms() < starts_ms or not writeable:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if (refusal := self._find_refusal(TIMER_TOPIC)) is not None:
            raise RequestError(*refusal)

    def _properties(self, handle: RecallMessageHandle, producer_group: str | None) -> str:
        pairs = {
            TIMER_DELETE_KEY: delete_key(
                handle.topic, handle.unique_key, append_topic=self._append_topic
            ),
            "BORN_TIMESTAMP": str(self._clock.now_ms()),
            "TRACE_CONTEXT": "",
            "TIMER_DELIVER_MS": handle.deliver_ms,
            "UNIQ_KEY": handle.unique_key,
            "TAGS": RECALL_TAG,
        }
        if producer_group is not None:
            pairs["PGROUP"] = producer_group
        return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
