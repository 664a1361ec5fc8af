"""BrokerGauges: the sampled metrics of process `remoting`: tables, pools, clients, consumer lag.

Runs on the scheduled executor of `remoting`, the only writer of these series. A series whose
subject no longer exists is hidden. Series beyond the slot limit are merged under __overflow__:
counts are summed, of ages the maximum is shown (gauge_series.py). Consumer lag is
consumer_lag_calculator.py's. Knows no request.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.client.consumer_manager import ConsumerManager
from broker.client.producer_manager import ProducerManager
from broker.metrics import metrics_table as table
from broker.metrics.consumer_lag_calculator import ConsumerLagCalculator, LiteProgress
from broker.metrics.gauge_series import Labels, set_series
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import SystemTopics, is_system_group
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from ipc.metric_slots import MetricSlots
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.heartbeat import ConsumeType
from remoting.language_code import language_name
from remoting.metrics.metric import Metric
from remoting.mq_version import version_name

SAMPLING_MS: Final = 5_000
_PROTOCOL: Final = "remoting"


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
    lags: ConsumerLagCalculator
    lite_lags: Callable[[], Iterable[LiteProgress]]
    """Of lite groups, as far as they are to be shown."""
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
        metric: Metric,
        found: Mapping[Labels, float],
        merge: Callable[[float, float], float] = operator.add,
    ) -> None:
        set_series(self._slots, metric, found, merge)

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
        found: dict[Metric, dict[Labels, float]] = {
            metric: {} for metric in (*_LAG_COUNTS, *_LAG_AGES)
        }
        now_ms = self._clock.now_ms()
        for each in self._from.lags.all_progress():
            labels = self._labels(each.group, each.topic, is_retry=each.is_retry)
            for metric, count in zip(
                _LAG_COUNTS, (each.lag, each.in_flight, each.ready), strict=True
            ):
                found[metric][labels] = count
            times_ms = (each.unconsumed_since_ms, each.waiting_since_ms)
            for metric, since_ms in zip(_LAG_AGES, times_ms, strict=True):
                found[metric][labels] = _age_ms(now_ms, since_ms)
        self._add_lite(found, now_ms)
        for metric in _LAG_COUNTS:
            self._set(metric, found[metric])
        for metric in _LAG_AGES:
            self._set(metric, found[metric], max)

    def _add_lite(self, found: dict[Metric, dict[Labels, float]], now_ms: int) -> None:
        """RocketMQ shows the same figure of messages not consumed and of those not got."""
        for each in self._from.lite_lags():
            labels = self._labels(each.group, each.topic)
            if each.lag is not None:
                found[table.CONSUMER_LAG_MESSAGES][labels] = each.lag
                found[table.CONSUMER_READY_MESSAGES][labels] = each.lag
            if each.unconsumed_since_ms is not None:
                age_ms = _age_ms(now_ms, each.unconsumed_since_ms)
                found[table.CONSUMER_LAG_LATENCY][labels] = age_ms

    def _labels(self, group: str, topic: str, *, is_retry: bool = False) -> Labels:
        system = self._from.system_topics.is_system_topic(topic) or is_system_group(group)
        return group, topic, table.flag(is_retry), table.flag(system)


def _age_ms(now_ms: int, since_ms: int) -> int:
    return max(now_ms - since_ms, 0) if since_ms else 0


_LAG_COUNTS: Final = (
    table.CONSUMER_LAG_MESSAGES,
    table.CONSUMER_INFLIGHT_MESSAGES,
    table.CONSUMER_READY_MESSAGES,
)
_LAG_AGES: Final = (table.CONSUMER_LAG_LATENCY, table.CONSUMER_QUEUEING_LATENCY)
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_UNKNOWN: Final = "unknown"
