"""Readiness: whether this broker should receive requests now (/readyz, rocketmq_ready), and why
not.

Pure, any thread of the supervisor: evaluates the current control page and children. A short outage
of `store` does not matter: sends go to files that it has created ahead, and it is restarted within
a second or two. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.settings.startup_options import StartupOptions
from broker.supervisor.child_state import ChildState
from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import isolation_text
from ipc.control_page import ControlPage, ProcessIndex
from store.control_slots import STORE_STATE, StoreState, write_refusal

REMOTING_SILENT_MS: Final = 3_000
"""The loop of `remoting` beats twice a second; without a beat it has not answered requests."""
STORE_SILENT_MS: Final = 5_000
"""As long as a send waits for its flush (syncFlushTimeout); a restart is faster."""


def replicas_needed(options: StartupOptions) -> int:
    """Number of in-sync replicas required for readiness: as many as a SYNC_MASTER's sends wait for,
    at least one. 0 on a slave, since both roles may share a settings file."""
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
    """Why this broker is not ready; empty if it is. now_ms: monotonic."""
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
    if isolation := isolation_text(counters):
        return isolation
    if refusal := write_refusal(page):
        return f"the store rejects writes: {refusal}"
    if replicas < replicas_needed:
        return f"{replicas} of {replicas_needed} replicas in sync (readyNeedsReplicas)"
    return ""


def _trouble(child: ChildState) -> str:
    """The state of a process without a heartbeat."""
    if child.process is None:
        return "is down"
    return "hangs" if child.has_beaten else "is starting"


def _silent_ms(child: ChildState, page: ControlPage, now_ms: int) -> int:
    """Time since the process's last observed beat or its start; 0 if it has beaten since then."""
    if child.process is not None and page.beats(child.spec.index) != child.last_beat:
        return 0
    return now_ms - child.beat_at_ms
