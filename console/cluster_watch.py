"""ClusterWatch: the parts that know the cluster, put together: clients, lanes, poller, history.

Made once in process `console`. Must not know HTTP.

Tested by tests/console/test_poller.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.figures import figures
from console.history import History
from console.jobs import Jobs
from console.lanes import Lanes, Question
from console.page import AccountLike, Reader
from console.poller import Poller
from console.rates import Rates
from console.snapshot import ClusterSnapshot
from tools.admin_client import AdminClient


def monotonic_ms() -> int:
    """Milliseconds of the monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What is watched."""

    name_servers: tuple[str, ...]
    metrics: Question[Any] | None = None
    """How our brokers are asked for their metrics."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """For the views: where reports are, and the like."""


class ClusterWatch:
    """Asks the cluster as long as it runs. `client_of(account)` gives the client of an account."""

    def __init__(self, options: WatchOptions, client_of: Callable[[Hashable], AdminClient]) -> None:
        self._options = options
        self._client_of = client_of
        self._seen_ms = 0
        self.history = History()
        self._rates = Rates()
        self.lanes = Lanes(client_of, monotonic_ms)
        self.poller = Poller(
            self.lanes,
            options.name_servers,
            now_ms=monotonic_ms,
            wall_ms=wall_ms,
            metrics=options.metrics,
            changed=self._remember,
        )

    def start(self) -> None:
        """Begin to ask."""
        self.lanes.start()
        self.poller.start()

    def stop(self) -> None:
        """End the threads."""
        self.lanes.stop()
        self.poller.stop()

    def snapshot(self) -> ClusterSnapshot:
        """The newest one."""
        return self.poller.snapshot

    def reader(
        self, account: AccountLike | None, *, may_change: bool, jobs: Jobs, address: str = ""
    ) -> Reader:
        """What a view may use for a reader."""
        return Reader(
            snapshot=self.poller.snapshot,
            history=self.history,
            lanes=self.lanes,
            jobs=jobs,
            client_of=self._client_of,
            name_servers=self._options.name_servers,
            now_ms=wall_ms(),
            clock_ms=monotonic_ms(),
            account=account,
            may_change=may_change,
            address=address,
            options=self._options.values,
        )

    def _remember(self, snapshot: ClusterSnapshot) -> None:
        """Called by the poller's thread after each change."""
        since_ms, self._seen_ms = self._seen_ms, snapshot.taken_at_ms
        found = figures(snapshot, since_ms) | self._rates.figures(snapshot)
        self.history.add(snapshot.taken_ms, found)
