"""HaMetrics: writes the replication state of process `ha` to the metric slots, five times a second.

A thread of process `ha`, the only writer of its metrics. The slots outlive the process: the next
process `ha` restores the known replicas and their counts from them and continues; the time in
between counts as disconnected. A restarted broker restores the replicas from ReplicaMemory, with
counts starting at zero. It observes nothing itself (ha/ha_observer.py does) and knows nothing of
Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.metrics import metrics_table as table
from broker.metrics.dump_marks import DumpMarks
from ha.ha_observer import HaFacts, ReplicaFacts
from ha.refusals import RefusalReason
from ha.replica_clock import ReplicaClock
from ha.replica_memory import KnownReplica
from ha.replica_registry import Replica, ReplicaRegistry
from ha.replica_totals import ReplicaTotals, TotalsNow
from ha.slave_progress import REPORT_REFUSALS, ReplicaState, start_offset_for
from ipc.clock import Clock
from ipc.metric_slots import OVERFLOW
from ipc.service_thread import FailureHandler, ServiceThread
from remoting.metrics.metric import Metric

if TYPE_CHECKING:
    from ha.replica_memory import ReplicaMemory
    from ipc.metric_slots import MetricSlots

OBSERVE_MS: Final = 200
_ALONE_MS: Final = 1_000
"""For a master without replicas."""

_Labels = tuple[str, ...]
_PER_REPLICA: Final = (
    table.HA_REPLICA_LAG_BYTES,
    table.HA_REPLICA_LAG_SECONDS,
    table.HA_REPLICA_LAG_EXACT,
    table.HA_REPLICA_CONNECTED,
    table.HA_REPLICA_LEFT,
    table.HA_REPLICA_IN_SYNC,
    table.HA_ACK_OFFSET,
    table.HA_TRANSFERRED,
    table.HA_RECONNECTS,
)
"""The metrics with REPLICA_LABELS."""
_AT_THE_DOOR: Final = (
    RefusalReason.UNKNOWN_PEER,
    RefusalReason.TOO_MANY_CONNECTIONS,
    RefusalReason.SILENT,
    RefusalReason.NEGATIVE,
    RefusalReason.BEYOND_MAX,
    RefusalReason.BELOW_MIN,
    RefusalReason.TLS,
    RefusalReason.NETWORK,
    RefusalReason.NOT_PROVED,
    RefusalReason.BAD_HANDSHAKE,
)
"""Reasons for rejecting a link at the handshake; also shown when 0."""


@dataclass(frozen=True, slots=True)
class _Series:
    """The slots of one replica."""

    gauges: Mapping[str, int]
    """First slots of _PER_REPLICA, by metric."""
    states: Mapping[ReplicaState, int]
    rejected: Mapping[RefusalReason, int]


class HaMetrics(ServiceThread):
    """See the module. Call `restore` before the start and before any replica is served."""

    def __init__(
        self,
        slots: MetricSlots,
        observe: Callable[[], HaFacts],
        memory: ReplicaMemory | None,
        *,
        broker_name: str,
        role: str,
        marks: DumpMarks | None = None,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """`memory` and `marks`: None on a slave. `role`: brokerRole, a label of each replica."""
        super().__init__("HaMetrics", on_failure=on_failure)
        self._slots = slots
        self._values = slots.values
        self._observe = observe
        self._memory: Final = memory
        self._marks: Final = marks
        self._name_prefix: Final = f"{broker_name}:"
        self._role: Final = role
        self._series: dict[str, _Series] = {}
        self._handshakes_before = self._kept_handshakes()
        self._received_before = self._value(table.HA_CLIENT_RECEIVED)

    # -- restoring -----------------------------------------------------------------------

    def restore(
        self,
        registry: ReplicaRegistry,
        clock: Clock,
        min_offset: int,
        max_offset: int,
        *,
        broker_started_ms: int,
    ) -> None:
        """Restore known replicas into the registry. The log covers `min_offset` to `max_offset`;
        nothing beyond that was sent to a replica. Replicas count as disconnected since the last
        observation of the previous process `ha`, or since the broker was started (monotonic), as
        its store may have taken long to recover."""
        known = {} if self._memory is None else {each.id: each for each in self._memory.load()}
        if self._slots.series(table.HA_OBSERVED_MS.name):  # Process `ha` was restarted.
            known = self._kept_replicas(known, clock, min_offset)
            since_ms = int(self._value(table.HA_OBSERVED_MS))
        else:
            known = {name: each for name, each in known.items() if self._is_name(name)}
            since_ms = broker_started_ms
        for each in sorted(known.values(), key=lambda replica: replica.left_ms or 0):
            totals = self._kept_totals(each.id)
            state_clock = ReplicaClock(since_ms, spent_ms=totals.state_ms)
            registry.restore(
                each,
                ReplicaTotals(state_clock, totals),
                ack_limit=max_offset if each.ack_limit is None else each.ack_limit,
                is_named=self._is_name(each.id),
            )
        if self._marks is not None:
            # What is at risk before anybody connects: their first reports are no later than that.
            self._write(self._observe())

    def _is_name(self, replica: str) -> bool:
        return replica.startswith(self._name_prefix)

    def _kept_replicas(
        self, written: Mapping[str, KnownReplica], clock: Clock, min_offset: int
    ) -> dict[str, KnownReplica]:
        """The replicas in the slots; `written` has the remaining facts of those that it contains.
        The previous process was killed, so acknowledgements after its last observation are missing
        (no `ack_limit`)."""
        silent_ms = clock.monotonic_ms() - int(self._value(table.HA_OBSERVED_MS))
        lost_ms = clock.now_ms() - silent_ms
        kept = {}
        for labels in self._slots.series(table.HA_REPLICA_CONNECTED.name):
            replica = labels[0]
            if replica == OVERFLOW:
                continue
            self._series[replica] = self._series_of(replica)
            ack_offset = int(self._value(table.HA_ACK_OFFSET, labels))
            left_ms = round(self._value(table.HA_REPLICA_LEFT, labels) * 1000)
            found = written.get(replica)
            kept[replica] = KnownReplica(
                id=replica,
                remote=replica if found is None else found.remote,
                ack_offset=ack_offset,
                position=start_offset_for(ack_offset, min_offset),
                connected_since_ms=0 if found is None else found.connected_since_ms,
                left_ms=left_ms or lost_ms,
            )
        return kept

    def _kept_totals(self, replica: str) -> TotalsNow:
        labels = (replica, self._role)
        rejected = {
            reason: int(self._value(table.HA_REJECTED_ACKS, (replica, reason.name.lower())))
            for reason in REPORT_REFUSALS
        }
        state_ms = {
            state: round(self._value(table.HA_STATE_SECONDS, (replica, state.value)) * 1000)
            for state in ReplicaState
        }
        return TotalsNow(
            transferred=int(self._value(table.HA_TRANSFERRED, labels)),
            reconnects=int(self._value(table.HA_RECONNECTS, labels)),
            rejected_acks=rejected,
            state_ms=state_ms,
        )

    def _kept_handshakes(self) -> dict[RefusalReason, float]:
        return {
            reason: self._value(table.HA_REJECTED_HANDSHAKES, (reason.name.lower(),))
            for reason in RefusalReason
        }

    def _value(self, metric: Metric, labels: _Labels = ()) -> float:
        """The value of a series; 0 if it does not exist."""
        slot = self._slots.series(metric.name).get(labels)
        return 0.0 if slot is None else self._values[slot]

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Observe once, then sleep."""
        facts = self._observe()
        self._write(facts)
        is_alone = self._memory is not None and not facts.replicas
        self.wait_for_running(_ALONE_MS if is_alone else OBSERVE_MS)

    def finish(self) -> None:
        """The final observation, after all replicas have disconnected."""
        self._write(self._observe(), is_last=True)

    def _write(self, facts: HaFacts, *, is_last: bool = False) -> None:
        # First: a reader adds the time since then to the values in the slots (ReplicaView).
        self._set(table.HA_OBSERVED_MS, facts.observed_ms)
        for each in facts.replicas:
            self._write_replica(each)
        self._hide_others({each.replica.id for each in facts.replicas})
        self._set(table.HA_MASTER_MAX_OFFSET, facts.max_offset)
        self._set(table.HA_UNREPLICATED_BYTES, facts.unreplicated_bytes)
        self._set(table.HA_OLDEST_UNREPLICATED, facts.oldest_unreplicated_ms / 1000)
        self._set(table.HA_UNREPLICATED_EXACT, facts.unreplicated_exact)
        if self._marks is not None:
            self._marks.write(facts)
        self._write_refusals(facts)
        if facts.client is not None:
            self._set(table.HA_CLIENT_CONNECTED, facts.client.local_address is not None)
            self._set(table.HA_CLIENT_RECEIVED, self._received_before + facts.client.received)
        if self._memory is not None:
            named = (each.replica for each in facts.replicas if self._is_name(each.replica.id))
            self._memory.note([_known(replica) for replica in named], is_last=is_last)

    def _set(self, metric: Metric, value: float, labels: _Labels = ()) -> None:
        self._values[self._slots.find(metric.name, labels, metric.size)] = value

    def _write_refusals(self, facts: HaFacts) -> None:
        for reason in {*_AT_THE_DOOR, *facts.rejected_handshakes}:
            count = facts.rejected_handshakes.get(reason, 0)
            before = self._handshakes_before[reason]
            self._set(table.HA_REJECTED_HANDSHAKES, before + count, (reason.name.lower(),))

    # -- replicas ------------------------------------------------------------------------------

    def _write_replica(self, facts: ReplicaFacts) -> None:
        replica, totals = facts.replica, facts.replica.totals
        series = self._series.get(replica.id)
        if series is None:
            series = self._series[replica.id] = self._series_of(replica.id)
        values, gauges = self._values, series.gauges
        left_ms = replica.disconnected_since_ms or 0
        values[gauges[table.HA_REPLICA_LAG_BYTES.name]] = facts.lag_bytes
        values[gauges[table.HA_REPLICA_LAG_SECONDS.name]] = facts.lag.ms / 1000
        values[gauges[table.HA_REPLICA_LAG_EXACT.name]] = facts.lag.exact
        values[gauges[table.HA_REPLICA_CONNECTED.name]] = replica.progress is not None
        values[gauges[table.HA_REPLICA_LEFT.name]] = left_ms / 1000
        values[gauges[table.HA_REPLICA_IN_SYNC.name]] = replica.state is ReplicaState.in_sync
        values[gauges[table.HA_ACK_OFFSET.name]] = replica.ack_offset
        values[gauges[table.HA_TRANSFERRED.name]] = totals.transferred
        values[gauges[table.HA_RECONNECTS.name]] = totals.reconnects
        for state, slot in series.states.items():
            values[slot] = totals.state_ms[state] / 1000
        for reason, slot in series.rejected.items():
            values[slot] = totals.rejected_acks.get(reason, 0)

    def _series_of(self, replica: str) -> _Series:
        find, labels = self._slots.find, (replica, self._role)
        return _Series(
            {metric.name: find(metric.name, labels) for metric in _PER_REPLICA},
            {s: find(table.HA_STATE_SECONDS.name, (replica, s.value)) for s in ReplicaState},
            {
                reason: find(table.HA_REJECTED_ACKS.name, (replica, reason.name.lower()))
                for reason in REPORT_REFUSALS
            },
        )

    def _hide_others(self, shown: set[str]) -> None:
        """Hide forgotten replicas, and IPs whose replica is now known by name."""
        for replica in self._series.keys() - shown:
            series = self._series.pop(replica)
            for name in series.gauges:
                self._slots.hide(name, (replica, self._role))
            for state in series.states:
                self._slots.hide(table.HA_STATE_SECONDS.name, (replica, state.value))
            for reason in series.rejected:
                self._slots.hide(table.HA_REJECTED_ACKS.name, (replica, reason.name.lower()))


def _known(replica: Replica) -> KnownReplica:
    return KnownReplica(
        id=replica.id,
        remote=replica.remote,
        ack_offset=replica.ack_offset,
        position=replica.position,
        connected_since_ms=replica.connected_since_ms,
        left_ms=replica.disconnected_since_ms,
        ack_limit=replica.position if replica.ack_limit is None else replica.ack_limit,
    )
