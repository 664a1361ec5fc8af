"""ConsumerSendMsgBackProcessor: a consumer sends back a message that it failed to consume (36).

Reads the message in a pool (it may be an old one on disk) and passes the copy to the loop, which
appends it and responds; in the safe mode of a group with a controller once the whole set has it.
The copy goes to the group's retry topic via the delay levels, or to the group's dead-letter queue
once its retries are used up. Follows asyncConsumerSendMsgBack of RocketMQ's SendMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.append.admitted_properties import sent_back_properties
from broker.append.append_queue import OneRecord
from broker.append.diverted_messages import DELAY, delay_level, divert_delayed, without_timer
from broker.append.send_properties import append_pairs, find_property, without_property
from broker.append.writable_log import WritableLog
from broker.processor.stored_rights import StoredRights, everybody, to_send_back
from broker.processor.table_processor import TableProcessor
from broker.send.lite_sends import without_lite_queue
from broker.send.send_header import LEAST_VERSION_WITH_RECONSUME_LIMIT
from broker.settings.broker_config import BrokerConfig
from broker.store_access.store_access import StoreAccess
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import (
    DLQ_QUEUES,
    PERM_READ_WRITE,
    PERM_WRITE,
    TOPIC_SYS_FLAG_UNIT_SUB,
    dlq_topic,
    retry_topic,
)
from broker.topic.table_protocols import FindGroup
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.send_message import ConsumerSendMsgBackRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.errors import MessageIllegalError
from store.inner_batch import inner_batch_objection
from store.message import Message
from store.message_codec import STORE_HOST_V6_FLAG, decode_record, encode_message_id
from store.message_properties import PROPERTIES_LIMIT
from store.message_store_config import MessageStoreConfig
from store.record import Record, one_time_more

if TYPE_CHECKING:
    from broker.metrics.hot_path_stats import HotPathStats

_FIRST_RETRY_LEVEL: Final = 3
_RETRY_TOPIC: Final = "RETRY_TOPIC"
_ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackParts:
    """The collaborators of the processor."""

    log: WritableLog
    reader: StoreAccess
    topics: TopicConfigManager
    find_group: FindGroup
    stats: HotPathStats
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread (call_soon_threadsafe)."""
    new_topics: NewTopics
    rights: StoredRights = everybody
    is_compacted: Callable[[str], bool] = lambda topic: False
    """Whether a topic's consumers read its compaction log."""
    find_topic: Callable[[str], object | None] = lambda topic: topic
    """The topic's configuration; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy to be stored in `topic`; `delayed`: via the schedule topic."""

    topic: str
    delayed: bool
    record: Record
    origin_topic: str


@dataclass(frozen=True, slots=True)
class _Request:
    """A request and the connection for its response."""

    connection: ConnectionLike
    command: RemotingCommand


