"""ReplyMessageProcessor: delivers the reply of a request-reply message to its requester (324, 325).

A consumer replies to a message by a send to the broker's reply topic. A thread of this processor's
pool pushes the reply to the requesting client (326) over that client's own connection and waits for
its response. Then the reply is stored if storeReplyMessageEnable is set, whatever the result of the
push. Follows ReplyMessageProcessor of RocketMQ.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.append.admitted_properties import admitted_properties
from broker.append.append_queue import OneRecord
from broker.append.send_properties import (
    append_pairs,
    asks_to_wait,
    find_property,
    without_property,
)
from broker.append.writable_log import WritableLog
from broker.metrics.hot_path_stats import HotPathStats
from broker.processor.table_processor import TableProcessor
from broker.send.rules import REPLY, Checked, SendRules, check_light_room
from broker.send.send_header import SendHeader, send_header_of
from broker.send.send_topic import HOST_BITS, PeerHost, TopicNature
from broker.settings.broker_config import BrokerConfig
from broker.topic.new_topics import NewTopics
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from remoting.command_custom_header import encode_header
from remoting.errors import RemotingError, RequestError
from remoting.headers.send_message import (
    MSG_REGION,
    TRACE_SWITCH,
    ReplyMessageRequestHeader,
    SendMessageResponseHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.errors import MessageIllegalError
from store.message_codec import (
    encode_message_id,
)
from store.message_properties import PROPERTIES_LIMIT
from store.message_store_config import MessageStoreConfig
from store.record import Record

log = logging.getLogger(__name__)

_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"


FindConnection = Callable[[str], ConnectionLike | None]
"""The connection of a client by its id; None when it is not online (ProducerManager)."""

CallClient = Callable[[ConnectionLike, RemotingCommand], RemotingCommand]
"""The client's answer to a request. Raises RequestError(SYSTEM_BUSY), RemotingError
(Broker2Client)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyParts:
    """The collaborators of the processor."""

    log: WritableLog
    rules: SendRules
    topics: TopicConfigManager
    find_connection: FindConnection
    call_client: CallClient
    stats: HotPathStats
    clock: Clock
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread (call_soon_threadsafe)."""
    new_topics: NewTopics
    stores_replies: Callable[[], bool]
    """storeReplyMessageEnable, and this broker is not a slave."""
    store_host: str
    """As "ip:port"."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A reply's request, and the response to it."""

    connection: ConnectionLike
    command: RemotingCommand
    pushed: RemotingCommand
    """The response; the position of the stored message is added later."""


