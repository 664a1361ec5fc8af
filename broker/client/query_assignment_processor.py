"""QueryAssignmentProcessor: which queues a member of a group consumes, and how (400, 401, 402).

Runs in a pool: a name server may be asked. For clients whose broker balances the load
(setClientRebalance(false)). Follows QueryAssignmentProcessor of RocketMQ 5: an answer without a
list, not an error, tells the client to keep what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.client.allocate_message_queue_strategy import STRATEGIES, allocate_for_pop
from broker.processor.table_processor import TableProcessor, refuse_on_slave, require_saved
from broker.settings.broker_config import BrokerConfig
from broker.subscription.message_request_mode_manager import MessageRequestModeManager
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.body.heartbeat import MessageModel
from remoting.body.message_queue import MessageQueue
from remoting.body.message_request_mode import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from remoting.errors import RequestError
from remoting.message_request_mode import MessageRequestMode
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.client.consumer_manager import ConsumerManager

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentParts:
    """The collaborators of this processor."""

    modes: MessageRequestModeManager
    subscribe_info: Callable[[str], list[MessageQueue] | None]
    """A topic's queues (TopicRouteInfoManager.subscribe_info)."""
    consumers: ConsumerManager
    find_topic: FindTopic
    find_group: FindGroup
    is_slave: Callable[[], bool]


class QueryAssignmentProcessor(TableProcessor):
    """See the module. The collaborators are thread-safe."""

    def __init__(self, settings: BrokerConfig, parts: AssignmentParts) -> None:
        super().__init__(
            {
                RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
                RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_message_request_mode,
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_message_request_mode,
            }
        )
        self._settings = settings
        self._parts = parts

    def query_assignment(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """400."""
        asked = QueryAssignmentRequestBody.from_request(request.body)
        topic, group = asked.topic, asked.consumer_group
        if asked.message_model is None or topic is None or group is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "topic, consumerGroup or messageModel is missing"
            )
        mode = self._parts.modes.find(topic, group) or self._default(topic, group)
        queues = self._queues(connection, asked, mode)
        assignments = None
        if queues is not None:
            assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues
            ]
        body = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _default(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        settings = self._settings
        mode, share = settings.default_message_request_mode, 0
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            mode = MessageRequestMode.PULL
        elif mode is MessageRequestMode.POP:
            share = settings.default_pop_share_queue_num
        return SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=share,
        )

    def _queues(
        self,
        connection: ConnectionLike,
        asked: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
    ) -> list[MessageQueue] | None:
        """None: the client keeps what it has."""
        group, topic = mode.consumer_group, mode.topic
        queues = self._parts.subscribe_info(topic)
        if queues is None:
            if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                log.warning("group %s: no assignment, no name server knows topic %s", group, topic)
            return None
        if (
            asked.message_model is MessageModel.BROADCASTING
            or not self._settings.server_load_balancer_enable
        ):
            return queues
        client_ids = sorted(self._parts.consumers.client_ids(group))
        allocate = STRATEGIES.get(asked.strategy_name or "")
        if not client_ids or not asked.client_id or allocate is None:
            log.warning(
                "group %s, topic %s: no assignment for %r at %s by strategy %r: %s",
                group,
                topic,
                asked.client_id,
                connection.remote_address,
                asked.strategy_name,
                f"members {client_ids}, known strategies {sorted(STRATEGIES)}",
            )
            return None
        if mode.mode is MessageRequestMode.POP:
            share = mode.pop_share_queue_num
            return allocate_for_pop(allocate, asked.client_id, queues, client_ids, share)
        return allocate(asked.client_id, queues, client_ids)

    def set_message_request_mode(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """401: how a group gets the messages of a topic from now on."""
        refuse_on_slave(self._parts.is_slave())
        row = SetMessageRequestModeRequestBody.from_request(request.body)
        if row.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._parts.find_topic(row.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{row.topic}] not exist")
        if self._parts.find_group(row.consumer_group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        log.info("topic %s, group %s: %s", row.topic, row.consumer_group, row.mode)
        require_saved(self._parts.modes.set_mode(row), "the message request mode")
        return request.response(ResponseCode.SUCCESS)

    def get_all_message_request_mode(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """402: the whole table, for slaves."""
        return request.response(ResponseCode.SUCCESS, body=self._parts.modes.encode())
