"""BrokerTables: what the broker knows of topics, groups, offsets and clients.

Built once on the main thread of process `remoting`; each table says who may touch it. Those that
live in config/*.json are loaded before the loop turns and saved on the scheduled executor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.client.client_housekeeping_service import ClientHousekeepingService
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.producer_manager import ProducerManager
from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.json_config_manager import JsonConfigManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.startup_options import StartupOptions
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.lost_tables import restore_lost_tables
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor

_PERSIST_FIRST_MS: Final = 10_000


class BrokerTables:
    """See the module. Owned by: BrokerController."""

    def __init__(self, options: StartupOptions, clock: Clock) -> None:
        broker, path = options.broker, options.store.config_path
        self.system_topics: Final = SystemTopics()
        self.topics: Final = TopicConfigManager(
            path / "topics.json", broker, clock, self.system_topics
        )
        self.groups: Final = SubscriptionGroupManager(
            path / "subscriptionGroup.json", broker, clock
        )
        self.offsets: Final = ConsumerOffsetManager(path / "consumerOffset.json")
        self.schedule_offsets: Final = ScheduleOffsetManager(path / "delayOffset.json")
        self.filters: Final = ConsumerFilterManager(path / "consumerFilter.json", broker, clock)
        self.producers: Final = ProducerManager(clock)
        self.consumers: Final = ConsumerManager(
            clock,
            DefaultConsumerIdsChangeListener(
                notify_consumer_ids_changed_enable=broker.notify_consumer_ids_changed_enable,
                filters=self.filters,
            ),
        )
        self.locks: Final = RebalanceLockManager(clock)
        self.housekeeping: Final = ClientHousekeepingService(self.producers, self.consumers)
        self._offsets_interval_ms: Final = broker.flush_consumer_offset_interval
        self._delay_interval_ms: Final = options.store.flush_delay_offset_interval
        self._managers: Final[tuple[JsonConfigManager, ...]] = (
            self.topics,
            self.groups,
            self.offsets,
            self.filters,
        )

    def load(self, executor: ScheduledExecutor) -> None:
        """Read config/*.json; changes are saved on `executor` from now on. Raises what the managers
        raise for files that cannot be read."""
        for manager in (*self._managers, self.schedule_offsets):
            manager.load()
            manager.save_in_background(executor.submit)

    def restore_lost(self, consume_queue_path: Path) -> None:
        """Put back what the recovered store knows of files that were not found (lost_tables.py)."""
        restore_lost_tables(
            consume_queue_path, self.topics, self.groups, self.offsets, self.schedule_offsets
        )

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Look after clients that went away, and save what changed."""
        self.housekeeping.schedule_on(executor)
        executor.schedule(
            "persist",
            self._persist,
            first_delay_ms=_PERSIST_FIRST_MS,
            period_ms=self._offsets_interval_ms,
        )
        executor.schedule(
            "persist-delay-offsets",
            self._persist_delay_offsets,
            first_delay_ms=_PERSIST_FIRST_MS,
            period_ms=self._delay_interval_ms,
        )

    def persist(self) -> None:
        """Save everything that changed."""
        self._persist()
        self._persist_delay_offsets()

    def _persist(self) -> None:
        for manager in self._managers:
            manager.save_if_changed()

    def _persist_delay_offsets(self) -> None:
        self.schedule_offsets.save_if_changed()
