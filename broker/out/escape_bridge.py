"""EscapeBridge: puts a message into the log of another master of the cluster (310).

For a slave that acts as master and must not write its own log. The name servers say which brokers
have the topic (105, asked again after 30 seconds, and after a failure); the queues of those that
can be written take turns. Called by one thread, which it blocks. Follows EscapeBridge of RocketMQ
5.3.3, where a message that was stored, but not flushed or replicated in time, is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerIdentity
from ipc.clock import Clock
from remoting.body.route import TopicRouteData
from remoting.command_custom_header import encode_header
from remoting.errors import RemotingError
from remoting.headers.send_message import SendMessageRequestHeaderV2
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI
    from remoting.remoting_client import RemotingClient

SEND_TIMEOUT_MS: Final = 3_000
FRESH_MS: Final = 30_000
_MASTER_ID: Final = 0
_PERM_WRITE: Final = 2
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 8
_MAX_TOPICS: Final = 1_000
"""Whose routes are kept."""


class EscapeError(Exception):
    """The message was not stored elsewhere, or it is not known to be; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EscapedMessage:
    """What another broker is sent (310); it chooses the queue."""

    topic: str
    producer_group: str | None
    """None: an inner group of this broker's."""
    flag: int
    sys_flag: int
    """Without the host bits."""
    born_timestamp: int
    reconsume_times: int
    properties: str
    body: bytes


@dataclass(slots=True)
class _Route:
    """The writable queues of a topic: (address, broker name, queue id)."""

    queues: list[tuple[str, str, int]]
    told_ms: int
    turn: int = 0


class EscapeBridge:
    """See the module. Owned by: the thread that calls `put`."""

    def __init__(
        self, identity: BrokerIdentity, routes: BrokerOuterAPI, client: RemotingClient, clock: Clock
    ) -> None:
        self._identity = identity
        self._routes_of = routes
        self._client = client
        self._clock = clock
        self._routes: dict[str, _Route] = {}
        self._inner_group = f"InnerProducerGroup_{identity.broker_name}_{identity.broker_id}"

    def put(self, message: EscapedMessage, like: str | None = None) -> None:
        """Store a message at another broker. like: a topic whose brokers take it if none has its
        own: of a retry topic, which they make for the first message. Raises EscapeError."""
        route = self._find_route(message.topic, like)
        address, broker_name, queue_id = route.queues[route.turn % len(route.queues)]
        route.turn += 1
        header = SendMessageRequestHeaderV2(
            producer_group=message.producer_group or self._inner_group,
            topic=message.topic,
            default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=message.properties,
            reconsume_times=message.reconsume_times,
        )
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, encode_header(header), message.body
        )
        try:
            answer = self._client.invoke_sync(address, request, SEND_TIMEOUT_MS)
        except RemotingError as error:
            del self._routes[message.topic]
            raise EscapeError(f"{broker_name} at {address}: {error}") from error
        if answer.code not in _STORED:
            del self._routes[message.topic]
            raise EscapeError(f"{broker_name} at {address}: code {answer.code}, {answer.remark}")

    def _find_route(self, topic: str, like: str | None) -> _Route:
        now_ms = self._clock.monotonic_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known.told_ms < FRESH_MS:
            return known
        found = self._routes_of.get_topic_route(topic, SEND_TIMEOUT_MS)
        queues = [] if found is None else self._writable_queues(found)
        if not queues and like is not None:
            found = self._routes_of.get_topic_route(like, SEND_TIMEOUT_MS)
            others = [] if found is None else self._writable_queues(found)
            queues = sorted({(address, name, 0) for address, name, _queue_id in others})
        if not queues:
            raise EscapeError(f"topic {topic}: no other broker of the cluster can take it")
        if len(self._routes) >= _MAX_TOPICS:
            self._routes.clear()
        self._routes[topic] = _Route(queues, now_ms, 0 if known is None else known.turn)
        return self._routes[topic]

    def _writable_queues(self, route: TopicRouteData) -> list[tuple[str, str, int]]:
        masters = {
            data.broker_name: data.broker_addrs[_MASTER_ID]
            for data in route.broker_datas
            if _MASTER_ID in data.broker_addrs and data.broker_name != self._identity.broker_name
        }
        return [
            (masters[data.broker_name], data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & _PERM_WRITE and data.broker_name in masters
            for queue_id in range(data.write_queue_nums)
        ]
