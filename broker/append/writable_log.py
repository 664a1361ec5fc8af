"""WritableLog: the commit log as its only writer has it.

Pure data, made once on the main thread of process `remoting`; what it names belongs to the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.append.achieved_durability import AchievedDurability
from broker.append.append_queue import AppendQueue
from broker.append.durability_waiters import DurabilityWaiters
from store.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class WritableLog:
    """Where a record gets its place, and who hears when it is safe there."""

    commit_log: CommitLog
    append_queue: AppendQueue
    """The way in for everything but the fast paths: its order, and why nothing may be stored."""
    waiters: DurabilityWaiters
    durability: AchievedDurability
