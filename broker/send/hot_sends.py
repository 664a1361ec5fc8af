"""What the hot loops of single sends and of batches have in common.

Put together once, by SendMessageProcessor, on the main thread; used on the loop thread of
`remoting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.append.durability_waiters import DurabilityWaiters
from broker.metrics.path_stats import PathStats
from broker.send.known_binary_headers import KnownBinaryHeaders
from broker.send.rules import SendRules
from broker.send.send_topic import SendTopic
from store.commit_log import CommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSends:
    """See the module."""

    commit_log: CommitLog
    topics: Mapping[str, SendTopic]
    """Those whose checks a send has passed."""
    is_open: Callable[[], bool]
    """Whether anything may be stored now, before any append that waits (AppendQueue)."""
    waiters: DurabilityWaiters
    stats: PathStats
    note_waiting: Callable[[], None]
    """Called for each send that waits for flush or replicas."""
    rules: SendRules
    cluster_pair: str
    """The property CLUSTER with its value."""
    max_message_size: int
    binary_headers: KnownBinaryHeaders = field(default_factory=KnownBinaryHeaders)
