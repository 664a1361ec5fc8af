"""EscapeBridge: puts a message into the log of another master of the cluster (310).

For a slave that acts as master and must not write its own log. The name servers say which brokers
have the topic (105, asked again after 30 seconds, and after a failure); those that can be written
take turns, but for those that have failed lately. Called by one thread, which it blocks. Follows
EscapeBridge of RocketMQ 5.3.3, where a message that was stored, but not flushed or replicated in
time, is sent again.
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


@dataclass(frozen=True, slots=True, order=True)
class _Broker:
    """A master that can take messages of a topic."""

    address: str
    name: str
    queues: int
    """How many; at least one. They are counted, not listed: anybody may register 2^31 - 1."""


@dataclass(slots=True)
class _Route:
    """Who takes a topic. turn: of the next message."""

    brokers: list[_Broker]
    told_ms: int
    turn: int = 0

    def next_queue(self) -> tuple[_Broker, int]:
        """The broker whose turn it is, and its queue's id."""
        turn, index = divmod(self.turn, len(self.brokers))
        self.turn += 1
        broker = self.brokers[index]
        return broker, turn % broker.queues


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
        self._avoided: dict[str, int] = {}
        """Broker that did not take a message, to the monotonic ms up to which others go first."""
        self._inner_group = f"InnerProducerGroup_{identity.broker_name}_{identity.broker_id}"

    def put(self, message: EscapedMessage, like: str | None = None) -> None:
        """Store a message at another broker. like: a topic whose brokers take it if none has its
        own: of a retry topic, which they make for the first message. Raises EscapeError."""
        route = self._find_route(message.topic, like)
        broker, queue_id = route.next_queue()
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
            answer = self._client.invoke_sync(broker.address, request, SEND_TIMEOUT_MS)
        except RemotingError as error:
            self._avoid(broker, message.topic)
            raise EscapeError(f"{broker.name} at {broker.address}: {error}") from error
        if answer.code not in _STORED:
            self._avoid(broker, message.topic)
            raise EscapeError(
                f"{broker.name} at {broker.address}: code {answer.code}, {answer.remark}"
            )

    def _avoid(self, broker: _Broker, topic: str) -> None:
        """Somebody else is to be asked next, and the name servers, too."""
        now_ms = self._clock.monotonic_ms()
        self._routes[topic].told_ms = now_ms - FRESH_MS
        if len(self._avoided) >= _MAX_TOPICS:
            self._avoided.clear()
        self._avoided[broker.address] = now_ms + FRESH_MS

    def _find_route(self, topic: str, like: str | None) -> _Route:
        now_ms = self._clock.monotonic_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms - known.told_ms < FRESH_MS:
            return known
        found = self._routes_of.get_topic_route(topic, SEND_TIMEOUT_MS)
        brokers = [] if found is None else self._writable_brokers(found)
        if not brokers and like is not None:
            found = self._routes_of.get_topic_route(like, SEND_TIMEOUT_MS)
            others = [] if found is None else self._writable_brokers(found)
            brokers = [_Broker(other.address, other.name, 1) for other in others]
        if not brokers:
            raise EscapeError(f"topic {topic}: no other broker of the cluster can take it")
        good = [each for each in brokers if self._avoided.get(each.address, 0) <= now_ms]
        brokers = sorted(set(good or brokers))
        if len(self._routes) >= _MAX_TOPICS:
            self._routes.clear()
        self._routes[topic] = _Route(brokers, now_ms, 0 if known is None else known.turn)
        return self._routes[topic]

    def _writable_brokers(self, route: TopicRouteData) -> list[_Broker]:
        masters = {
            data.broker_name: data.broker_addrs[_MASTER_ID]
            for data in route.broker_datas
            if _MASTER_ID in data.broker_addrs and data.broker_name != self._identity.broker_name
        }
        return [
            _Broker(masters[data.broker_name], data.broker_name, data.write_queue_nums)
            for data in route.queue_datas
            if data.perm & _PERM_WRITE and data.broker_name in masters and data.write_queue_nums > 0
        ]
