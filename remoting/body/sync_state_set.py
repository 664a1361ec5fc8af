"""Body of 1001, 1008 and the answers to 1001, 1003, 1004: the replicas in sync. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStateSet(JsonBean):
    """Broker ids, and the epoch of the set."""

    sync_state_set: list[Int64] = field(default_factory=list)
    sync_state_set_epoch: Int32 = 0
