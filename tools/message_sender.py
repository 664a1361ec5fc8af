"""Sending messages the way RocketMQ's clients do: route, queue, unique key, SEND_MESSAGE_V2.

Runs in the command's main thread, or in one thread of the console. One attempt for each message: an
operator wants to see the result of this attempt, not of a retry. (Java: DefaultMQProducerImpl,
MessageClientIDSetter.)

Tested by tests/tools/test_mqadmin_sending.py.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.command_custom_header import decode_header
from remoting.headers.durability import DURABILITY, ask_for_durability
from remoting.headers.send_message import SendMessageRequestHeaderV2, SendMessageResponseHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import MASTER_ID, PERM_WRITE, AdminClient, unknown
from tools.errors import AdminError
from tools.message_decoder import UNIQ_KEY, encode_properties
from tools.message_puller import logic_queues
from tools.message_text import KEYS, TAGS, queue_text

TEMPLATE_TOPIC: Final = "TBW102"
"""Its route is used for a topic that does not exist yet; the broker then creates the topic."""

DEFAULT_QUEUES: Final = 4

SEND_STATUS: Final = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
"""Response codes of a message that was stored. The text is Java's SendStatus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of a send (Java: SendResult)."""

    send_status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    durability: str | None = None
    """What the broker says was achieved (remoting/headers/durability.py); None: it was not asked,
    or does not say."""

    def __str__(self) -> str:
        return (
            f"SendResult [sendStatus={self.send_status}, msgId={self.msg_id}, "
            f"offsetMsgId={self.offset_msg_id}, messageQueue={queue_text(self.queue)}, "
            f"queueOffset={self.queue_offset}]"
        )

    def to_json(self) -> dict[str, object]:
        """The result for programs."""
        return {
            "sendStatus": self.send_status,
            "msgId": self.msg_id,
            "offsetMsgId": self.offset_msg_id,
            "brokerName": self.queue.broker_name,
            "queueId": self.queue.queue_id,
            "queueOffset": self.queue_offset,
            **({} if self.durability is None else {"durability": self.durability}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """What is sent: the body with its flags, and all properties but the unique key, which is made
    where it is missing."""

    body: bytes
    properties: Mapping[str, str]
    flag: int = 0
    sys_flag: int = 0
    """How the body is compressed."""
    max_reconsume_times: int | None = None
    """For a retry topic; None: the group's setting counts."""


class UniqueKeys:
    """Makes unique keys: ip, pid, a random number, time since the month began, a counter."""

    def __init__(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        self._month_ms = int(start.timestamp() * 1000)
        pid = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = _local_address() + pid + secrets.token_bytes(4)
        self._counter = itertools.count()

    def next_key(self, now_ms: int) -> str:
        """32 hex digits."""
        since = (now_ms - self._month_ms) & 0xFFFFFFFF
        tail = since.to_bytes(4, "big") + (next(self._counter) & 0xFFFF).to_bytes(2, "big")
        return (self._prefix + tail).hex().upper()


def _local_address() -> bytes:
    """The address this host would use towards others; connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:
            return socket.inet_aton("127.0.0.1")


class MessageSender:
    """Sends to the queues of one topic. Owned by: one thread."""

    def __init__(self, admin: AdminClient, topic: str, *, may_create: bool = True) -> None:
        """may_create: a topic that does not exist is left to a broker to create. AdminError when
        there is nowhere to send to."""
        self._admin = admin
        self._topic = topic
        self._group = f"mqadmin_{admin.now_ms()}"
        self._keys = UniqueKeys(admin.now_ms())
        self._route, limit = self._find_route(may_create=may_create)
        self.queues = list(writable_queues(self._route, topic, limit))
        if not self.queues:
            raise AdminError(f"topic {topic} has no queue that can be written at a running master")

    def _find_route(self, *, may_create: bool) -> tuple[TopicRouteData, int | None]:
        """The topic's route, else the template's with the queue count a new topic gets."""
        if not may_create:
            return self._admin.route(self._topic), None
        route = self._admin.find_route(self._topic)
        if route is not None:
            return route, None
        route = self._admin.find_route(TEMPLATE_TOPIC)
        if route is None:
            names = self._admin.topic_names()
            hint = "no broker creates topics by itself (autoCreateTopicEnable): use updateTopic"
            raise AdminError(f"{unknown('topic', self._topic, names)}; {hint}")
        return route, DEFAULT_QUEUES

    def queues_of(self, broker_name: str) -> list[MessageQueue]:
        """The queues at one broker name. AdminError when there are none."""
        found = [queue for queue in self.queues if queue.broker_name == broker_name]
        if not found:
            known = {queue.broker_name for queue in self.queues}
            raise AdminError(unknown(f"topic {self._topic}: broker name", broker_name, known))
        return found

    def send(
        self,
        body: bytes,
        queue: MessageQueue,
        *,
        tags: str | None = None,
        keys: str | None = None,
        asks_durability: bool = False,
    ) -> SendResult:
        """Send one message to a queue. asks_durability: the broker shall say what was achieved.
        Raises AdminError or RemotingError when not stored."""
        named = {KEYS: keys, UNIQ_KEY: self._next_key(), "WAIT": "true", TAGS: tags}
        properties = {name: value for name, value in named.items() if value}
        message = OutgoingMessage(body=body, properties=properties)
        return self.send_message(message, queue, asks_durability=asks_durability)

    def send_message(
        self, message: OutgoingMessage, queue: MessageQueue, *, asks_durability: bool = False
    ) -> SendResult:
        """As `send`, with any properties."""
        key = message.properties.get(UNIQ_KEY) or self._next_key()
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=self._topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=self._admin.now_ms(),
            flag=message.flag,
            properties=encode_properties({**message.properties, UNIQ_KEY: key}),
            reconsume_times=0,
            max_reconsume_times=message.max_reconsume_times,
            bname=queue.broker_name,
        )
        response = self._admin.call(
            self._admin.broker_of(self._route, queue.broker_name),
            RequestCode.SEND_MESSAGE_V2,
            header,
            message.body,
            accept=SEND_STATUS,
            extra=ask_for_durability() if asks_durability else None,
        )
        answer = decode_header(SendMessageResponseHeader, response.ext_fields)
        return SendResult(
            send_status=SEND_STATUS[ResponseCode(response.code)],
            msg_id=key,
            offset_msg_id=answer.msg_id,
            queue=MessageQueue(
                broker_name=queue.broker_name, queue_id=answer.queue_id, topic=self._topic
            ),
            queue_offset=answer.queue_offset,
            durability=response.ext_fields.get(DURABILITY),
        )

    def _next_key(self) -> str:
        return self._keys.next_key(self._admin.now_ms())


def writable_queues(
    route: TopicRouteData, topic: str, limit: int | None, *, all_brokers: bool = False
) -> Iterator[MessageQueue]:
    """Queues with write permission at masters, in the order of broker names and queue ids.
    all_brokers: also at those whose master is missing now."""
    masters = {
        data.broker_name
        for data in route.broker_datas
        if all_brokers or MASTER_ID in data.broker_addrs
    }
    if route.topic_queue_mapping_by_broker:
        yield from (q for q in logic_queues(route, topic) if q.broker_name in masters)
        return
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        if data.perm & PERM_WRITE and data.broker_name in masters:
            count = data.write_queue_nums if limit is None else min(limit, data.write_queue_nums)
            for queue_id in range(count):
                yield MessageQueue(broker_name=data.broker_name, queue_id=queue_id, topic=topic)