class ReplyMessageProcessor(TableProcessor):
    """Codes 324 and 325; pool threads push, the loop stores and responds."""

    def __init__(self, parts: ReplyParts, broker: BrokerConfig, store: MessageStoreConfig) -> None:
        self._parts = parts
        self._settings = broker
        self._max_message_size = store.max_message_size
        self._lmq_quota = store.enable_lmq_quota
        super().__init__(
            {
                RequestCode.SEND_REPLY_MESSAGE: self.reply,
                RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
            }
        )

    def reply(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        """324, 325; returns None if the loop sends the response."""
        header = send_header_of(request)
        try:
            header.i = admitted_properties(header.i)
            queue_id = self._check(connection, request, header)
            failure = self._push(connection, request, header)
        except RequestError as error:
            return request.response(error.code, error.remark, self._region())
        if failure:
            answer = request.response(ResponseCode.SYSTEM_ERROR, failure, self._region())
        else:
            answer = self._stored_answer(request, "0", queue_id, 0)
        if not self._parts.stores_replies():
            return answer
        asked = _Request(connection, request, answer)
        self._parts.on_loop(lambda: self._store(asked, header, queue_id))
        return None

    # -- pool thread ---------------------------------------------------------------------------

    def _check(
        self, connection: ConnectionLike, request: RemotingCommand, header: SendHeader
    ) -> int:
        """Validate like a send; returns the queue to store in."""
        accepts_from_ms = self._settings.start_accept_send_request_time_stamp
        if self._parts.clock.now_ms() < accepts_from_ms:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {accepts_from_ms}"
            )
        config = self._parts.topics.prepare_for_send(
            header.b,
            header.c,
            header.d,
            unit_mode=header.unit_mode,
            remote=connection.remote_address,
        )
        self._parts.new_topics.wait((header.b,))
        queues = max(config.read_queue_nums, config.write_queue_nums)
        queue_id = int(header.e)
        if queue_id >= queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic {header.b} has "
                f"{queues} queues, producer {connection.remote_address}",
            )
        text = header.i
        nature = TopicNature.of(config)
        self._parts.rules.check(Checked(REPLY, text, header.f, nature))
        check_light_room(
            self._parts.log.commit_log.lmq,
            header.b,
            (text.encode(),),
            is_quota=self._lmq_quota,
        )
        properties = len(text.encode())
        size = len(request.body)
        if properties > PROPERTIES_LIMIT or size > self._max_message_size:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: body of {size} bytes (maxMessageSize "
                f"{self._max_message_size}), properties of {properties} bytes "
                f"(limit {PROPERTIES_LIMIT})",
            )
        if queue_id >= 0:
            return queue_id
        return random.randrange(max(config.write_queue_nums, 1))

    def _push(
        self, connection: ConnectionLike, request: RemotingCommand, header: SendHeader
    ) -> str:
        """Push the reply; returns why that failed, or an empty text."""
        client_id = find_property(header.i, _REPLY_TO_CLIENT)
        if not client_id:
            return f"reply message properties[{_REPLY_TO_CLIENT}] is null"
        target = self._parts.find_connection(client_id)
        if target is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        fields = encode_header(self._push_header(connection, header))
        push = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body
        )
        try:
            answer = self._parts.call_client(target, push)
        except RemotingError as error:
            log.warning("reply to %s: %s", client_id, error)
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            log.warning("reply to %s: %s %s", client_id, answer.code, answer.remark)
            return f"push reply message to {client_id} fail: {answer.code} {answer.remark or ''}"
        return ""

    def _push_header(
        self, connection: ConnectionLike, header: SendHeader
    ) -> ReplyMessageRequestHeader:
        now_ms = self._parts.clock.now_ms()
        properties = without_property(header.i, "PUSH_REPLY_TIME")
        return ReplyMessageRequestHeader(
            producer_group=header.a,
            topic=header.b,
            default_topic=header.c,
            default_topic_queue_nums=header.d,
            queue_id=int(header.e),
            sys_flag=header.f,
            born_timestamp=header.g,
            flag=header.h,
            properties=append_pairs(properties, f"PUSH_REPLY_TIME\x01{now_ms}"),
            reconsume_times=header.j,
            unit_mode=header.unit_mode,
            born_host=connection.remote_address,
            store_host=self._parts.store_host,
            store_timestamp=now_ms,
        )

    # -- loop thread ---------------------------------------------------------------------------

    def _store(self, asked: _Request, header: SendHeader, queue_id: int) -> None:
        commit_log = self._parts.log.commit_log
        text = header.i
        host, _, port = asked.connection.remote_address.rpartition(":")
        peer = PeerHost(host.strip("[]"), int(port))
        try:
            topic = commit_log.topic(header.b)
        except MessageIllegalError as error:
            log.warning("reply not stored: %s", error)
            self._answer(asked)
            return
        record = Record(
            queue_id=queue_id,
            flag=header.h,
            sys_flag=header.f & ~HOST_BITS | peer.sys_flag | commit_log.store_host_flag,
            born_timestamp=header.g,
            born_host=peer.host,
            reconsume_times=header.j,
            prepared_transaction_offset=0,
            body=asked.command.body,
            properties=text.encode(),
        )
        waits = asks_to_wait(text)
        placed = partial(self._on_placed, asked, topic.name, queue_id, waits)
        refused = partial(self._on_refused, asked, topic.name)
        self._parts.log.append_queue.append(OneRecord(topic, record, placed, refused))

    def _on_placed(
        self,
        asked: _Request,
        topic: str,
        queue_id: int,
        waits: bool,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        """The reply is stored; the response tells the sender where, unless the push failed."""
        commit_log = self._parts.log.commit_log
        self._parts.stats.add_put(topic, 1, commit_log.position - phy_offset)
        if asked.pushed.code == ResponseCode.SUCCESS:
            message_id = encode_message_id(commit_log.store_host, phy_offset)
            stored = self._stored_answer(asked.command, message_id, queue_id, queue_offset)
            asked.pushed.ext_fields.update(stored.ext_fields)
        if self._parts.log.waiters.active and waits:
            # The push determines the response code, not the flush.
            self._parts.log.waiters.add(
                commit_log.position, lambda _code: self._answer(asked), None
            )
        else:
            self._answer(asked)

    def _on_refused(self, asked: _Request, topic: str, code: ResponseCode, remark: str) -> None:
        log.warning("reply of topic %s not stored: %s %s", topic, code.name, remark)
        self._answer(asked)

    def _answer(self, asked: _Request) -> None:
        """Count the response and send it, unless the request was oneway."""
        command, code = asked.command, asked.pushed.code
        self._parts.stats.add_timed_answer(
            command.code, code, command.came_ns, oneway=command.is_oneway
        )
        if not command.is_oneway:
            asked.connection.send_command(asked.pushed)

    def _stored_answer(
        self, request: RemotingCommand, message_id: str, queue_id: int, queue_offset: int
    ) -> RemotingCommand:
        header = SendMessageResponseHeader(
            msg_id=message_id, queue_id=queue_id, queue_offset=queue_offset
        )
        fields = {**self._region(), **encode_header(header)}
        return request.response(ResponseCode.SUCCESS, None, fields)

    def _region(self) -> dict[str, str]:
        trace = "true" if self._settings.trace_on else "false"
        return {TRACE_SWITCH: trace, MSG_REGION: self._settings.region_id}
