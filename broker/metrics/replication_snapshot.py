"""ReplicationSnapshot: what the supervisor knows of replication at one moment, as plain data.

The content of one line of the metrics dump (docs/metrics_dump.md), but for what says which line
it is (`v` to `final`: broker/metrics/metrics_dump.py). Runs on the dump's thread in the supervisor. Reads
metric slots, control page, children and changed settings; knows no file but setup.cfg, which says
the version.
"""

from __future__ import annotations

import configparser
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from broker.metrics import metrics_table as table
from broker.metrics.remoting_metrics import SYNC_RESULTS
from broker.metrics.replica_sight import Rows
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from broker.supervisor.supervisor import ChildState
from ha.control_slots import REPLICATED_OFFSET
from ha.slave_progress import ReplicaState
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import OVERFLOW
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET

log = logging.getLogger(__name__)

Json = dict[str, Any]

STATES: Final = tuple(state.value for state in ReplicaState)
UNKNOWN_VERSION: Final = "unknown"
_DIGEST_DIGITS: Final = 12


class SeriesReader(Protocol):
    """What is needed of a Sight (broker/metrics/replica_sight.py)."""

    def read(self, metric: str) -> Rows:
        """Label values and slots of every series of `metric`; those of `ha` corrected for what it
        did not see while it was dead or hung."""


def config_digest(settings: Mapping[str, str]) -> str:
    """12 hexadecimal digits that change with any setting; their order does not matter."""
    text = "".join(f"{key}={settings[key]}\n" for key in sorted(settings))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_DIGITS]


def software_version(setup_file: Path | None = None) -> str:
    """The version that setup.cfg names; UNKNOWN_VERSION, with a warning, where none can be read.
    (The project is run from its directory, never installed: there is no other place.)"""
    path = setup_file or Path(__file__).resolve().parents[1] / "setup.cfg"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        return parser["metadata"]["version"]
    except (OSError, KeyError, ValueError, configparser.Error) as error:
        log.warning("%s: names no version: %s", path, error)
        return UNKNOWN_VERSION


class MetricsSource(Protocol):
    """What is needed of a BrokerCollector (broker/metrics/metrics_collector.py)."""

    def look(self) -> SeriesReader:
        """The metric slots as they are now."""

    def ready_reason(self) -> str:
        """Why /readyz says no; empty when it says yes."""


class _SettingsInForce:
    """The digest of the start's settings, with what requests have changed since."""

    def __init__(self, settings: Mapping[str, str], changed: ChangedSettings) -> None:
        self._settings = settings
        self._changed = changed
        self._seen: Mapping[str, str] = {}
        self._digest = config_digest(settings)

    def digest(self) -> str:
        """Of now."""
        try:
            seen = self._changed.read()
        except msgspec.DecodeError:  # It is being written: the next look sees all of it.
            return self._digest
        if seen != self._seen:
            self._seen = seen
            self._digest = config_digest({**self._settings, **seen})
        return self._digest


