"""TopicRouteInfoManager: the queues of a topic on all brokers, as the name servers know them.

Called by pool threads; asks a name server (105) when what it knows is older than 30 seconds
(RocketMQ asks for every known topic in the background). While no name server answers, the last
answer counts; a topic that has none is asked for once a second at most.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ipc.clock import Clock
from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.logic_queue import mock_broker_name

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

FRESH_MS: Final = 30_000
_ASK_AGAIN_MS: Final = 1_000
_TIMEOUT_MS: Final = 3_000
_PERM_READ: Final = 4
MAX_TOPICS: Final = 10_000
"""Kept; the oldest answers are dropped."""


class _Known:
    """What is known of one topic. ms: monotonic."""

    __slots__ = ("asked_ms", "queues", "told_ms")

    def __init__(self) -> None:
        self.queues: Sequence[MessageQueue] = ()
        self.told_ms: int | None = None
        self.asked_ms: int | None = None


class TopicRouteInfoManager:
    """See the module. Owned by: `_lock`, which is not held while a name server is asked."""

    def __init__(self, source: BrokerOuterAPI, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, _Known] = {}

    def subscribe_info(self, topic: str) -> list[MessageQueue] | None:
        """The readable queues of `topic`, sorted by broker and queue id; None: no name server knows
        any."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            known = self._topics.get(topic) or _Known()
            asks = _is_old(known.told_ms, now_ms, FRESH_MS) and _is_old(
                known.asked_ms, now_ms, _ASK_AGAIN_MS
            )
            if asks:
                known.asked_ms = now_ms
                self._keep(topic, known)
        if asks:
            route = self._source.get_topic_route(topic, _TIMEOUT_MS)
            if route is not None:
                with self._lock:
                    known.queues = readable_queues(topic, route)
                    known.told_ms = self._clock.monotonic_ms()
        return list(known.queues) or None

    def _keep(self, topic: str, known: _Known) -> None:
        self._topics.pop(topic, None)
        while len(self._topics) >= MAX_TOPICS:
            del self._topics[next(iter(self._topics))]
        self._topics[topic] = known


def _is_old(since_ms: int | None, now_ms: int, limit_ms: int) -> bool:
    return since_ms is None or now_ms - since_ms >= limit_ms


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """In the order in which RocketMQ sorts queues; of a static topic its logic queues."""
    mappings = (route.topic_queue_mapping_by_broker or {}).values()
    if mappings:
        totals: dict[str, int] = {}
        for info in mappings:
            totals[info.scope] = max(info.total_queues, totals.get(info.scope, 0))
        return [
            MessageQueue(topic=topic, broker_name=mock_broker_name(scope), queue_id=queue_id)
            for scope in sorted(totals)
            for queue_id in range(totals[scope])
        ]
    return [
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & _PERM_READ
        for queue_id in range(data.read_queue_nums)
    ]
