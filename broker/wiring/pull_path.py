"""The path of pulls: what answers them, and what wakes those that wait; built once, on start."""

from __future__ import annotations

from collections.abc import Callable

from broker.append.durability_waiters import DurabilityWaiters
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.metrics.hot_path_stats import HotPathStats
from broker.processor.pull_message_processor import PullMessageProcessor
from broker.store_access.store_follower import StoreFollower
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.processor_settings import pull_settings
from broker.wiring.store_side import StoreSide


def pull_processor(
    resources: ProcessResources,
    store: StoreSide,
    tables: BrokerTables,
    stats: HotPathStats,
    offset_moved: OffsetMovedEvents,
) -> PullMessageProcessor:
    """Codes 11 and 361, with the service that holds pulls."""
    return PullMessageProcessor(
        pull_settings(resources.options, store.memory_limit),
        resources.page,
        store.table,
        store.loop_units,
        store.loop_reader,
        tables.topics.find,
        tables.groups.find_or_create,
        tables.consumers,
        tables.offsets.commit_offset,
        stats,
        resources.clock.monotonic_ms,
        tables.filters,
        offset_moved.add,
    )


def store_follower(
    resources: ProcessResources,
    store: StoreSide,
    pull: PullMessageProcessor,
    waiters: DurabilityWaiters,
    stats: HotPathStats,
    sends_wait_for_file: Callable[[], bool],
) -> StoreFollower:
    """The hooks of the loop's sleep: what the other processes have done meanwhile."""
    return StoreFollower(
        resources.page,
        resources.bells["remoting"],
        store.table,
        store.log,
        waiters,
        pull.hold_service,
        resources.clock,
        replicas_needed=resources.options.ha.in_sync_replicas - 1,
        sends_wait_for_file=sends_wait_for_file,
        publish_counts=stats.publish,
    )
