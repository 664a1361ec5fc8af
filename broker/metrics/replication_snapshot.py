"""ReplicationSnapshot: the replication state at one moment, as plain data.

The content of one line of the metrics dump (docs/metrics_dump.md), except the fields that identify
the line (`v` to `final`: broker/metrics/metrics_dump.py). Runs on the dump's thread in the
supervisor. Reads metric slots, control page, children and changed settings; opens no file (the
version is conf/installation.py's).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.metrics import metrics_table as table
from broker.metrics.dump_marks import (
    EXPOSURE_LE,
    LAG_LE_MS,
    DumpMarksReader,
    Link,
)
from broker.metrics.group_lag_times import read_groups
from broker.metrics.kept_sends import SEND_CODES, SYNC_RESULTS
from broker.metrics.metadata_ages import MetadataAges
from broker.metrics.replica_view import ReplicaViewSnapshot
from broker.metrics.rising_total import RisingTotal
from broker.metrics.transaction_line import TransactionLine
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from broker.supervisor.child_state import ChildState
from conf.installation import software_version
from ha.control_slots import REPLICATED_OFFSET
from ha.slave_progress import ReplicaState
from ha.taken_role import TakenRole
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import OVERFLOW
from remoting.metrics.metric import Metric
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from broker.metrics.member_facts import MemberFacts
    from broker.metrics.metrics_collector import BrokerCollector

log = logging.getLogger(__name__)

Json = dict[str, Any]

STATES: Final = tuple(state.value for state in ReplicaState)
_DIGEST_DIGITS: Final = 12
_LOOK_MS: Final = 250
"""A look of process `ha` also tells of the time since the look before it."""
_SENDS: Final = frozenset(code.name.lower() for code in SEND_CODES)
"""As in the labels of RPC_LATENCY."""
_SEND_ANSWERS: Final = {code.name.lower(): name for code, name in SYNC_RESULTS.items()}


def config_digest(settings: Mapping[str, str]) -> str:
    """12 hexadecimal digits that change with any setting; their order does not matter."""
    text = "".join(f"{key}={settings[key]}\n" for key in sorted(settings))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_DIGITS]


class _SettingsInForce:
    """The digest of the startup settings plus run-time changes."""

    def __init__(self, settings: Mapping[str, str], changed: ChangedSettings) -> None:
        self._settings = settings
        self._changed = changed
        self._seen: Mapping[str, str] = {}
        self._digest = config_digest(settings)

    def digest(self) -> str:
        """The current digest."""
        try:
            seen = self._changed.read()
        except msgspec.DecodeError:  # It is being written: the next read gets all of it.
            return self._digest
        if seen != self._seen:
            self._seen = seen
            self._digest = config_digest({**self._settings, **seen})
        return self._digest


class _ToldRoles:
    """Which roles are in a line that was written: each is told once, in the next one if a line
    failed."""

    def __init__(self) -> None:
        self._written: int | None = None
        self._taken: int | None = None

    def written(self) -> None:
        """The last line was written."""
        self._written = self._taken

    def take(self, after: Callable[[int | None], list[TakenRole]]) -> list[TakenRole]:
        """For the next line."""
        roles = after(self._written)
        self._taken = max((role.number for role in roles), default=self._written or 0)
        return roles


class ReplicationSnapshot:
    """See the module. Owned by: the thread that calls `take`."""

    def __init__(
        self,
        options: StartupOptions,
        changed: ChangedSettings,
        metrics: BrokerCollector,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        clock: Clock,
        member: MemberFacts | None = None,
    ) -> None:
        """options: the startup options; changed: the settings changed at run time; member: of a
        member of a group with a controller."""
        self._settings = _SettingsInForce(options.settings(), changed)
        self._metrics = metrics
        self._counters = page.counters
        self._children = children
        self._clock = clock
        self._configured_role = options.store.broker_role
        self._member = member
        self._told = _ToldRoles()
        self._identity: Json = {
            "cluster": options.broker.broker_cluster_name,
            "broker": options.broker.broker_name,
            "broker_id": options.broker.broker_id,
            "host": f"{options.broker.broker_ip1}:{options.server.listen_port}",
            "role": options.store.broker_role.name,
            "version": software_version(),
        }
        interval_ms = options.supervisor.metrics_dump_interval_seconds * 1000
        self._marks = DumpMarksReader(interval_ms)
        self._written_ms = -1
        self._ages = MetadataAges()
        self._messages_in = RisingTotal()
        self._bytes_in = RisingTotal()
        self._transactions = TransactionLine()

    def find_id(self) -> int:
        """In controller mode the id that the controller gave; 0: none yet."""
        return 0 if self._member is None else self._member.broker_id

    def take(self, written_ms: int) -> Json:
        """Take a snapshot; keys in the order of docs/metrics_dump.md. `written_ms`: monotonic time
        of the last line that was written: the marks reach back to it at least."""
        counters = self._counters
        snapshot = self._metrics.look()
        if written_ms != self._written_ms:
            self._written_ms = written_ms
            self._ages.written()
            self._told.written()
        role = self._role()
        is_slave = role is BrokerRole.SLAVE
        since_ms = self._marks.since_ms(written_ms, self._clock.monotonic_ms())
        return {
            "since": max(since_ms - _LOOK_MS, 0),
            **self._identity,
            **self._own_id(),
            "role": role.name,
            "config": self._settings.digest(),
            "ready": not self._metrics.ready_reason(),
            "min_offset": counters[MIN_PHY_OFFSET],
            "max_offset": counters[MAX_PHY_OFFSET],
            "replicated_offset": counters[REPLICATED_OFFSET],
            "msgs_in": self._messages_in.update(snapshot.read(table.MESSAGES_IN.name)),
            "bytes_in": self._bytes_in.update(snapshot.read(table.THROUGHPUT_IN.name)),
            "sync": _sync(snapshot),
            "sends": _sends(snapshot),
            "ack_latency": _ack_latency(snapshot),
            **_unreplicated(snapshot),
            "exposure": None if is_slave else self._exposure(snapshot, since_ms),
            "transactions": None if is_slave else self._transactions.take(snapshot),
            "processes": [_process(child) for child in self._children()],
            "lag_le": list(LAG_LE_MS),
            "replicas": [] if self._follows() else self._replicas(snapshot, since_ms),
            "metadata": self._metadata() if is_slave else [],
            **self._of_group(),
            **({} if is_slave else self._of_consumers(snapshot)),
        }

    def _role(self) -> BrokerRole:
        """In controller mode that of now."""
        if self._member is None:
            return self._configured_role
        return BrokerRole.SYNC_MASTER if self._member.leads else BrokerRole.SLAVE

    def _follows(self) -> bool:
        """In controller mode a follower serves nobody; the rows of its time as leader may still be
        there for a moment, as process `ha` removes them."""
        return self._member is not None and not self._member.leads

    def _own_id(self) -> Json:
        """In controller mode the id that the controller gave, whatever the role."""
        found = self.find_id()
        return {"broker_id": found} if found else {}

    def _of_group(self) -> Json:
        """In controller mode only."""
        if self._member is None:
            return {}
        roles = self._told.take(self._member.roles_after)
        return {
            "member": self._member.line(),
            **({"roles": [msgspec.to_builtins(role) for role in roles]} if roles else {}),
        }

    def _of_consumers(self, snapshot: ReplicaViewSnapshot) -> Json:
        """Only where metricsDumpGroups names some."""
        groups = read_groups(snapshot, self._clock.monotonic_ms())
        return {} if groups is None else {"groups": groups}

    def _exposure(self, snapshot: ReplicaViewSnapshot, since_ms: int) -> Json | None:
        """The marks of process `ha`; while it is down or hangs, with what grew since."""
        marks = self._marks.exposure(snapshot, since_ms)
        size = _value(snapshot, table.HA_UNREPLICATED_BYTES)
        age_s = _value(snapshot, table.HA_OLDEST_UNREPLICATED)
        if marks is None or size is None or age_s is None:
            return None
        return {
            "bytes_at_least": marks.bytes_at_least,
            "bytes_at_most": max(marks.bytes_at_most, round(size)),
            "ms_at_least": marks.ms_at_least,
            "ms_at_most": max(marks.ms_at_most, _ms(age_s)),
            "le": list(EXPOSURE_LE),
            "counts": marks.looks,
        }

    def _replicas(self, snapshot: ReplicaViewSnapshot, since_ms: int) -> list[Json]:
        """Rows with what happened since the last line."""
        largest = self._marks.largest_lags(snapshot, since_ms)
        times, links = self._marks.lag_times(snapshot), self._marks.links(snapshot)
        rows = _replicas(snapshot)
        for row in rows:
            name = row["id"]
            row |= _link(links.get(name))
            row["lag_ms_max"] = max(largest.get(name, 0), row["lag_ms"])
            row["lag_time"] = times.get(name) or [0] * (len(LAG_LE_MS) + 1)
        return rows

    def _metadata(self) -> list[Json]:
        now_ms, mono_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        rows = []
        for kind in SyncKind:
            stamp_ms = self._counters[SLAVE_SYNC_SUCCESS + kind]
            ages = self._ages.look(kind, stamp_ms, now_ms, mono_ms)
            rows.append(
                {
                    "kind": kind.label,
                    "age_ms": None if ages is None else ages.now,
                    "age_ms_max": None if ages is None else ages.largest,
                    "failures": self._counters[SLAVE_SYNC_FAILURES + kind],
                }
            )
        return rows


def _value(snapshot: ReplicaViewSnapshot, metric: Metric) -> float | None:
    """The value of a metric without labels; None if it was never set."""
    series = snapshot.read(metric.name)
    return series[0][1][0] if series else None


def _by_replica(snapshot: ReplicaViewSnapshot, metric: Metric) -> dict[str, float]:
    """Values by replica, summed over the other labels."""
    found: dict[str, float] = {}
    for labels, values in snapshot.read(metric.name):
        found[labels[0]] = found.get(labels[0], 0.0) + values[0]
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _sync(snapshot: ReplicaViewSnapshot) -> Json:
    counts = {labels[0]: values[0] for labels, values in snapshot.read(table.HA_SYNC_RESULT.name)}
    return {result: round(counts.get(result, 0)) for result in SYNC_RESULTS.values()}


def _sends(snapshot: ReplicaViewSnapshot) -> Json:
    """All answers to sends of clients, and how long they took."""
    buckets = table.RPC_LATENCY.buckets
    counts, total_ms = [0.0] * (len(buckets) + 1), 0.0
    answers = dict.fromkeys((*SYNC_RESULTS.values(), "refused"), 0.0)
    for labels, values in snapshot.read(table.RPC_LATENCY.name):
        request, response, result = labels[1], labels[2], labels[4]
        if request not in _SENDS or result == "oneway":
            continue
        answers[_SEND_ANSWERS.get(response, "refused")] += sum(values[:-1])
        counts = [count + more for count, more in zip(counts, values[:-1], strict=True)]
        total_ms += values[-1]
    return {
        **{name: round(count) for name, count in answers.items()},
        "latency": {
            "le": [bound / 1000 for bound in buckets],
            "counts": [round(count) for count in counts],
            "sum": total_ms / 1000,
        },
    }


def _link(link: Link | None) -> Json:
    if link is None:
        return {"remote": None, "last_error": None}
    error = {"reason": link.error, "ts": link.error_ms} if link.error else None
    return {"remote": link.remote, "last_error": error}


def _ack_latency(snapshot: ReplicaViewSnapshot) -> Json:
    metric = table.HA_ACK_LATENCY
    series = snapshot.read(metric.name)
    values: Sequence[float] = series[0][1] if series else [0.0] * metric.size
    return {
        "le": list(metric.buckets),
        "counts": [round(value) for value in values[:-1]],
        "sum": values[-1],
    }


def _unreplicated(snapshot: ReplicaViewSnapshot) -> Json:
    """Null while the replicas' state is unknown: process `ha` has not observed it yet, or knows
    only an upper bound, which the format cannot express."""
    size = _value(snapshot, table.HA_UNREPLICATED_BYTES)
    age_s = _value(snapshot, table.HA_OLDEST_UNREPLICATED)
    if size is None or age_s is None or not _value(snapshot, table.HA_UNREPLICATED_EXACT):
        return {"unreplicated_bytes": None, "oldest_unreplicated_ms": None}
    return {"unreplicated_bytes": round(size), "oldest_unreplicated_ms": _ms(age_s)}


def _process(child: ChildState) -> Json:
    return {
        "name": child.spec.name,
        "up": child.process is not None,
        "restarts": child.restarts,
    }


def _replicas(snapshot: ReplicaViewSnapshot) -> list[Json]:
    """A row for each replica, by id. Replicas beyond the slot limit have none, since __overflow__
    does not identify them."""
    connected = _by_replica(snapshot, table.HA_REPLICA_CONNECTED)
    in_sync = _by_replica(snapshot, table.HA_REPLICA_IN_SYNC)
    ack = _by_replica(snapshot, table.HA_ACK_OFFSET)
    lag_bytes = _by_replica(snapshot, table.HA_REPLICA_LAG_BYTES)
    lag_s = _by_replica(snapshot, table.HA_REPLICA_LAG_SECONDS)
    exact = _by_replica(snapshot, table.HA_REPLICA_LAG_EXACT)
    transferred = _by_replica(snapshot, table.HA_TRANSFERRED)
    reconnects = _by_replica(snapshot, table.HA_RECONNECTS)
    rejected = _by_replica(snapshot, table.HA_REJECTED_ACKS)
    state_ms = _state_ms(snapshot)
    rows = []
    for replica in sorted(connected.keys() - {OVERFLOW}):
        is_connected = connected[replica] > 0
        is_in_sync = is_connected and in_sync.get(replica, 0) > 0
        state = "in_sync" if is_in_sync else "catching_up" if is_connected else "disconnected"
        rows.append(
            {
                "id": replica,
                "connected": is_connected,
                "in_sync": is_in_sync,
                "state": state,
                "ack_offset": round(ack.get(replica, 0)),
                "lag_bytes": round(lag_bytes.get(replica, 0)),
                "lag_ms": _ms(lag_s.get(replica, 0)),
                "lag_exact": exact.get(replica, 0) > 0,
                "transferred": round(transferred.get(replica, 0)),
                "reconnects": round(reconnects.get(replica, 0)),
                "rejected_acks": round(rejected.get(replica, 0)),
                "state_ms": state_ms.get(replica) or dict.fromkeys(STATES, 0),
            }
        )
    return rows


def _state_ms(snapshot: ReplicaViewSnapshot) -> dict[str, dict[str, int]]:
    """Time in each state, by replica."""
    found: dict[str, dict[str, int]] = {}
    for (replica, state), values in snapshot.read(table.HA_STATE_SECONDS.name):
        found.setdefault(replica, dict.fromkeys(STATES, 0))[state] = _ms(values[0])
    return found
