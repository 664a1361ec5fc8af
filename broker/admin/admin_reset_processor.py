"""AdminResetProcessor: resets the offsets of a consumer group (222, with 220 to clients).

Runs in the `admin` pool: finding an offset by time reads files. As in RocketMQ 4.9, this broker
does not change its own table: the members drop the queues, wait, and commit the new offsets.
mqadmin of 5.x can also reset a single queue (queueId, offset); there the offset is stored here if
the group is not online. With useServerSideResetOffset, as in 5.3, the offsets are stored here, and
the next pull of each queue is told. Follows resetOffset and resetOffsetInner of
AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.client.broker2client import Broker2Client
from broker.client.consumer_manager import ConsumerManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import ResetOffsetBody
from remoting.body.topic_config import TopicConfig
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.admin import ResetOffsetRequestHeader
from remoting.language_code import LanguageCode
from remoting.mq_version import V5_0_0
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_TO_THE_END: Final = -1
"""As a timestamp: the end of each queue. As an offset (5.x): not set."""


class AdminResetProcessor(TableProcessor):
    """Code 222."""

    def __init__(
        self,
        broker_name: str,
        clients: Broker2Client,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        store: StoreAccess,
        is_slave: Callable[[], bool],
    ) -> None:
        super().__init__({RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset})
        self._broker_name = broker_name
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._store = store
        self._is_slave = is_slave

    def reset_offset(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """222: every write queue of a topic, or the one given by queueId; returns the new
        offsets."""
        header = decode_header(ResetOffsetRequestHeader, request.ext_fields)
        log.warning(
            "reset of group %s, topic %s, queue %s to %s (force %s): requested by %s",
            header.group,
            header.topic,
            header.queue_id,
            header.timestamp if header.offset is None else header.offset,
            header.is_force,
            connection.remote_address,
        )
        if self._consumer_offsets.stores_resets:
            offsets = self._reset_here(connection, header)
        elif header.queue_id is not None and header.queue_id >= 0:
            offsets = self._reset_queue(connection, header, header.queue_id)
        else:
            for_cpp = request.language == LanguageCode.CPP
            if request.version >= V5_0_0 and self._never_consumed(header):
                offsets = self._begin(connection, header, for_cpp=for_cpp)
            else:
                offsets = self._topic_offsets(header)
                self._send_reset(header, offsets, for_cpp=for_cpp)
        body = ResetOffsetBody(offset_table=offsets)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _reset_here(
        self, connection: ConnectionLike, header: ResetOffsetRequestHeader
    ) -> dict[MessageQueue, int]:
        """Store the offsets of one queue or of every read queue; their next pulls are told."""
        topic, group = header.topic, header.group
        config = self._check_exists(topic, group)
        if header.queue_id is not None and header.queue_id >= 0:
            self._check_queue(topic, group, header.queue_id)
            found = {header.queue_id: self._wanted_offset(header, header.queue_id)}
        else:
            found = {
                queue_id: self._offset_at(topic, queue_id, header.timestamp)
                for queue_id in range(config.read_queue_nums)
            }
        if not found:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in found.items():
            self._consumer_offsets.assign_reset_offset(
                connection.remote_address, group, topic, queue_id, offset
            )
        return {self._queue(topic, queue_id): offset for queue_id, offset in found.items()}

    def _wanted_offset(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The offset that the header names (up to one behind the end, as in RocketMQ), or that of
        its time."""
        offset = header.offset
        if offset is None or offset == _TO_THE_END:
            return self._offset_at(header.topic, queue_id, header.timestamp)
        low, high = self._store.offsets(header.topic, queue_id)
        if not low <= offset <= high + 1:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return offset

    def _never_consumed(self, header: ResetOffsetRequestHeader) -> bool:
        """Whether the group lacks an offset in a queue of an existing topic."""
        topic, group = header.topic, header.group
        config = self._topics.find(topic)
        return config is not None and any(
            self._consumer_offsets.query_offset(group, topic, queue_id) is None
            for queue_id in range(config.write_queue_nums)
        )

    def _begin(
        self, connection: ConnectionLike, header: ResetOffsetRequestHeader, *, for_cpp: bool
    ) -> dict[MessageQueue, int]:
        """For a tool of 5.x, as 5.3.3 with its default (4.9 and the rest of 222 refuse such a
        group): the offset of each queue at that time, sent to the members, or stored if none is
        online."""
        topic, group = header.topic, header.group
        config = self._check_exists(topic, group)
        found = {
            queue_id: self._offset_at(topic, queue_id, header.timestamp)
            for queue_id in range(config.write_queue_nums)
        }
        offsets = {self._queue(topic, queue_id): offset for queue_id, offset in found.items()}
        if self._consumers.has_group(group):
            self._send_reset(header, offsets, for_cpp=for_cpp)
            return offsets
        for queue_id, offset in found.items():
            self._consumer_offsets.commit_offset(
                connection.remote_address, group, topic, queue_id, offset
            )
        return offsets

    def _topic_offsets(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """The offset of each queue at that time. Without force, the stored offset is kept unless
        the new one is lower."""
        topic, group = header.topic, header.group
        config = self._topics.find(topic)
        if config is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            stored = self._consumer_offsets.query_offset(group, topic, queue_id)
            if stored is None:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"
                )
            target = self._offset_at(topic, queue_id, header.timestamp)
            chosen = target if header.is_force or target < stored else stored
            offsets[self._queue(topic, queue_id)] = chosen
        return offsets

    def _reset_queue(
        self, connection: ConnectionLike, header: ResetOffsetRequestHeader, queue_id: int
    ) -> dict[MessageQueue, int]:
        """One queue, for mqadmin of 5.x: sent to the members, or stored if none is online."""
        topic, group = header.topic, header.group
        self._check_queue(topic, group, queue_id)
        offset = header.offset
        if offset is None or offset == _TO_THE_END:
            offset = self._offset_at(topic, queue_id, header.timestamp)
        low, high = self._store.offsets(topic, queue_id)
        if not low <= offset <= high:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        offsets = {self._queue(topic, queue_id): offset}
        if self._consumers.has_group(group):
            self._send_reset(header, offsets, for_cpp=False)
        else:
            remote = connection.remote_address
            self._consumer_offsets.commit_offset(remote, group, topic, queue_id, offset)
        return offsets

    def _check_queue(self, topic: str, group: str, queue_id: int) -> None:
        config = self._check_exists(topic, group)
        if queue_id >= config.write_queue_nums:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Queue {queue_id} of topic {topic} does not exist: it has "
                f"{config.write_queue_nums} write queues",
            )

    def _check_exists(self, topic: str, group: str) -> TopicConfig:
        """Raises RequestError with the remarks of 5.3."""
        if self._is_slave():
            raise RequestError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = self._topics.find(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self._groups.find(group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        return config

    def _send_reset(
        self, header: ResetOffsetRequestHeader, offsets: dict[MessageQueue, int], *, for_cpp: bool
    ) -> None:
        self._clients.reset_offset(
            header.group, header.topic, header.timestamp, offsets, for_cpp=for_cpp
        )

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        is_negative = self._consumer_offsets.stores_resets and timestamp_ms < 0
        if timestamp_ms == _TO_THE_END or is_negative:
            return self._store.offsets(topic, queue_id)[1]
        return self._store.offset_by_timestamp(topic, queue_id, timestamp_ms)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(broker_name=self._broker_name, queue_id=queue_id, topic=topic)