class ConsumerSendMsgBackProcessor(TableProcessor):
    """Code 36. The tables are thread-safe; the log and the append queue belong to the loop."""

    def __init__(
        self, parts: SendBackParts, broker: BrokerConfig, store: MessageStoreConfig
    ) -> None:
        self._parts = parts
        self.use(broker, store)
        super().__init__({RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back})

    def use(self, broker: BrokerConfig, store: MessageStoreConfig) -> None:
        """Replace the settings. Any thread."""
        self._settings = broker
        self._is_slave = store.is_slave
        self._max_delay_level = len(store.delay_level_ms)

    def send_back(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """36; returns None, since the loop sends the response."""
        asked = _Request(connection, request)
        header = decode_header(ConsumerSendMsgBackRequestHeader, request.ext_fields)
        group = self._group(header.group)
        if group.retry_queue_nums <= 0:
            return request.response(ResponseCode.SUCCESS)
        unit = TOPIC_SYS_FLAG_UNIT_SUB if header.unit_mode else 0
        home = self._topic(retry_topic(header.group), group.retry_queue_nums, unit)
        topics = [home]
        message = self._message(header)
        self._parts.rights(connection, request, to_send_back(message, header.group))
        limit = group.retry_max_times
        times = header.max_reconsume_times
        if times is not None and request.version >= LEAST_VERSION_WITH_RECONSUME_LIMIT:
            limit = times
        if message.reconsume_times >= limit or header.delay_level < 0:
            topics.append(self._topic(dlq_topic(header.group), DLQ_QUEUES, 0))
            copy = self._copy(message, topics[-1], 0, 0)
        else:
            level = header.delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times
            queue_id = random.randrange(group.retry_queue_nums)
            copy = self._copy(message, home, queue_id, level)

        def put() -> None:
            self._put(asked, header.group, copy)

        # Both topics are registered before the response is sent.
        if not self._parts.new_topics.hold(topics, put):
            self._parts.on_loop(put)
        return None

    # -- checks, in RocketMQ's order (pool thread) -------------------------------------------

    def _group(self, name: str) -> SubscriptionGroupConfig:
        if self._is_slave:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is a slave: send the message back to its master",
            )
        config = self._parts.find_group(name)
        if config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        if not self._settings.broker_permission & PERM_WRITE:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] sending message is forbidden",
            )
        return config

    def _topic(self, name: str, queue_nums: int, sys_flag: int) -> str:
        config = self._parts.topics.create(name, queue_nums, PERM_READ_WRITE, sys_flag)
        if config is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        if not config.perm & PERM_WRITE:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return name

    def _message(self, header: ConsumerSendMsgBackRequestHeader) -> Message:
        raw = self._parts.reader.record_at(header.offset)
        message = None if raw is None else decode_record(raw, 0)[0]
        if message is not None and self._parts.is_compacted(header.origin_topic or ""):
            # At its first failure the offset is one of the compaction log, which means another
            # message here. The client sends it to the retry topic itself when it is refused.
            message = message if message.topic == retry_topic(header.group) else None
        if message is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        return message

    # -- the copy ------------------------------------------------------------------------------

    def _copy(self, message: Message, topic: str, queue_id: int, level: int) -> _Copy:
        commit_log = self._parts.log.commit_log
        sys_flag = message.sys_flag & ~STORE_HOST_V6_FLAG | commit_log.store_host_flag
        text = _copied_properties(message, level)
        objection = inner_batch_objection(sys_flag, message.properties, batch_queue=False)
        if objection is not None:
            # Consumers then send their one message of it to the retry topic themselves.
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"MESSAGE_ILLEGAL: {objection}")
        found = delay_level(text, sys_flag, self._max_delay_level)
        if found:
            topic, queue_id, sys_flag, text = divert_delayed(topic, queue_id, sys_flag, text, found)
        properties = text.encode("utf-8", "surrogateescape")
        if len(properties) > PROPERTIES_LIMIT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"PROPERTIES_SIZE_EXCEEDED: {len(properties)} bytes (limit {PROPERTIES_LIMIT})",
            )
        record = Record(
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=one_time_more(message.reconsume_times),
            prepared_transaction_offset=0,
            body=message.body,
            properties=properties,
        )
        origin = find_property(text, _RETRY_TOPIC) or message.topic
        if self._parts.find_topic(origin) is None:
            # A sender's word: what it names is counted only where it is a topic.
            origin = message.topic
        return _Copy(topic, bool(found), record, origin)

    # -- on the loop ---------------------------------------------------------------------------

    def _put(self, asked: _Request, group: str, copy: _Copy) -> None:
        try:
            topic = self._parts.log.commit_log.topic(copy.topic)
        except MessageIllegalError as error:
            remark = f"MESSAGE_ILLEGAL: {error}"
            self._answer(asked, ResponseCode.SYSTEM_ERROR, remark)
            return
        placed = partial(self._on_placed, asked, group, copy)
        append = OneRecord(topic, copy.record, placed, partial(self._on_refused, asked))
        self._parts.log.append_queue.append(append, fails_fast=True)

    def _on_placed(
        self, asked: _Request, group: str, copy: _Copy, phy_offset: int, _queue_offset: int
    ) -> None:
        """The copy is stored. The response does not wait for flush or replicas (WAIT=false, as in
        RocketMQ), except in the safe mode: the consumer passes over the message with it."""
        stats = self._parts.stats
        size = self._parts.log.commit_log.position - phy_offset
        stats.add_put(copy.topic, 1, size, "delay" if copy.delayed else "normal")
        if copy.delayed:
            stats.add_queue_put(copy.topic, copy.record.queue_id, size)
        stats.add_send_back(group, copy.origin_topic)
        waiters = self._parts.log.waiters
        if waiters.is_safe_mode and not asked.command.is_oneway:
            end = self._parts.log.commit_log.position
            waiters.add(end, partial(self._on_waited, asked), None)
        else:
            self._answer(asked, ResponseCode.SUCCESS, None)

    def _on_waited(self, asked: _Request, code: ResponseCode) -> None:
        """The copy is as safe as a send, or it is not: then the consumer sends the message
        itself, as after a refusal, and gets it twice if this copy lasts."""
        if code is ResponseCode.SUCCESS:
            self._answer(asked, code, None)
        else:
            self._answer(asked, ResponseCode.SYSTEM_ERROR, code.name)

    def _on_refused(self, asked: _Request, code: ResponseCode, remark: str) -> None:
        """Nothing was stored. Java's consumers know a single error code here, and then send the
        message themselves."""
        remark = f"{code.name}: {remark}"
        self._answer(asked, ResponseCode.SYSTEM_ERROR, remark)

    def _answer(self, asked: _Request, code: ResponseCode, remark: str | None) -> None:
        command = asked.command
        if not command.is_oneway:
            asked.connection.send_command(command.response(code, remark))
        self._parts.stats.add_timed_answer(
            command.code, code, command.came_ns, oneway=command.is_oneway
        )


def _copied_properties(message: Message, level: int) -> str:
    """The message's properties, plus its original topic and message id."""
    text = sent_back_properties(str(message.properties, "utf-8", "surrogateescape"))
    text = without_lite_queue(text)
    if not find_property(text, _RETRY_TOPIC):
        text = append_pairs(
            without_property(text, _RETRY_TOPIC), f"{_RETRY_TOPIC}\x01{message.topic}"
        )
    if not (find_property(text, _ORIGIN_ID) or "").strip():
        first = encode_message_id(message.store_host, message.phy_offset)
        text = append_pairs(without_property(text, _ORIGIN_ID), f"{_ORIGIN_ID}\x01{first}")
    # A 5.x delay (TIMER_...) is over, since the message has reached its consumer.
    text = without_timer(without_property(without_property(text, "WAIT"), DELAY))
    return append_pairs(text, f"WAIT\x01false\x02{DELAY}\x01{level}")
