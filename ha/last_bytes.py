"""wait_for_last_bytes: an orderly stop of a master leaves nothing behind.

Run by whoever stops process `ha`, after the log's writer has stopped. It stops nothing itself.

Tested by tests/ha/test_ha_service.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ha.replica_registry import ReplicaRegistry
from ha.slave_progress import ReplicaState, SlaveProgress
from ipc.clock import Clock

log = logging.getLogger(__name__)

_LAST_BYTES_MS: Final = 2_000
"""How long slaves in sync are waited for."""
_LOOK_AGAIN_MS: Final = 5


def wait_for_last_bytes(
    registry: ReplicaRegistry, end: int, clock: Clock, pause_ms: Callable[[float], object]
) -> None:
    """Until slaves in sync have acknowledged the log up to `end`. One that is still catching up
    would not get there in time. pause_ms: sleeps so long."""
    deadline_ms = clock.monotonic_ms() + _LAST_BYTES_MS
    while late := _in_sync_before(registry, end):
        if clock.monotonic_ms() >= deadline_ms:
            names = ", ".join(f"{each.remote} at {each.ack_offset}" for each in late)
            log.warning("stopping at %s, slaves lack acknowledgements: %s", end, names)
            return
        pause_ms(_LOOK_AGAIN_MS)


def _in_sync_before(registry: ReplicaRegistry, end: int) -> list[SlaveProgress]:
    live = registry.live()
    return [each for each in live if each.state is ReplicaState.in_sync and each.ack_offset < end]
