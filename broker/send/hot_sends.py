"""What the hot loops of single sends and of batches have in common.

Put together once, by SendMessageProcessor, on the main thread; used on the loop thread of
`remoting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.append.durability_waiters import DurabilityWaiters
from broker.metrics.hot_path_stats import SendCounts
from broker.send.rules import SendRules
from broker.send.send_topic import SendTopic
from store.commit_log import CommitLog


class RouteStats(Protocol):
    """Where what the hot loops take is counted. (A Protocol, since compiled modules insist on the
    class that they name, and tests count with one of theirs.)"""

    @property
    def sends(self) -> SendCounts:
        """Where messages are counted."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSends:
    """See the module."""

    commit_log: CommitLog
    topics: Mapping[str, SendTopic]
    """Those whose checks a send has passed."""
    is_open: Callable[[], bool]
    """Whether anything may be stored now, before any append that waits (AppendQueue)."""
    waiters: DurabilityWaiters
    stats: RouteStats
    note_waiting: Callable[[], None]
    """Called for each send that waits for flush or replicas."""
    rules: SendRules
    cluster_pair: str
    """The property CLUSTER with its value."""
    max_message_size: int
