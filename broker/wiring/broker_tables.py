"""BrokerTables: what the broker knows of topics, groups, offsets and clients.

Built once on the main thread of process `remoting`; each table says who may touch it. Those that
live in config/*.json are loaded before the loop turns and saved on the scheduled executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from broker.client.client_housekeeping_service import ClientHousekeepingService
from broker.client.connected_clients import ConnectedClients
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.known_heartbeats import KnownHeartbeats
from broker.client.producer_manager import ProducerManager
from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.json_config_manager import JsonConfigManager
from broker.offset.broadcast_offset_manager import SCAN_INTERVAL_MS, BroadcastOffsetManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.pop_names import REVIVE_GROUP
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.startup_options import StartupOptions
from broker.subscription.lmq_subscription_group_manager import LmqSubscriptionGroupManager
from broker.subscription.message_request_mode_manager import MessageRequestModeManager
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.lmq_topic_config_manager import LmqTopicConfigManager
from broker.topic.system_topics import SCHEDULE_TOPIC, SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from broker.transaction.transaction_records import TRANSACTION_GROUP
from broker.wiring.lost_tables import (
    restore_lacking_topics,
    restore_lost_tables,
    stored_queues,
)
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.lite_names import is_lite_queue
from store.resync_request import find_done

log = logging.getLogger(__name__)

OWN_GROUPS: Final = (TRANSACTION_GROUP, REVIVE_GROUP)
"""Groups whose offsets say how far the broker itself is: no client commits them."""


def _offset_manager(directory: Path, *, lmq: bool) -> ConsumerOffsetManager:
    ordinary = directory / "consumerOffset.json"
    if not lmq:
        return ConsumerOffsetManager(ordinary, OWN_GROUPS)
    return LmqConsumerOffsetManager(directory / "lmqConsumerOffset.json", ordinary, OWN_GROUPS)


class BrokerTables:
    """See the module. Owned by: BrokerController."""

    def __init__(self, options: StartupOptions, clock: Clock) -> None:
        broker, path = options.broker, options.store.config_path
        self._batch_consume_queue_path: Final = options.store.batch_consume_queue_path
        self.system_topics: Final = SystemTopics()
        lmq = options.store.enable_lmq
        self.topics: Final = (LmqTopicConfigManager if lmq else TopicConfigManager)(
            path / "topics.json",
            broker,
            clock,
            self.system_topics,
            writes_v2=options.store.auto_message_version_on_topic_len,
        )
        self.mappings: Final = TopicQueueMappingManager(
            path / "topicQueueMapping.json", broker.broker_name, clock
        )
        self.groups: Final = (LmqSubscriptionGroupManager if lmq else SubscriptionGroupManager)(
            path / "subscriptionGroup.json", broker, clock
        )
        self.offsets: Final = _offset_manager(path, lmq=lmq)
        self.schedule_offsets: Final = ScheduleOffsetManager(path / "delayOffset.json")
        self.filters: Final = ConsumerFilterManager(path / "consumerFilter.json", broker, clock)
        self.order_info: Final = ConsumerOrderInfoManager(
            path / "consumerOrderInfo.json", clock, self.topics.find, self.groups.find
        )
        self.request_modes: Final = MessageRequestModeManager(path / "messageRequestMode.json")
        self.producers: Final = ProducerManager(clock)
        self.consumers: Final = ConsumerManager(
            clock,
            DefaultConsumerIdsChangeListener(
                notify_consumer_ids_changed_enable=broker.notify_consumer_ids_changed_enable,
                filters=self.filters,
            ),
        )
        self.locks: Final = RebalanceLockManager(clock)
        self.clients: Final = ConnectedClients(
            self.producers, self.consumers, KnownHeartbeats(self.consumers, self.producers)
        )
        self.housekeeping: Final = ClientHousekeepingService(self.clients)
        self.broadcast: Final = BroadcastOffsetManager(
            self.offsets,
            lambda group, client_id: self.consumers.find_member(group, client_id) is not None,
            clock,
            expire_ms=broker.broadcast_offset_expire_second * 1000,
            expire_max_ms=broker.broadcast_offset_expire_max_second * 1000,
        )
        self._offsets_interval_ms: Final = broker.flush_consumer_offset_interval
        self._delay_interval_ms: Final = options.store.flush_delay_offset_interval
        self._managers: Final[tuple[JsonConfigManager, ...]] = (
            self.topics,
            self.mappings,
            self.groups,
            self.offsets,
            self.filters,
            self.order_info,
            self.request_modes,
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
            consume_queue_path,
            self._batch_consume_queue_path,
            self.topics,
            self.groups,
            self.offsets,
            self.schedule_offsets,
        )

    def restore_lacking(self, queues: Mapping[str, int]) -> None:
        """At the start of a master: put back topics that their table lacks. queues: of how many
        queues of a topic the store has messages."""
        batch_topics = stored_queues(self._batch_consume_queue_path)
        restore_lacking_topics(self.topics, queues, batch_topics)

    def limit_to_cut(self, root: Path, queue_ends: Callable[[str, int], int]) -> None:
        """In controller mode, before anybody writes: where the log was cut, or begun anew, nothing
        points behind what stayed. This broker may lead before it has copied its master's tables,
        and what others wrote in place of what was cut off would be passed over.

        root: of the store, where a cut leaves its mark until the tables are copied.
        """
        if find_done(root) is None:
            return
        self.limit_to(queue_ends)
        for level, offset in self.schedule_offsets.offsets().items():
            end = queue_ends(SCHEDULE_TOPIC, level - 1)
            if offset > end:
                log.warning("delay level %s: offset %s, end %s", level, offset, end)
                self.schedule_offsets.update_offset(level, end)
        self.schedule_offsets.save_if_changed()

    def limit_to(self, queue_ends: Callable[[str, int], int | None]) -> None:
        """A start as a master: nothing points behind its queue's end. Saved at once: after a kill
        the queue may be longer, and the old offset points behind messages that nobody has had."""

        def end(topic: str, queue_id: int) -> int | None:
            # A lite topic whose first messages were lost begins anew: nobody looks at what comes
            # before a group's offset.
            found = queue_ends(topic, queue_id)
            return 0 if found is None and is_lite_queue(topic) else found

        self.offsets.limit_to(end)
        self.offsets.save_if_changed()
        self.order_info.limit_to(queue_ends)
        self.order_info.save_if_changed()

    def begin_epoch(self, master_epoch: int) -> None:
        """This broker leads in this epoch: name servers and slaves see it in the versions of the
        tables, by which a name server tells the newer of two masters."""
        self.topics.bump_data_version(master_epoch)
        self.mappings.bump_data_version(master_epoch)
        self.groups.bump_data_version(master_epoch)
        self.offsets.state_version = master_epoch

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Look after clients that went away, and save what changed. (RocketMQ saves first after
        10 s, whatever the interval: a second kill until then would cost as much.)"""
        self.housekeeping.schedule_on(executor)
        executor.schedule(
            "broadcast-offsets",
            self.broadcast.scan,
            first_delay_ms=SCAN_INTERVAL_MS,
            period_ms=SCAN_INTERVAL_MS,
        )
        executor.schedule(
            "persist",
            self._persist,
            first_delay_ms=self._offsets_interval_ms,
            period_ms=self._offsets_interval_ms,
        )
        executor.schedule(
            "persist-delay-offsets",
            self._persist_delay_offsets,
            first_delay_ms=self._delay_interval_ms,
            period_ms=self._delay_interval_ms,
        )

    def persist(self) -> bool:
        """Save everything that changed; whether the groups' offsets are saved now."""
        self._persist()
        self._persist_delay_offsets()
        return self.offsets.save_if_changed()

    def _persist(self) -> None:
        for manager in self._managers:
            manager.save_if_changed()

    def _persist_delay_offsets(self) -> None:
        self.schedule_offsets.save_if_changed()
