"""BrokerGauges: the sampled metrics of process `remoting`: tables, pools, clients, consumer lag.

Runs on the scheduled executor of `remoting`, the only writer of these series. A series whose
subject no longer exists is hidden. Series beyond the slot limit are merged under __overflow__:
counts are summed, of ages the maximum is shown. Consumer lag follows ConsumerLagCalculator of
RocketMQ 5.x: it covers groups that are online and the topics that they subscribe to, without retry
topics. A group that never committed an offset for a queue has no lag there. Knows no request.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from broker.client.consumer_manager import ConsumerManager
from broker.client.producer_manager import ProducerManager
from broker.metrics import metrics_table as table
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX, SystemTopics, is_system_group
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from ipc.metric_slots import OVERFLOW, MetricSlots
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.heartbeat import ConsumeType
from remoting.language_code import language_name
from remoting.mq_version import version_name
from store.errors import QueueDamagedError

SAMPLING_MS: Final = 5_000
_PROTOCOL: Final = "remoting"
Labels = tuple[str, ...]


class QueueTimes(Protocol):
    """The part of StoreAccess used here."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) of a queue."""

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tag code) of a message; None if it was deleted."""

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; -1 if it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSources:
    """What is sampled."""

    permission: Callable[[], int]
    """The current brokerPermission."""
    topics: TopicConfigManager
    system_topics: SystemTopics
    groups: SubscriptionGroupManager
    producers: ProducerManager
    consumers: ConsumerManager
    offsets: ConsumerOffsetManager
    queues: QueueTimes
    waiting: Callable[[], Mapping[str, int]]
    """Queued requests, by pool."""


class BrokerGauges:
    """See the module. Owned by: the scheduled executor."""

    def __init__(self, slots: MetricSlots, sources: GaugeSources, clock: Clock) -> None:
        self._slots = slots
        self._from = sources
        self._clock = clock

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Start sampling."""
        executor.schedule(
            "metrics-gauges", self.sample, first_delay_ms=1_000, period_ms=SAMPLING_MS
        )

    def sample(self) -> None:
        """Runs every 5 s."""
        known = self._from
        self._set(table.BROKER_PERMISSION, {(): known.permission()})
        self._set(table.TOPIC_NUMBER, {(): len(known.topics.topic_names())})
        self._set(table.CONSUMER_GROUP_NUMBER, {(): len(known.groups.group_names())})
        waiting: dict[Labels, float] = {(name,): count for name, count in known.waiting().items()}
        self._set(table.PROCESSOR_WATERMARK, waiting)
        self._set(table.PRODUCER_CONNECTIONS, self._producer_connections())
        self._set(table.CONSUMER_CONNECTIONS, self._consumer_connections())
        self._sample_lag()

    def _set(
        self,
        metric: table.Metric,
        found: Mapping[Labels, float],
        merge: Callable[[float, float], float] = operator.add,
    ) -> None:
        """Replace the series of `metric`. `merge` combines two values that go into __overflow__."""
        slots = self._slots
        overflow = (OVERFLOW,) * len(metric.labels)
        for labels in slots.series(metric.name).keys() - found.keys() - {overflow}:
            slots.hide(metric.name, labels)
        values: dict[int, float] = {}
        for labels, value in found.items():
            slot = slots.find(metric.name, labels)
            values[slot] = merge(values[slot], value) if slot in values else value
        for slot, value in values.items():
            slots.values[slot] = value
        if slots.series(metric.name).get(overflow) not in values:
            slots.hide(metric.name, overflow, is_gauge=True)

    def _producer_connections(self) -> Counter[Labels]:
        return Counter(
            (language_name(info.language).lower(), version_name(info.version).lower(), _PROTOCOL)
            for infos in self._from.producers.all_groups().values()
            for info in infos
        )

    def _consumer_connections(self) -> Counter[Labels]:
        found: Counter[Labels] = Counter()
        for group in self._from.consumers.group_names():
            info = self._from.consumers.find_group(group)
            if info is None:
                continue
            mode = _UNKNOWN if info.consume_type is None else _MODES[info.consume_type]
            system = table.flag(is_system_group(group))
            for member in info.infos():
                language = language_name(member.language).lower()
                version = version_name(member.version).lower()
                found[group, language, version, mode, _PROTOCOL, system] += 1
        return found

    # -- consumer lag --------------------------------------------------------------------------

    def _sample_lag(self) -> None:
        messages: dict[Labels, float] = {}
        ages_ms: dict[Labels, float] = {}
        now_ms = self._clock.now_ms()
        for group, topic, queues in self._subscriptions():
            system = self._from.system_topics.is_system_topic(topic) or is_system_group(group)
            labels = (group, topic, "false", table.flag(system))
            behind, oldest_ms = self._lag(group, topic, queues)
            messages[labels] = behind
            ages_ms[labels] = max(now_ms - oldest_ms, 0) if oldest_ms > 0 else 0
        self._set(table.CONSUMER_LAG_MESSAGES, messages)
        self._set(table.CONSUMER_LAG_LATENCY, ages_ms, max)

    def _subscriptions(self) -> Iterator[tuple[str, str, int]]:
        """(group, topic, number of queues) of every online group."""
        for group in self._from.consumers.group_names():
            info = self._from.consumers.find_group(group)
            for topic in list(info.subscriptions) if info is not None else ():
                config = self._from.topics.find(topic)
                if config is not None and not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                    yield group, topic, config.write_queue_nums

    def _lag(self, group: str, topic: str, queues: int) -> tuple[int, int]:
        """Number of unconsumed messages, and when the oldest of them was stored (ms; 0 if none)."""
        committed = self._from.offsets.query_offsets(group, topic)
        behind, oldest_ms = 0, 0
        for queue_id in range(queues):
            low, high = self._from.queues.offsets(topic, queue_id)
            offset = max(committed.get(queue_id, high), low)
            if offset >= high:
                continue
            behind += high - offset
            try:
                unit = self._from.queues.unit_at(topic, queue_id, offset)
            except QueueDamagedError:
                # Reported where it was found; the next sample sees it rebuilt.
                unit = None
            stored_ms = 0 if unit is None else self._from.queues.store_timestamp_at(unit[0])
            if stored_ms > 0 and (not oldest_ms or stored_ms < oldest_ms):
                oldest_ms = stored_ms
        return behind, oldest_ms


_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_UNKNOWN: Final = "unknown"
