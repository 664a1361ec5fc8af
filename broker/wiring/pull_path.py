"""The path of pulls: what answers them, and what wakes those that wait; built once, on start."""

from __future__ import annotations

from collections.abc import Callable

from broker.append.durability_waiters import DurabilityWaiters
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.longpolling.notify_message_arriving_listener import HeldRequests
from broker.metrics.hot_path_stats import HotPathStats
from broker.processor.held_rights import HoldRights
from broker.pull.batch_pull import BatchPull
from broker.pull.cold_pulls import ColdPulls
from broker.pull.compaction_pull import CompactionPull
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.pull.pull_parts import PullParts
from broker.pull.pull_start import PullStart
from broker.store_access.durability_follower import DurabilityFollower
from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.store_follower import StoreFollower
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.processor_settings import pull_settings
from broker.wiring.store_side import StoreSide
from store.compaction.compaction_reader import CompactionReader
from store.control_slots import MAX_PHY_OFFSET
from store.stored_units import CQ_UNIT


def pull_processor(
    resources: ProcessResources,
    store: StoreSide,
    tables: BrokerTables,
    stats: HotPathStats,
    offset_moved: OffsetMovedEvents,
    cold: ColdPulls,
    pages: PagesAhead,
    hold_rights: HoldRights,
) -> PullMessageProcessor:
    """Codes 11 and 361, with the service that holds pulls."""
    parts = PullParts(
        page=resources.page,
        table=store.table,
        units=store.loop_units,
        log_reader=store.loop_reader,
        find_topic=tables.topics.find,
        find_group=tables.groups.find_or_create,
        is_readable=tables.groups.is_readable,
        consumers=tables.consumers,
        filters=tables.filters,
        commit_offset=tables.offsets.commit_offset,
        note_pull=tables.offsets.commit_pull_offset,
        note_moved=offset_moved.add,
        stats=stats,
        monotonic_ms=resources.clock.monotonic_ms,
        start=_pull_start(resources, store, tables),
        static_topics=tables.mappings.table,
        cold=cold,
        compaction=_compaction_pull(resources, store, tables),
        batch=BatchPull(store.batch_queues, store.loop_reader),
        pages=pages,
        hold_rights=hold_rights,
    )
    return PullMessageProcessor(pull_settings(resources.options, store.memory_limit), parts)


def _compaction_pull(
    resources: ProcessResources, store: StoreSide, tables: BrokerTables
) -> CompactionPull | None:
    config = resources.options.store
    if not config.enable_compaction:
        return None
    reader = CompactionReader(config, store.table)
    return CompactionPull(reader, store.table, tables.topics.is_compaction_topic)


def _pull_start(resources: ProcessResources, store: StoreSide, tables: BrokerTables) -> PullStart:
    broker = resources.options.broker
    # A broker whose role may change needs them when it leads.
    may_lead = resources.role.changes or not resources.role.is_slave
    follows = broker.enable_broadcast_offset_store and may_lead

    def is_in_memory(phy_offset: int) -> bool:
        return resources.page.counters[MAX_PHY_OFFSET] - phy_offset <= store.memory_limit

    def first_offset(topic: str, queue_id: int) -> int:
        """0 while the first message is in memory, else the queue's end."""
        low, high = store.table.offsets(topic, queue_id)
        if store.batch_queues.hold(topic):
            units = store.batch_queues.read(topic, queue_id, 0, 1, high) if low == 0 < high else []
            return 0 if units and is_in_memory(units[0].phy_offset) else high
        raw = store.loop_units.read(topic, queue_id, 0, 1, high) if low == 0 < high else b""
        return 0 if raw and is_in_memory(CQ_UNIT.unpack_from(raw)[0]) else high

    tables.offsets.stores_resets = broker.use_server_side_reset_offset
    return PullStart(
        tables.consumers,
        first_offset,
        take_reset=tables.offsets.take_reset_offset,
        tells_resets=broker.use_server_side_reset_offset,
        broadcast=tables.broadcast if follows else None,
    )


def store_follower(
    resources: ProcessResources,
    store: StoreSide,
    held: HeldRequests,
    waiters: DurabilityWaiters,
    stats: HotPathStats,
    sends_wait_for_file: Callable[[], bool],
    now_ms: Callable[[], int],
) -> StoreFollower:
    """The hooks of the loop's sleep: what the other processes have done meanwhile."""
    log = store.log

    def begin_turn() -> None:
        log.now_ms = now_ms()

    return StoreFollower(
        resources.page,
        resources.bells["remoting"],
        store.table,
        held,
        DurabilityFollower(
            resources.page,
            waiters,
            resources.clock,
            # In controller mode process `ha` knows how many: those of the in-sync set.
            replicas_needed=(
                0 if resources.role.changes else resources.options.ha.in_sync_replicas - 1
            ),
            sends_wait_for_file=sends_wait_for_file,
        ),
        resources.clock,
        begin_turn=begin_turn,
        publish_counts=stats.publish,
    )
