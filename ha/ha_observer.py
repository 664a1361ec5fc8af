"""HaObserver: everything that the metrics show of replication, at one moment.

Runs in process `ha` on the thread that writes the metrics, with a CommitLogReader of its own. The
age of a record is looked up in the log; the record that a replica waits for is not looked up again
while it waits. It knows no metric names (broker/metrics/ha_metrics.py does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ha.exposure_marks import AtRisk, ExposureMarks
from ha.ha_client_info import HAClientInfo
from ha.refusals import RefusalReason
from ha.replica_registry import Replica, ReplicaRegistry
from ha.replication_lag import LagAge, ReplicationLag
from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.commit_log_reader import CommitLogReader
from store.control_slots import LOG_OPENED, MAX_PHY_OFFSET, STORE_TIMESTAMP

NAMING_MS: Final = 5_000
"""How long a connected replica may be unnamed before it is shown under its ip. Usually it gets its
name within a second, and then the ip should not be reported as missing for a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """One replica, and how far it is behind."""

    replica: Replica
    lag_bytes: int
    lag: LagAge
    """Exact only where lag_bytes is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaFacts:
    """One moment. Offsets and sizes in bytes."""

    observed_ms: int
    """Monotonic."""
    max_offset: int
    replicas: tuple[ReplicaFacts, ...]
    unreplicated_bytes: int
    """What no replica has, live or gone. 0 on a slave: its master has all of it."""
    oldest_unreplicated_ms: int
    """Age of the oldest record of these."""
    unreplicated_exact: bool
    """Of both. False: a replica that is gone may have acknowledged more than is known, or none was
    heard of yet, so they are upper bounds; or that record could not be found."""
    at_risk: AtRisk
    """The most bytes that no replica had since the last look, and now."""
    at_risk_ms: AtRisk
    """The largest age of the oldest such record since then."""
    rejected_handshakes: Mapping[RefusalReason, int]
    """In the life of this process."""
    client: HAClientInfo | None
    """Of a slave."""


class HaObserver:
    """Builds HaFacts. Owned by: the thread that asks."""

    def __init__(
        self,
        page: ControlPage,
        clock: Clock,
        registry: ReplicaRegistry,
        marks: ExposureMarks,
        source: CommitLogReader,
        rejected_handshakes: Callable[[], Mapping[RefusalReason, int]],
        request_members: Callable[[], None],
        client: Callable[[], HAClientInfo] | None,
    ) -> None:
        """`marks` are taken at each look. `request_members` asks who is registered in the group,
        quickly and without an answer. `client`: HAClient.snapshot on a slave, None on a master."""
        self._counters = page.counters
        self._clock = clock
        self._registry = registry
        self._marks: Final = marks
        self._before: HaFacts | None = None
        self._source = source
        self._ages: Final = _Ages(source, clock)
        self._rejected_handshakes = rejected_handshakes
        self._request_members = request_members
        self._client: Final = client
        self.refresh: Callable[[], object] = lambda: None
        """Takes up what has been acknowledged over a connection that is lent."""

    def observe(self) -> HaFacts:
        """Everything, of now. Counts the time since the last call (ReplicaRegistry.observe)."""
        now_ms = self._clock.monotonic_ms()
        end_before = self._counters[MAX_PHY_OFFSET]
        self.refresh()
        replicas = self._registry.observe(now_ms)
        end, newest_ms = self._counters[MAX_PHY_OFFSET], self._counters[STORE_TIMESTAMP]
        shown = [replica for replica in replicas if not _waits_for_name(replica)]
        if any(replica.progress for replica in replicas if _waits_for_name(replica)):
            self._request_members()
        furthest, may_reach = self._furthest(replicas, end)
        exact = may_reach <= furthest
        self._ages.begin(newest_ms)
        oldest = self._ages.of(furthest)
        is_exact = exact and oldest.exact
        at_risk = self._marks.take(furthest, may_reach, end_before, self._counters[MAX_PHY_OFFSET])
        facts = HaFacts(
            observed_ms=now_ms,
            max_offset=end,
            replicas=tuple(self._facts(replica, end) for replica in shown),
            unreplicated_bytes=max(end - furthest, 0),
            oldest_unreplicated_ms=oldest.ms,
            unreplicated_exact=is_exact,
            at_risk=at_risk,
            at_risk_ms=AtRisk(
                oldest.ms if is_exact else 0,
                max(oldest.ms, self._grown_ms(now_ms) if at_risk.at_most else 0),
            ),
            rejected_handshakes=self._rejected_handshakes(),
            client=None if self._client is None else self._client(),
        )
        self._before = facts
        return facts

    def _grown_ms(self, now_ms: int) -> int:
        """So old may the oldest record at risk have become since the last look: what it was then,
        and the time since."""
        before = self._before
        if before is None:
            return 0
        was_ms = before.oldest_unreplicated_ms if before.unreplicated_bytes else 0
        return was_ms + max(now_ms - before.observed_ms, 0)

    def _furthest(self, replicas: list[Replica], end: int) -> tuple[int, int]:
        """Up to where some replica has the log, and up to where none can have more. A connection
        that may be another one's does not count; one that left has what it had. What was deleted
        here is lost by nothing that happens to this broker. While no replica was heard of, one may
        have what the log held when it was opened: a master that was promoted got it from another
        broker."""
        if self._client is not None:
            return end, end
        having = [r for r in replicas if r.counted or r.progress is None]
        low = self._source.min_phy_offset
        furthest = max([low, *(r.position for r in having)])
        bounds = [min(r.ack_limit or 0, end) for r in having if r.is_bound(end)]
        if not having:
            opened = self._counters[LOG_OPENED]
            bounds.append(min(opened - 1, end) if opened else end)
        return furthest, max([furthest, *bounds])

    def _facts(self, replica: Replica, end: int) -> ReplicaFacts:
        age = self._ages.of(replica.position)
        return ReplicaFacts(
            replica=replica,
            lag_bytes=replica.lag_bytes(end),
            lag=LagAge(age.ms, age.exact and not replica.is_bound(end)),
        )


def _waits_for_name(replica: Replica) -> bool:
    return not replica.is_named and replica.totals.connected_ms < NAMING_MS


class _Ages:
    """Ages of positions; what was found for one is kept while somebody asks for it."""

    def __init__(self, source: CommitLogReader, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._lag = ReplicationLag(source, clock)
        self._stored_ms: dict[int, int] = {}
        self._kept_ms: dict[int, int] = {}
        self._newest_ms = 0
        self._low = source.min_phy_offset

    def begin(self, newest_timestamp_ms: int) -> None:
        """One more round; what was not asked for in the last one is forgotten."""
        self._stored_ms, self._kept_ms = self._kept_ms, {}
        self._newest_ms = newest_timestamp_ms
        low = self._source.min_phy_offset
        if low != self._low:
            self._low = low
            self._source.view_of_file(low - 1)  # It is gone: unmapping its file frees the space.

    def of(self, position: int) -> LagAge:
        """See ReplicationLag.age."""
        now_ms = self._clock.now_ms()
        stored_ms = self._kept_ms.get(position, self._stored_ms.get(position))
        if stored_ms is None or position < self._source.min_phy_offset:
            age = self._lag.age(position, self._newest_ms)
            if not age.exact or not age.ms:
                return age
            stored_ms = now_ms - age.ms
        self._kept_ms[position] = stored_ms
        return LagAge(max(now_ms - stored_ms, 0), exact=True)
