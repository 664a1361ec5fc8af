"""ConsumerManageProcessor: the members (38) and the offsets (14, 15) of a group.

Cheap: dict lookups, and for 14 without a stored offset one read of the consume queue; runs on the
loop's thread or in a pool. Follows ConsumerManageProcessor of RocketMQ. Offsets are stored as sent,
but only for topics and queues that exist, and for groups that exist or may: each row is kept for
good.
"""

from __future__ import annotations

import logging

from broker.client.consumer_manager import ConsumerManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.queue_times import QueueTimes
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.body.client_connection import GetConsumerListByGroupResponseBody
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.consumer import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class ConsumerManageProcessor(TableProcessor):
    """Codes 14, 15 and 38."""

    def __init__(
        self,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        store: StoreAccess,
        find_topic: FindTopic,
        find_group: FindGroup,
    ) -> None:
        """find_group: creates one where that is allowed."""
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._store = store
        self._times = QueueTimes(store)
        self._find_topic = find_topic
        self._find_group = find_group
        super().__init__(
            {
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list_by_group,
                RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
                RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
            }
        )

    def get_consumer_list_by_group(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """38: client ids of the live members; SYSTEM_ERROR if there are none."""
        header = decode_header(GetConsumerListByGroupRequestHeader, request.ext_fields)
        client_ids = self._consumers.client_ids(header.consumer_group)
        if not client_ids:
            log.warning(
                "group %s: has no members, requested by %s",
                header.consumer_group,
                connection.remote_address,
            )
            return request.response(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
                {},
            )
        body = GetConsumerListByGroupResponseBody(consumer_id_list=client_ids)
        return request.response(ResponseCode.SUCCESS, None, {}, body.to_json_bytes())

    def update_consumer_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """15: the group has consumed the queue up to this offset."""
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._consumer_offsets.check_not_own(group)
        if self._consumer_offsets.query_offset(group, topic, queue_id) is None:
            self._check_exists(group, topic, queue_id)
        if self._consumer_offsets.has_offset_reset(group, topic, queue_id):
            log.info(
                "group %s, topic %s, queue %s: %s is not committed, the offset was reset",
                group,
                topic,
                queue_id,
                header.commit_offset,
            )
            return request.response(
                ResponseCode.SUCCESS, "Offset has been previously reset", ext_fields={}
            )
        self._consumer_offsets.commit_offset(
            connection.remote_address, group, topic, queue_id, header.commit_offset
        )
        return request.response(ResponseCode.SUCCESS, ext_fields={})

    def _check_exists(self, group: str, topic: str, queue_id: int) -> None:
        """Raises RequestError, with the remarks of 5.3.3, for the first offset of a group in a
        queue if one of them does not exist. (4.9.8 stores it: a client may fill the memory.)

        A new group is created as by a pull: a tool sets where it begins before it first consumes,
        and a pull consumer may commit before its first heartbeat."""
        config = self._find_topic(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues",
            )
        if self._find_group(group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )

    def query_consumer_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """14: the group's offset; for QUERY_NOT_FOUND the client chooses one itself."""
        header = decode_header(QueryConsumerOffsetRequestHeader, request.ext_fields)
        offset = self._consumer_offsets.query_offset(
            header.consumer_group, header.topic, header.queue_id
        )
        if (offset is None or offset < 0) and self._starts_at_zero(header):
            offset = 0
        if offset is None or offset < 0:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                {},
            )
        answer = QueryConsumerOffsetResponseHeader(offset=offset)
        return request.response(ResponseCode.SUCCESS, None, encode_header(answer))

    def _starts_at_zero(self, header: QueryConsumerOffsetRequestHeader) -> bool:
        """A new group of a recent topic starts at the first message, whatever the client
        requests."""
        if header.set_zero_if_not_found is False:
            return False
        min_offset, _ = self._store.offsets(header.topic, header.queue_id)
        return min_offset <= 0 and not self._times.is_on_disk(header.topic, header.queue_id, 0)
