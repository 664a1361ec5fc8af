"""Whether this broker should get requests now: what /readyz and rocketmq_ready say, and why.

Pure, any thread of the supervisor: control page and children as they are now. A `store` that is
away for a moment is no reason: sends go into files that it has made ahead, and it comes back
within a second or two. It knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.settings.startup_options import StartupOptions
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.supervisor import ChildState
from ipc.control_page import ControlPage, ProcessIndex
from store.control_slots import STORE_STATE, StoreState

REMOTING_SILENT_MS: Final = 3_000
"""Its loop beats five times a second: no request has been answered since."""
STORE_SILENT_MS: Final = 5_000
"""As long as a send waits for its flush (syncFlushTimeout); a restart takes less."""


def replicas_needed(options: StartupOptions) -> int:
    """How many replicas in sync make the broker ready: as many as a SYNC_MASTER's sends wait for,
    at least one. None on a slave, as one file may serve both."""
    if options.store.is_slave or not options.supervisor.ready_needs_replicas:
        return 0
    return max(options.ha.in_sync_replicas - 1, 1)


def ready_reason(
    page: ControlPage,
    children: Iterable[ChildState],
    now_ms: int,
    *,
    replicas: int = 0,
    replicas_needed: int = 0,
) -> str:
    """Why this broker should get no requests now; empty when it is ready. now_ms: monotonic."""
    counters = page.counters
    by_index = {child.spec.index: child for child in children}
    remoting, store = by_index[ProcessIndex.REMOTING], by_index[ProcessIndex.STORE]
    if counters[STORE_STATE] != StoreState.READY:
        return "the store is not ready"
    if remoting.process is None or not counters[REMOTING_READY]:
        return "remoting is not ready"
    for child, patience_ms in ((remoting, REMOTING_SILENT_MS), (store, STORE_SILENT_MS)):
        if _silent_ms(child, page, now_ms) > patience_ms:
            return f"process {child.spec.name} {_trouble(child)}"
    if refusal := page.refusal():
        return f"the store refuses writes: {refusal}"
    if replicas < replicas_needed:
        return f"{replicas} of {replicas_needed} replicas in sync (readyNeedsReplicas)"
    return ""


def _trouble(child: ChildState) -> str:
    """What a process does whose beat is not seen."""
    if child.process is None:
        return "is down"
    return "hangs" if child.has_beaten else "is starting"


def _silent_ms(child: ChildState, page: ControlPage, now_ms: int) -> int:
    """Time since the supervisor saw it beat or started it; 0 when it has beaten since."""
    if child.process is not None and page.beats(child.spec.index) != child.last_beat:
        return 0
    return now_ms - child.beat_at_ms
