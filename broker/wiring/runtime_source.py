"""RuntimeSource: gathers what request 28 shows from the control page, the disks and the counters.

Called by admin threads; reads only. What the numbers are called is
broker/metrics/runtime_info.py's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.metrics.runtime_info import PoolInfo, RuntimeInfo
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.process_resources import ProcessResources
from broker.wiring.routes import END_TRANSACTION_POOL, QUERY_POOL
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide
from conf.compiled_modules import modules_in_use
from ha.control_slots import isolation_text
from remoting.request_executor import RequestExecutor
from store.control_slots import (
    DISPATCHED_OFFSET,
    FENCE_COUNT,
    FENCED_BYTES,
    FLUSHED_OFFSET,
    LIGHT_QUEUES_UNWRITABLE,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from store.disk_space import used_ratio
from store.resync_backups import list_backups


class RuntimeSource:
    """See the module."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        statistics: Statistics,
        messages: MessageServices,
        pools: Mapping[str, RequestExecutor],
    ) -> None:
        """pools: by their names."""
        self._options = resources.options
        self._page = resources.page
        self._clock = resources.clock
        self._store = store
        self._tables = tables
        self._statistics = statistics
        self._messages = messages
        self._pools = pools

    def runtime_info(self) -> RuntimeInfo:
        """The state now."""
        counters, store, broker = self._page.counters, self._options.store, self._options.broker
        append_queue = self._messages.append_queue
        max_phy = counters[MAX_PHY_OFFSET]
        min_phy = counters[MIN_PHY_OFFSET]
        log_paths = store.log_directories.named
        total, free = disk_space(log_paths)
        now_ms, earliest_ms = self._clock.now_ms(), self._store.access.store_timestamp_at(min_phy)
        return RuntimeInfo(
            now_ms=now_ms,
            statistics=self._statistics.store.snapshot(),
            send_pool=PoolInfo(
                size=len(self._messages.waiters) + len(append_queue.held),
                capacity=broker.send_thread_pool_queue_capacity,
                head_wait_ms=append_queue.head_wait_ms(),
            ),
            page_cache_lock_time_ms=append_queue.blocked_ms(),
            pull_pool=PoolInfo(capacity=broker.pull_thread_pool_queue_capacity),
            query_pool=self._pool_info(QUERY_POOL),
            end_transaction_pool=self._pool_info(END_TRANSACTION_POOL),
            dispatch_behind_bytes=max_phy - counters[DISPATCHED_OFFSET],
            start_accept_send_request_timestamp_ms=broker.start_accept_send_request_time_stamp,
            # Java's -1 for an empty log is 56 years of messages to whoever subtracts it from now.
            earliest_message_timestamp_ms=now_ms if earliest_ms < 0 else earliest_ms,
            commit_log_min_offset=min_phy,
            commit_log_max_offset=max_phy,
            commit_log_disk_ratios={str(path): used_ratio(path) for path in log_paths},
            consume_queue_disk_ratio=used_ratio(store.consume_queue_path),
            commit_log_dir_total=total,
            commit_log_dir_free=free,
            remain_flush_bytes=max(max_phy - counters[FLUSHED_OFFSET], 0),
            fenced_ranges=counters[FENCE_COUNT],
            fenced_bytes=counters[FENCED_BYTES],
            light_queues_unwritable=counters[LIGHT_QUEUES_UNWRITABLE],
            schedule_offsets=self._store.schedule_progress(self._tables.schedule_offsets),
            timers=self._messages.timers.info(),
            resync_backups=tuple(backup.name for backup in list_backups(store)),
            compiled_modules=modules_in_use().compiled,
            isolation=isolation_text(counters),
            longest_turn=self._statistics.longest_turns.text(),
        )

    def _pool_info(self, name: str) -> PoolInfo:
        pool = self._pools.get(name)
        if pool is None:
            return PoolInfo()
        return PoolInfo(size=pool.pending, capacity=pool.capacity)


def disk_space(paths: Iterable[Path]) -> tuple[int, int]:
    """(total, free) bytes of the partitions of `paths`, each once; 0 for what is not there."""
    partitions: dict[int, tuple[int, int]] = {}
    for path in paths:
        try:
            found, device = os.statvfs(path), path.stat().st_dev
        except OSError:
            continue
        size = found.f_frsize
        partitions[device] = found.f_blocks * size, found.f_bavail * size
    return (
        sum(total for total, _ in partitions.values()),
        sum(free for _, free in partitions.values()),
    )
