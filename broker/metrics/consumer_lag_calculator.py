"""ConsumerLagCalculator: how far the groups that are online have come in what they subscribe to.

Called on the scheduled executor of `remoting`, every few seconds; reads tables that others write.
Follows ConsumerLagCalculator of RocketMQ 5.x: no retry topics, but what of a topic comes again to
a group that pops (`is_retry`); a group without an offset in a queue has no lag there. Groups that
pull or are pushed to: from their committed offset, in flight is what lies between that and their
next pull. Groups that pop: in flight is what they have to acknowledge. Who pops is seen by the
pops: clients that do so call themselves push consumers in their heartbeats, and behind a proxy they
send none (5.3.3 takes the former for ones that pull). Knows no metric.

Tested by tests/broker/metrics/test_broker_gauges.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.client.consumer_manager import ConsumerManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.heartbeat import ConsumeType
from remoting.key_builder import pop_retry_topic_v1, pop_retry_topic_v2
from store.errors import QueueDamagedError

LatestOffset = Callable[[str, str, int], int | None]
"""(topic, group, queue id) -> where the next pop begins, None where pops do not decide it
(PopBufferMergeService.latest_offset)."""
InFlight = Callable[[str, str, int], int]
"""(topic, group, queue id) -> messages that were popped and are not acknowledged
(PopInflightMessageCounter.count)."""
Popping = Callable[[], set[tuple[str, str]]]
"""(group, topic) of the pops of late (PopBufferMergeService.popping)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSources:
    """Where the figures come from."""

    topics: TopicConfigManager
    consumers: ConsumerManager
    is_lite_group: Callable[[str], bool]
    """Such a group reads no queue of its topic (LiteConsumerLagCalculator)."""
    offsets: ConsumerOffsetManager
    queues: StoreAccess
    pop_offset: LatestOffset
    pop_in_flight: InFlight
    popping: Popping
    enable_retry_topic_v2: bool
    retrieve_message_from_pop_retry_topic_v1: bool


class Progress(NamedTuple):
    """A group in a topic. Times are wall clock ms, 0 where there is no such message."""

    group: str
    topic: str
    is_retry: bool
    lag: int = 0
    """Messages that are not consumed."""
    unconsumed_since_ms: int = 0
    """When the oldest of them was stored."""
    in_flight: int = 0
    """Those that the group has got."""
    ready: int = 0
    """Those that it has not."""
    waiting_since_ms: int = 0
    """When the oldest of these was stored."""


class LiteProgress(NamedTuple):
    """A lite group in its parent; found in broker/lite. None: as configured, it is not shown."""

    group: str
    topic: str
    lag: int | None
    """Messages that are not consumed."""
    unconsumed_since_ms: int | None
    """When the oldest of them was stored, wall clock; 0: there is none."""


class _Queue(NamedTuple):
    """A group in a queue: offsets of the messages that it has not consumed, and not got."""

    lag: int
    unconsumed: int
    in_flight: int
    ready: int
    waiting: int