class _RisingTotal:
    """The sum of a counter's series. It never goes back, though a series may vanish (its topic
    was deleted) or begin at 0 again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], float] = {}
        self._total = 0.0

    def update(self, series: Rows) -> int:
        """The sum, now that the series are at these values."""
        now = {labels: values[0] for labels, values in series}
        for labels, value in now.items():
            before = self._seen.get(labels, 0.0)
            self._total += value - before if value >= before else value
        self._seen = now
        return round(self._total)


class ReplicationSnapshot:
    """See the module. Owned by: the thread that calls `take`."""

    def __init__(
        self,
        options: StartupOptions,
        changed: ChangedSettings,
        metrics: MetricsSource,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        clock: Clock,
    ) -> None:
        """options: of the start; changed: what requests have changed of them since."""
        self._settings = _SettingsInForce(options.settings(), changed)
        self._metrics = metrics
        self._counters = page.counters
        self._children = children
        self._clock = clock
        self._is_slave = options.store.is_slave
        self._identity: Json = {
            "cluster": options.broker.broker_cluster_name,
            "broker": options.broker.broker_name,
            "broker_id": options.broker.broker_id,
            "role": options.store.broker_role.name,
            "version": software_version(),
        }
        self._messages_in = _RisingTotal()
        self._bytes_in = _RisingTotal()

    def take(self) -> Json:
        """The moment now; keys in the order of docs/metrics_dump.md."""
        counters = self._counters
        sight = self._metrics.look()
        return {
            **self._identity,
            "config": self._settings.digest(),
            "ready": not self._metrics.ready_reason(),
            "min_offset": counters[MIN_PHY_OFFSET],
            "max_offset": counters[MAX_PHY_OFFSET],
            "replicated_offset": counters[REPLICATED_OFFSET],
            "msgs_in": self._messages_in.update(sight.read(table.MESSAGES_IN.name)),
            "bytes_in": self._bytes_in.update(sight.read(table.THROUGHPUT_IN.name)),
            "sync": _sync(sight),
            "ack_latency": _ack_latency(sight),
            **_unreplicated(sight),
            "processes": [_process(child) for child in self._children()],
            "replicas": _replicas(sight),
            "metadata": self._metadata() if self._is_slave else [],
        }

    def _metadata(self) -> list[Json]:
        now_ms = self._clock.now_ms()
        rows = []
        for kind in SyncKind:
            last_ms = self._counters[SLAVE_SYNC_SUCCESS + kind]
            age_ms = max(now_ms - last_ms, 0) if last_ms else None
            failures = self._counters[SLAVE_SYNC_FAILURES + kind]
            rows.append({"kind": kind.label, "age_ms": age_ms, "failures": failures})
        return rows


def _value(sight: SeriesReader, metric: table.Metric) -> float | None:
    """Of a metric without labels; None when nobody has set it."""
    series = sight.read(metric.name)
    return series[0][1][0] if series else None


def _by_replica(sight: SeriesReader, metric: table.Metric) -> dict[str, float]:
    """Values by replica, summed over the other labels."""
    found: dict[str, float] = {}
    for labels, values in sight.read(metric.name):
        found[labels[0]] = found.get(labels[0], 0.0) + values[0]
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _sync(sight: SeriesReader) -> Json:
    counts = {labels[0]: values[0] for labels, values in sight.read(table.HA_SYNC_RESULT.name)}
    return {result: round(counts.get(result, 0)) for result in SYNC_RESULTS.values()}


def _ack_latency(sight: SeriesReader) -> Json:
    metric = table.HA_ACK_LATENCY
    series = sight.read(metric.name)
    values: Sequence[float] = series[0][1] if series else [0.0] * metric.size
    return {
        "le": list(metric.buckets),
        "counts": [round(value) for value in values[:-1]],
        "sum": values[-1],
    }


def _unreplicated(sight: SeriesReader) -> Json:
    """Null while nobody knows what the replicas have: process `ha` has not looked yet, or what it
    knows is a bound. The line has no word for "at most"."""
    size = _value(sight, table.HA_UNREPLICATED_BYTES)
    age_s = _value(sight, table.HA_OLDEST_UNREPLICATED)
    if size is None or age_s is None or not _value(sight, table.HA_UNREPLICATED_EXACT):
        return {"unreplicated_bytes": None, "oldest_unreplicated_ms": None}
    return {"unreplicated_bytes": round(size), "oldest_unreplicated_ms": _ms(age_s)}


def _process(child: ChildState) -> Json:
    return {
        "name": child.spec.name,
        "up": child.process is not None,
        "restarts": child.restarts,
    }


def _replicas(sight: SeriesReader) -> list[Json]:
    """A row for each replica, by id. What found no room in the slots has none: of __overflow__
    nobody knows who it is."""
    connected = _by_replica(sight, table.HA_REPLICA_CONNECTED)
    in_sync = _by_replica(sight, table.HA_REPLICA_IN_SYNC)
    ack = _by_replica(sight, table.HA_ACK_OFFSET)
    lag_bytes = _by_replica(sight, table.HA_REPLICA_LAG_BYTES)
    lag_s = _by_replica(sight, table.HA_REPLICA_LAG_SECONDS)
    exact = _by_replica(sight, table.HA_REPLICA_LAG_EXACT)
    transferred = _by_replica(sight, table.HA_TRANSFERRED)
    reconnects = _by_replica(sight, table.HA_RECONNECTS)
    rejected = _by_replica(sight, table.HA_REJECTED_ACKS)
    state_ms = _state_ms(sight)
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


def _state_ms(sight: SeriesReader) -> dict[str, dict[str, int]]:
    """Time in each state, by replica."""
    found: dict[str, dict[str, int]] = {}
    for (replica, state), values in sight.read(table.HA_STATE_SECONDS.name):
        found.setdefault(replica, dict.fromkeys(STATES, 0))[state] = _ms(values[0])
    return found
