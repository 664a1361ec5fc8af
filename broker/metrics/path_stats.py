"""PathStats: what the paths of messages count with on the loop: HotPathStats.

A Protocol, since compiled modules insist on the class that they name, and tests count with one of
theirs.
"""

from __future__ import annotations

from typing import Protocol

from broker.metrics.hot_path_stats import PullCounts, SendCounts
from broker.metrics.transaction_metrics import TransactionMetrics
from broker.topic.table_protocols import PutStats


class PathStats(PutStats, Protocol):
    """See the module; HotPathStats says what each method counts."""

    @property
    def sends(self) -> SendCounts:
        """Where the fast paths of sends count."""

    @property
    def pulls(self) -> PullCounts:
        """Where the fast path of pulls counts."""

    @property
    def transactions(self) -> TransactionMetrics:
        """What half messages count with."""

    def now_ns(self) -> int:
        """Monotonic, as `add_timed_answer` takes it."""

    def add_queue_put(self, topic: str, queue_id: int, size: int) -> None:
        """A message of `size` bytes was put into a queue that has its own counter."""

    def add_put_failed(self) -> None:
        """The store rejected a send."""

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes were given to `group`."""

    def add_oneway(self, request_code: int, code: int) -> None:
        """A oneway request of this turn, which would have been answered with `code`."""

    def add_late_answer(self, request_code: int, code: int, held_ms: int) -> None:
        """A pull was answered with `code` after it had been held for `held_ms`."""