class ConsumerLagCalculator:
    """See the module."""

    def __init__(self, sources: LagSources) -> None:
        self._from: Final = sources

    def all_progress(self) -> Iterator[Progress]:
        """Each group that is online in each topic that it subscribes to, and each that pops."""
        for group, is_pop, topic in self._subscriptions():
            yield self._progress(group, topic, topic, is_pop=is_pop)
            if is_pop:
                retry = self._retry_topic(topic, group)
                yield self._progress(group, topic, retry, is_pop=True, is_retry=True)

    def _subscriptions(self) -> Iterator[tuple[str, bool, str]]:
        known = self._from
        popping = known.popping()
        for group in known.consumers.group_names():
            info = known.consumers.find_group(group)
            if info is None or known.is_lite_group(group):
                continue
            is_pop = info.consume_type == ConsumeType.CONSUME_POP
            for topic in list(info.subscriptions):
                if self._is_shown(topic):
                    yield group, is_pop or (group, topic) in popping, topic
        for group, topic in popping:
            if known.consumers.find_group(group) is None and self._is_shown(topic):
                yield group, True, topic

    def _is_shown(self, topic: str) -> bool:
        return self._from.topics.find(topic) is not None and not topic.startswith(
            RETRY_GROUP_TOPIC_PREFIX
        )

    def _retry_topic(self, topic: str, group: str) -> str | None:
        """The topic from which the group gets messages of `topic` again; None before the first."""
        known = self._from
        names = [pop_retry_topic_v1(topic, group)]
        if known.enable_retry_topic_v2:
            older = names if known.retrieve_message_from_pop_retry_topic_v1 else []
            names = [pop_retry_topic_v2(topic, group), *older]
        return next((name for name in names if known.topics.find(name) is not None), None)

    def _progress(
        self, group: str, topic: str, read: str | None, *, is_pop: bool, is_retry: bool = False
    ) -> Progress:
        """read: the topic that is read for `topic`."""
        config = None if read is None else self._from.topics.find(read)
        if read is None or config is None:
            return Progress(group, topic, is_retry)
        lag = in_flight = ready = unconsumed_ms = waiting_ms = 0
        for queue_id in range(config.write_queue_nums):
            low, high = self._from.queues.offsets(read, queue_id)
            if not high:
                continue  # Nothing was ever stored there.
            find = self._popped if is_pop else self._pulled
            queue = find(group, read, queue_id, low, high)
            lag += queue.lag
            in_flight += queue.in_flight
            ready += queue.ready
            if queue.lag:
                stored_ms = self._stored_ms(read, queue_id, max(queue.unconsumed, low), high)
                unconsumed_ms = _older(unconsumed_ms, stored_ms)
            if queue.ready:
                stored_ms = self._stored_ms(read, queue_id, max(queue.waiting, low), high)
                waiting_ms = _older(waiting_ms, stored_ms)
        return Progress(group, topic, is_retry, lag, unconsumed_ms, in_flight, ready, waiting_ms)

    def _pulled(self, group: str, topic: str, queue_id: int, low: int, high: int) -> _Queue:
        offsets = self._from.offsets
        stored = offsets.query_offset(group, topic, queue_id)
        committed = high if stored is None else max(stored, low)
        pulled = offsets.query_pull_offset(group, topic, queue_id)
        in_flight = 0
        if pulled is not None and stored is not None:
            in_flight = max(pulled - committed, 0)
        # What is committed was got, whoever gave it: a slave, or this broker before its start.
        next_pull = high if pulled is None else max(pulled, stored or 0, low)
        return _Queue(
            max(high - committed, 0), committed, in_flight, max(high - next_pull, 0), next_pull
        )

    def _popped(self, group: str, topic: str, queue_id: int, low: int, high: int) -> _Queue:
        decided = self._from.pop_offset(topic, group, queue_id)
        stored = self._from.offsets.query_offset(group, topic, queue_id)
        found = [offset for offset in (decided, stored) if offset is not None]
        next_pop = max(*found, low) if found else high
        in_flight = self._from.pop_in_flight(topic, group, queue_id)
        ready = max(high - next_pop, 0)
        return _Queue(ready + in_flight, next_pop - in_flight, in_flight, ready, next_pop)

    def _stored_ms(self, topic: str, queue_id: int, offset: int, high: int) -> int:
        if offset >= high:
            return 0
        try:
            unit = self._from.queues.unit_at(topic, queue_id, offset)
        except QueueDamagedError:
            # Reported where it was found; the next sample sees it rebuilt.
            unit = None
        return 0 if unit is None else max(self._from.queues.store_timestamp_at(unit[0]), 0)


def _older(one_ms: int, other_ms: int) -> int:
    """The earlier of two times, of which 0 is none."""
    return min(filter(None, (one_ms, other_ms)), default=0)
