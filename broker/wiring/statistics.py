"""Statistics: everything that process `remoting` counts, put together.

RocketMQ's own statistics (BrokerStatsManager, StoreStatsService, BrokerStats), the shared slots of
/metrics, and the one object that the paths of messages count into. Built once on the main thread;
who counts where is said in each module of broker/metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from broker.lite.lite_metadata_util import find_lite_group
from broker.metrics.broker_gauges import BrokerGauges, GaugeSources
from broker.metrics.broker_stats_manager import BrokerStats, BrokerStatsManager
from broker.metrics.consumer_lag_calculator import ConsumerLagCalculator, LagSources, LiteProgress
from broker.metrics.group_lag_times import GroupLagSources, GroupLagTimes
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.longest_turns import LongestTurns
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.metrics.store_stats_service import StoreStatsService
from broker.metrics.timer_gauges import TimerGauges
from broker.metrics.transaction_gauges import TransactionGauges
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from ipc.scheduled_executor import ScheduledExecutor

if TYPE_CHECKING:  # What pops counts here.
    from broker.wiring.pop_path import PopPath
    from broker.wiring.pop_services import PopServices


class Statistics:
    """See the module. Owned by: BrokerController."""

    def __init__(self, resources: ProcessResources, tables: BrokerTables) -> None:
        broker = resources.options.broker
        self._resources: Final = resources
        self._tables: Final = tables
        self.manager: Final = BrokerStatsManager(
            resources.clock,
            broker.broker_cluster_name,
            enable_detail_stat=broker.enable_detail_stat,
            joins_lmq=resources.options.store.enable_lmq and not broker.enable_lmq_stats,
        )
        self.store: Final = StoreStatsService(resources.clock)
        self.remoting: Final = RemotingMetrics(
            resources.metric_slots, tables.system_topics, resources.kept_sends
        )
        self.hot_path: Final = HotPathStats(self.manager, self.store, self.remoting)
        self.longest_turns: Final = LongestTurns(resources.metric_slots)
        self.totals: Final = BrokerStats(
            lambda: self.store.put_times, lambda: self.store.get_transferred
        )

    def schedule_on(
        self,
        executor: ScheduledExecutor,
        store: StoreSide,
        permission: Callable[[], int],
        waiting: Callable[[], Mapping[str, int]],
        pop: PopServices,
    ) -> None:
        """Begin to sample. permission: brokerPermission now; waiting: requests that wait, by
        processor."""
        self.manager.schedule_on(executor)
        self.store.schedule_on(executor)
        lags = ConsumerLagCalculator(self._lag_sources(store, pop.path))
        lite_lags = pop.lite.lags.all_progress
        self._gauges(lags, lite_lags, permission, waiting).schedule_on(executor)
        resources = self._resources
        self._group_lags(store, pop.path).schedule_on(executor)
        TransactionGauges(
            resources.metric_slots,
            self.remoting.transactions.waiting,
            self._tables.topics,
            resources.clock,
        ).schedule_on(executor)
        if resources.options.store.timer_wheel_enable:
            TimerGauges(
                resources.metric_slots, resources.page, store.access, resources.clock
            ).schedule_on(executor)
        self.totals.schedule_on(executor, self._resources.clock.now_ms())

    def _lag_sources(self, store: StoreSide, pop: PopPath) -> LagSources:
        tables, broker = self._tables, self._resources.options.broker
        return LagSources(
            topics=tables.topics,
            consumers=tables.consumers,
            is_lite_group=lambda group: find_lite_group(tables.groups.find(group)) is not None,
            offsets=tables.offsets,
            queues=store.access,
            pop_offset=pop.buffer.latest_offset,
            pop_in_flight=pop.inflight.count,
            popping=pop.buffer.popping,
            enable_retry_topic_v2=broker.enable_retry_topic_v2,
            retrieve_message_from_pop_retry_topic_v1=broker.retrieve_message_from_pop_retry_topic_v1,
        )

    def _group_lags(self, store: StoreSide, pop: PopPath) -> GroupLagTimes:
        sources = GroupLagSources(
            names=self._resources.options.supervisor.metrics_dump_groups,
            offsets=self._tables.offsets,
            queues=store.access,
            pop_offset=pop.buffer.latest_offset,
        )
        return GroupLagTimes(self._resources.metric_slots, sources, self._resources.clock)

    def _gauges(
        self,
        lags: ConsumerLagCalculator,
        lite_lags: Callable[[], Iterable[LiteProgress]],
        permission: Callable[[], int],
        waiting: Callable[[], Mapping[str, int]],
    ) -> BrokerGauges:
        tables = self._tables
        sources = GaugeSources(
            permission=permission,
            topics=tables.topics,
            system_topics=tables.system_topics,
            groups=tables.groups,
            producers=tables.producers,
            consumers=tables.consumers,
            lags=lags,
            lite_lags=lite_lags,
            waiting=waiting,
        )
        return BrokerGauges(self._resources.metric_slots, sources, self._resources.clock)

    def hide_gone(self) -> None:
        """Show no more what belongs to deleted topics and groups. Loop thread."""
        tables = self._tables
        self.hot_path.hide_gone(set(tables.topics.topic_names()), set(tables.groups.group_names()))
