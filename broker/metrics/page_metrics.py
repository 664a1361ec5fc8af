"""The metrics that the control page alone tells: offsets, damage, repairs, refusals, copies' ages.

Any thread of any process: the supervisor shows them at /metrics, process `remoting` in answers to
28913. Reads memory only.

Tested by tests/broker/metrics/test_metrics_collector.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.metrics import metrics_table as table
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from ha.control_slots import HA_REFUSALS, REPLICATED_OFFSET
from ha.refusals import RefusalReason
from ipc.clock import Clock
from remoting.metrics.metric import Metric, Rows
from store.compaction.compaction_slots import (
    COMPACTION_BEHIND,
    COMPACTION_BYTES_AFTER,
    COMPACTION_BYTES_BEFORE,
    COMPACTION_ENDED_MS,
    COMPACTION_KEYLESS,
    COMPACTION_LOGS,
    COMPACTIONS,
    COMPACTIONS_FAILED,
)
from store.control_slots import (
    CHANGED_CHUNKS,
    DIFFERING_CHUNKS,
    DISPATCHED_OFFSET,
    EMERGENCY_BYTES,
    FENCE_COUNT,
    FENCED_BYTES,
    FLUSHED_OFFSET,
    LIGHT_QUEUES_UNWRITABLE,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    PUT_ASIDE,
    PUT_OFF,
    QUEUE_UNITS_LOST,
    QUEUE_UNITS_REBUILT,
    QUEUES_REBUILDING,
    RECORDS_LEFT_OUT,
    REPAIRED_RANGES,
    RUNNING_FLAGS,
    SCRUB_DAMAGED_RANGES,
    SCRUB_PASS_ENDED_MS,
    SCRUBBED_BYTES,
    PutOffBy,
)
from store.put_aside import ReadBy
from store.running_flags import RunningFlag

_OFFSETS: Final = {
    "min": MIN_PHY_OFFSET,
    "max": MAX_PHY_OFFSET,
    "dispatched": DISPATCHED_OFFSET,
    "flushed": FLUSHED_OFFSET,
    "replicated": REPLICATED_OFFSET,
}
_SLOTS: Final = {
    table.STORE_EMERGENCY_SPACE: EMERGENCY_BYTES,
    table.STORE_FENCED_RANGES: FENCE_COUNT,
    table.STORE_FENCED_BYTES: FENCED_BYTES,
    table.STORE_SCRUBBED: SCRUBBED_BYTES,
    table.STORE_SCRUB_DAMAGE: SCRUB_DAMAGED_RANGES,
    table.STORE_REPAIRED: REPAIRED_RANGES,
    table.STORE_CHANGED_CHUNKS: CHANGED_CHUNKS,
    table.STORE_DIFFERING_CHUNKS: DIFFERING_CHUNKS,
    table.QUEUES_REBUILDING: QUEUES_REBUILDING,
    table.QUEUE_UNITS_REBUILT: QUEUE_UNITS_REBUILT,
    table.QUEUE_UNITS_LOST: QUEUE_UNITS_LOST,
    table.LIGHT_QUEUES_UNWRITABLE: LIGHT_QUEUES_UNWRITABLE,
    table.RECORDS_LEFT_OUT: RECORDS_LEFT_OUT,
    table.COMPACTION_LOGS: COMPACTION_LOGS,
    table.COMPACTION_READ: COMPACTION_BYTES_BEFORE,
    table.COMPACTION_KEPT: COMPACTION_BYTES_AFTER,
    table.COMPACTION_BEHIND: COMPACTION_BEHIND,
    table.COMPACTION_KEYLESS: COMPACTION_KEYLESS,
}
"""Metrics that are the number in one slot."""


def page_sources(counters: memoryview[int], clock: Clock) -> dict[Metric, Callable[[], Rows]]:
    """Each of these metrics and how its rows are read."""

    def one_of(slot: int) -> Callable[[], Rows]:
        return lambda: _one(counters[slot])

    return {
        **{metric: one_of(slot) for metric, slot in _SLOTS.items()},
        table.STORE_OFFSET: lambda: [
            ((kind,), [float(counters[slot])]) for kind, slot in _OFFSETS.items()
        ],
        table.STORE_WRITABLE: lambda: _one(0 if counters[RUNNING_FLAGS] else 1),
        table.STORE_DISK_FULL: lambda: _one(bool(counters[RUNNING_FLAGS] & RunningFlag.DISK_FULL)),
        table.STORE_SCRUB_PASS: lambda: _time(counters[SCRUB_PASS_ENDED_MS]),
        table.COMPACTIONS: lambda: [
            (("ok",), [counters[COMPACTIONS]]),
            (("failed",), [counters[COMPACTIONS_FAILED]]),
        ],
        table.COMPACTION_END: lambda: _time(counters[COMPACTION_ENDED_MS]),
        table.STORAGE_FLUSH_BEHIND: lambda: _behind(counters, FLUSHED_OFFSET),
        table.STORAGE_DISPATCH_BEHIND: lambda: _behind(counters, DISPATCHED_OFFSET),
        table.RECORDS_PUT_ASIDE: lambda: [
            ((by.label,), [float(counters[PUT_ASIDE + by])]) for by in ReadBy
        ],
        table.MESSAGES_PUT_OFF: lambda: [
            ((by.label,), [float(counters[PUT_OFF + by])]) for by in PutOffBy
        ],
        table.HA_LINKS_REFUSED: lambda: [
            ((reason.name.lower(),), [float(counters[HA_REFUSALS + reason])])
            for reason in RefusalReason
        ],
        table.SLAVE_SYNC_AGE: lambda: _sync_age(counters, clock.now_ms()),
        table.SLAVE_SYNC_FAILURES: lambda: [
            ((kind.label,), [float(counters[SLAVE_SYNC_FAILURES + kind])]) for kind in SyncKind
        ],
    }


def _behind(counters: memoryview[int], slot: int) -> Rows:
    # Read the follower first: it may advance in between, but not beyond the value read next.
    reached = counters[slot]
    return [(table.STORAGE, [float(max(0, counters[MAX_PHY_OFFSET] - reached))])]


def _sync_age(counters: memoryview[int], now_ms: int) -> Rows:
    """On a slave only; a kind has no age before its first success."""
    last = ((kind.label, counters[SLAVE_SYNC_SUCCESS + kind]) for kind in SyncKind)
    return [((name,), [max(0, now_ms - last_ms) / 1000]) for name, last_ms in last if last_ms]


def _time(wall_clock_ms: int) -> Rows:
    """In seconds; nothing while it is 0."""
    return _one(wall_clock_ms / 1000) if wall_clock_ms else []


def _one(value: float) -> Rows:
    return [((), [float(value)])]
