"""NotificationProcessor: tells a group that there is something to pop (200054).

Runs on the loop thread. Nothing is taken. A request that finds nothing waits, and is run again when
a message has arrived or its time is over. Follows NotificationProcessor of RocketMQ 5.5, but looks
at the retry topic every time, last: for it the order makes no difference. The filter of a peer of
5.5 is that of its next pop and is applied as there, by properties as by tags (RocketMQ wakes by
properties, but answers without), to the few messages that may be left. Where there are more, the
pop has to get past those that nobody wants: it is told.

Tested by tests/broker/processor/test_waiting_requests.py and tests/broker/pop/test_pop_services.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.peeking_check import PeekingCheck, queues_from
from broker.pop.pop_filters import PopFilters
from broker.pop.pop_long_polling_service import PollingLimits, PopLongPollingService
from broker.pop.pop_message_reader import EVERYTHING, PopMessageReader, Wanted
from broker.pop.pop_names import UNSET_REMARK
from broker.pop.pop_request import PollingResult
from broker.pop.pop_stats import PopStats
from broker.pop.request_clock import RequestClock
from broker.pop.waiting_rights import note_rights
from broker.processor.held_rights import CheckRights, HoldRights, no_rights
from broker.processor.table_processor import TableProcessor
from broker.settings.broker_config import BrokerConfig
from remoting.command_custom_header import decode_header, encode_header
from remoting.connection import Connection
from remoting.headers.pop import NotificationRequestHeader, NotificationResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_dispatcher import refusal_of
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY


@dataclass(frozen=True, slots=True)
class NotificationHeader:
    """What a waiting request asks for; wire names (WaitingHeader)."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: int  # noqa: N815
    pollTime: int  # noqa: N815
    order: bool
    attempt_id: str | None
    exp_type: str | None = None
    exp: str | None = None

    @property
    def kept(self) -> int:
        """Characters that only it has, while it waits."""
        return len(self.exp_type or "") + len(self.exp or "") + len(self.attempt_id or "")


@dataclass(slots=True)
class NotificationRequest:
    """Who asks. sent_ms: when, by our monotonic clock (RequestClock). check_rights: set when it
    begins to wait; None without access control."""

    connection: Connection
    request: RemotingCommand
    header: NotificationHeader
    sent_ms: int
    check_rights: CheckRights | None = None


class NotificationProcessor(TableProcessor):
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        check: PeekingCheck,
        order: ConsumerOrderInfoManager,
        stats: PopStats,
        limits: PollingLimits,
        clock: RequestClock,
        reader: PopMessageReader,
        settings: BrokerConfig,
        hold_rights: HoldRights = no_rights,
    ) -> None:
        super().__init__({RequestCode.NOTIFICATION: self.notification})
        self._check = check
        self._order = order
        self._stats = stats
        self._clock = clock
        self._reader = reader
        self._settings = settings
        self._hold_rights = hold_rights
        self._filters = PopFilters()
        self.waiters = PopLongPollingService[NotificationRequest](
            self._run_again, limits, clock.monotonic_ms, notify_last=True
        )

    def use(self, settings: BrokerConfig) -> None:
        """Apply changed settings."""
        self._settings = settings

    def notification(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """200054: at once if there is something, or if nothing may wait; else later."""
        assert isinstance(connection, Connection)
        header = decode_header(NotificationRequestHeader, request.ext_fields)
        asked = NotificationRequest(
            connection,
            _without_load(request),
            NotificationHeader(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.poll_time,
                bool(header.order),
                header.attempt_id,
                header.exp_type,
                header.exp,
            ),
            self._clock.sent_ms(header.born_time),
        )
        return self._run(asked)

    def _run_again(self, asked: NotificationRequest) -> None:
        try:
            if asked.check_rights is not None:
                asked.check_rights()
            answer = self._run(asked)
        except Exception as error:  # noqa: BLE001 - the request guard, for what waited
            refusal = refusal_of(asked.connection, RequestCode.NOTIFICATION, error)
            answer = asked.request.response(refusal.code, refusal.remark)
        if answer is not None:
            self._stats.add_answers(RequestCode.NOTIFICATION, answer.code)
            asked.connection.send_command(answer)

    def _run(self, asked: NotificationRequest) -> RemotingCommand | None:
        result = None
        has_msg = self._has_msg(asked)
        if not has_msg:
            access_key = asked.request.ext_fields.get(ACCESS_KEY)
            names = asked.header.consumerGroup, asked.header.topic
            note_rights(self._hold_rights, asked, RequestCode.NOTIFICATION, access_key, names)
            result = self.waiters.polling(asked, asked.header.kept)
        if result is PollingResult.POLLING_SUC:
            return None
        answer = NotificationResponseHeader(
            has_msg=has_msg, polling_full=result is PollingResult.POLLING_FULL
        )
        return asked.request.response(ResponseCode.SUCCESS, UNSET_REMARK, encode_header(answer))

    def _has_msg(self, asked: NotificationRequest) -> bool:
        header = asked.header
        group = header.consumerGroup
        topic = self._check.check(asked.connection, header.topic, group, header.queueId)
        wanted = self._wanted(header)
        chance = random.randrange(100)
        queues = (
            queues_from(topic.read_queue_nums, chance) if header.queueId < 0 else [header.queueId]
        )
        if any(self._queue_has_msg(header, header.topic, one, wanted) for one in queues):
            return True
        return not header.order and any(
            self._queue_has_msg(header, retry.topic_name or "", queue_id, EVERYTHING)
            for retry in self._check.retry_topics(header.topic, group)
            for queue_id in range(retry.read_queue_nums)
        )

    def _wanted(self, header: NotificationHeader) -> Wanted:
        if not self._settings.use_message_filter_for_notification or not header.exp_type:
            return EVERYTHING
        return self._filters.wanted(header.exp_type, header.exp)

    def _queue_has_msg(
        self, header: NotificationHeader, topic: str, queue_id: int, wanted: Wanted
    ) -> bool:
        group = header.consumerGroup
        if header.order and self._order.check_block(header.attempt_id, topic, group, queue_id, 0):
            return False
        offset, high = self._check.range_left(topic, group, queue_id)
        left = high - offset
        if wanted == EVERYTHING or left >= self._settings.max_message_filter_num_for_notification:
            return left > 0
        return left > 0 and self._reader.has_wanted(topic, queue_id, offset, wanted)


def _without_load(request: RemotingCommand) -> RemotingCommand:
    """What answers need of a request that may wait: its body and fields are as long as a peer
    likes."""
    access_key = request.ext_fields.get(ACCESS_KEY)
    return RemotingCommand(
        request.code,
        opaque=request.opaque,
        flag=request.flag,
        ext_fields=None if access_key is None else {ACCESS_KEY: access_key},
        serialize_type=request.serialize_type,
    )
