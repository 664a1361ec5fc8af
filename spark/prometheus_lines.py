"""Metrics that a Prometheus server scraped from our brokers, as lines of a metrics dump.

Plain Python, no Spark; knows the names of broker/metrics_table.py and docs/metrics_dump.md, and no
file. What Prometheus does not know is derived so that missing data stay missing (docs/nightly.md,
"From Prometheus"): a boot is a process start or a counter that went back, `seq` counts the steps
of the grid, so that a moment without a scrape is a hole.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark.dump_words import STATES, SYNC_RESULTS
from spark.prometheus_response import Grid, ResponseError, Series

Line = dict[str, Any]

READY: Final = "rocketmq_ready"
STORE_OFFSET: Final = "rocketmq_store_offset_bytes"
PER_TOPIC: Final = ("rocketmq_messages_in_total", "rocketmq_throughput_in_total")
SYNC_RESULT: Final = "rocketmq_ha_sync_result_total"
ACK_LATENCY: Final = "rocketmq_ha_ack_latency_seconds"
UNREPLICATED: Final = "rocketmq_ha_unreplicated_bytes"
OLDEST_UNREPLICATED: Final = "rocketmq_ha_oldest_unreplicated_seconds"
CONNECTED: Final = "rocketmq_ha_replica_connected"
IN_SYNC: Final = "rocketmq_ha_replica_in_sync"
ACK_OFFSET: Final = "rocketmq_ha_ack_offset_bytes"
LAG_BYTES: Final = "rocketmq_ha_replica_lag_bytes"
LAG_SECONDS: Final = "rocketmq_ha_replica_lag_seconds"
LAG_EXACT: Final = "rocketmq_ha_replica_lag_exact"
TRANSFERRED: Final = "rocketmq_ha_transferred_bytes_total"
RECONNECTS: Final = "rocketmq_ha_reconnects_total"
REJECTED_ACKS: Final = "rocketmq_ha_rejected_acks_total"
STATE_SECONDS: Final = "rocketmq_ha_state_seconds_total"
CLIENT_CONNECTED: Final = "rocketmq_ha_client_connected"
SYNC_AGE: Final = "rocketmq_slave_sync_age_seconds"
SYNC_FAILURES: Final = "rocketmq_slave_sync_failures_total"
PROCESS_UP: Final = "rocketmq_process_up"
PROCESS_RESTARTS: Final = "rocketmq_process_restarts_total"
DUMP_LINES: Final = "rocketmq_metrics_dump_lines_total"
NAMES: Final = (
    READY, STORE_OFFSET, SYNC_RESULT, f"{ACK_LATENCY}_bucket", f"{ACK_LATENCY}_sum", UNREPLICATED,
    OLDEST_UNREPLICATED, CONNECTED, IN_SYNC, ACK_OFFSET, LAG_BYTES, LAG_SECONDS, LAG_EXACT,
    TRANSFERRED, RECONNECTS, REJECTED_ACKS, STATE_SECONDS, CLIENT_CONNECTED, SYNC_AGE,
    SYNC_FAILURES, PROCESS_UP, PROCESS_RESTARTS, DUMP_LINES,
)  # fmt: skip
"""Series of a broker that a line is made of, those of each topic aside."""
PROCESS_START: Final = "process_start_time_seconds"
SCRAPED_AT: Final = "rocketmq_scraped_at"
"""timestamp(rocketmq_ready) under a name of its own: tells a scrape from a repeated value."""

_NEVER_BACK: Final = (DUMP_LINES, PROCESS_RESTARTS, SYNC_RESULT, f"{ACK_LATENCY}_bucket")
"""Counters whose series never vanish while a supervisor lives: one that falls is a new boot."""
_OVERFLOW: Final = "__overflow__"
_NO_DIGEST: Final = "0" * 12


@dataclass(frozen=True, slots=True)
class Imported:
    """Lines in the order of broker, boot and time; how many moments had no scrape; and notes."""

    lines: list[Line]
    missing: int
    notes: list[str]


def lines_of(grid: Grid, broker_ids: Mapping[str, int]) -> Imported:
    """The lines of every broker in `grid`. `broker_ids`: of slaves, by their label `instance`.

    Raises ResponseError when a broker's series do not make lines.
    """
    targets = _targets(grid)
    notes = list(grid.notes)
    lines: list[Line] = []
    missing = 0
    speakers: dict[tuple[str, str, int, int], str] = {}
    for target in targets:
        if not target.has(SCRAPED_AT):
            notes.append(
                f"{target.name}: without {SCRAPED_AT} up to 5 minutes in which Prometheus did not"
                " scrape look like data; use all of --print-queries"
            )
        made = list(target.lines(grid.step_ms, _slave_id(target, targets, broker_ids)))
        for moment, line in made:
            key = (target.cluster, target.broker, line["broker_id"], moment)
            other = speakers.setdefault(key, target.name)
            if other != target.name:
                raise ResponseError(
                    f"{other} and {target.name} are both broker {line['broker_id']} at the same"
                    " time: choose one of them in the queries"
                )
        lines += [line for _, line in made]
        if made:
            missing += (made[-1][0] - made[0][0]) // grid.step_ms + 1 - len(made)
        else:
            notes.append(f"{target.name}: at no moment has it all its metrics; no line")
    return Imported(lines, missing, notes)


def _targets(grid: Grid) -> list[_Target]:
    found: dict[tuple[str, str, str, str], _Target] = {}
    known = {*NAMES, *PER_TOPIC, SCRAPED_AT}
    starts = [series for series in grid.series if series.name == PROCESS_START]
    for series in grid.series:
        if series.name not in known:
            continue
        labels = series.labels
        cluster = labels.get("exported_cluster") or labels.get("cluster")
        if not cluster or not labels.get("node_id"):
            raise ResponseError(
                f"{series.name}{dict(labels)}: lacks the label cluster or node_id; query the plain"
                " metrics, as `mqreport import --print-queries` says"
            )
        job, instance = labels.get("job", ""), labels.get("instance", "")
        key = (cluster, labels["node_id"], instance, job)
        target = found.setdefault(key, _Target(cluster, labels["node_id"], instance, job))
        target.series[series.name].append(series)
    for target in found.values():
        target.series[PROCESS_START] += [
            s
            for s in starts
            if (s.labels.get("instance", ""), s.labels.get("job", ""))
            == (target.instance, target.job)
        ]
        target.check()
    return [found[key] for key in sorted(found)]


@dataclass
class _Boot:
    """One life of a broker, as far as it can be told. `first_seq` is that of `first_ts`."""

    start_ms: int
    digest: str
    first_ts: int
    first_seq: int
    totals: dict[str, _RisingTotal] = field(default_factory=lambda: defaultdict(_RisingTotal))


class _RisingTotal:
    """The sum of a counter's series: never falls when one of them vanishes or begins anew."""

    def __init__(self) -> None:
        self._seen: dict[frozenset[tuple[str, str]], float] = {}
        self._total = 0.0

    def update(self, values: Sequence[tuple[Mapping[str, str], float]]) -> int:
        """The sum, now that the series have these values."""
        for labels, value in values:
            key = frozenset(labels.items())
            before = self._seen.get(key, 0.0)
            self._total += value - before if value >= before else value
            self._seen[key] = value
        return round(self._total)


@dataclass
class _Target:
    """One scraped broker and its series by metric."""

    cluster: str
    broker: str
    instance: str
    job: str
    series: dict[str, list[Series]] = field(default_factory=lambda: defaultdict(list))

    @property
    def name(self) -> str:
        where = " ".join(text for text in (self.job, self.instance) if text)
        return f"{self.cluster}/{self.broker} ({where})"

    def has(self, metric: str) -> bool:
        """Whether there is any value of it."""
        return any(series.points for series in self.series.get(metric, ()))

    def check(self) -> None:
        """Raises ResponseError when what every broker shows is missing."""
        wanted = [READY, STORE_OFFSET, PROCESS_UP]
        if not self.has(CLIENT_CONNECTED):
            wanted += [UNREPLICATED, OLDEST_UNREPLICATED]
        if self.has(CONNECTED):
            wanted += [IN_SYNC, ACK_OFFSET, LAG_BYTES, LAG_SECONDS, STATE_SECONDS]
        missing = [metric for metric in wanted if not self.has(metric)]
        if missing:
            raise ResponseError(
                f"{self.name}: no values of {', '.join(missing)}: add the files of all queries of"
                " `mqreport import --print-queries`"
            )

    def values(self, metric: str, ts: int) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series that has one at `ts`."""
        return [
            (series.labels, series.points[ts])
            for series in self.series.get(metric, ())
            if ts in series.points
        ]

    def value(self, metric: str, ts: int) -> float | None:
        """Of a metric without labels of its own."""
        found = self.values(metric, ts)
        return found[0][1] if found else None

    def by(self, label: str, metric: str, ts: int) -> dict[str, float]:
        """Values by one label, summed over the others."""
        found: dict[str, float] = {}
        for labels, value in self.values(metric, ts):
            key = labels.get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def moments(self) -> Iterator[tuple[int, int]]:
        """(moment of the grid, time of the scrape), ms, of each scrape; a moment that only has the
        repeated values of an earlier scrape is left out."""
        before = 0
        for ts in sorted({ts for series in self.series[READY] for ts in series.points}):
            scraped_s = self.value(SCRAPED_AT, ts)
            if not self.has(SCRAPED_AT):
                yield ts, ts
            elif scraped_s is not None and (scraped_ms := round(scraped_s * 1000)) > before:
                before = scraped_ms
                yield ts, scraped_ms

    def lines(self, step_ms: int, slave_id: int) -> Iterator[tuple[int, Line]]:
        """Moment and line, for each scrape in which all gauges have values."""
        boot: _Boot | None = None
        before = 0
        for ts, scraped_ms in self.moments():
            boot = self._boot(boot, before, ts, scraped_ms, step_ms)
            before = ts
            if line := self._line(boot, ts, slave_id):
                seq = boot.first_seq + (ts - boot.first_ts) // step_ms
                times = {"ts": scraped_ms, "mono": scraped_ms, "seq": seq, "interval_ms": step_ms}
                yield ts, line | times

    def _boot(
        self, boot: _Boot | None, before: int, ts: int, scraped_ms: int, step_ms: int
    ) -> _Boot:
        """The life that the scrape at moment `ts` belongs to; `before` is the moment before it."""
        start_s = self.value(PROCESS_START, ts)
        if start_s is not None:
            start_ms = round(start_s * 1000)
            if boot is not None and boot.start_ms == start_ms:
                return boot
            # The two clocks are of different machines.
            first_seq = max(1, 1 + (scraped_ms - start_ms) // step_ms)
        elif boot is not None and not self._fell(before, ts):
            return boot
        else:
            # Not known when it began. After a fall it was since the moment before, and its counters
            # count from 0; of the first life nobody knows what it counted before.
            start_ms = scraped_ms
            first_seq = 1 if boot is not None else max(2, ts // step_ms)
        text = "\0".join((self.cluster, self.broker, self.instance, str(start_ms)))
        return _Boot(start_ms, hashlib.sha256(text.encode()).hexdigest()[:16], ts, first_seq)

    def _fell(self, before: int, ts: int) -> bool:
        return any(
            series.points[ts] < series.points[before]
            for metric in _NEVER_BACK
            for series in self.series.get(metric, ())
            if ts in series.points and before in series.points
        )

    def _line(self, boot: _Boot, ts: int, slave_id: int) -> Line | None:
        offsets = self.by("kind", STORE_OFFSET, ts)
        is_slave = bool(self.values(CLIENT_CONNECTED, ts))
        replicas = self._replicas(boot, ts)
        unreplicated = 0.0 if is_slave else self.value(UNREPLICATED, ts)
        oldest_s = 0.0 if is_slave else self.value(OLDEST_UNREPLICATED, ts)
        if not {"min", "max", "replicated"} <= offsets.keys():
            return None
        if replicas is None or unreplicated is None or oldest_s is None:
            return None
        role = "SLAVE" if is_slave else self._role(ts)
        return {
            "v": 1,
            "boot": boot.digest,
            "boot_ts": boot.start_ms,
            "prev_boot": None,
            "prev_seq": None,
            "final": False,
            "cluster": self.cluster,
            "broker": self.broker,
            "broker_id": slave_id if is_slave else 0,
            "role": role,
            "version": "unknown (from Prometheus)",
            "config": _NO_DIGEST,
            "ready": self.value(READY, ts) == 1,
            "min_offset": round(offsets["min"]),
            "max_offset": round(offsets["max"]),
            "replicated_offset": round(offsets["replicated"]),
            "msgs_in": boot.totals["messages"].update(self.values(PER_TOPIC[0], ts)),
            "bytes_in": boot.totals["bytes"].update(self.values(PER_TOPIC[1], ts)),
            "sync": self._sync(ts),
            "ack_latency": self._ack_latency(ts),
            "unreplicated_bytes": round(unreplicated),
            "oldest_unreplicated_ms": _ms(oldest_s),
            "processes": self._processes(ts),
            "replicas": replicas,
            "metadata": self._metadata(ts) if is_slave else [],
        }

    def _role(self, ts: int) -> str:
        """As the replicas' series say; a master without replicas does not say which it is."""
        roles = {labels.get("role", "") for labels, _ in self.values(CONNECTED, ts)}
        return "SYNC_MASTER" if "SYNC_MASTER" in roles else "ASYNC_MASTER"

    def _sync(self, ts: int) -> dict[str, int]:
        counts = self.by("result", SYNC_RESULT, ts)
        return {result: round(counts.get(result, 0)) for result in SYNC_RESULTS}

    def _ack_latency(self, ts: int) -> dict[str, Any]:
        """Prometheus' buckets are cumulative, a line's are not."""
        buckets = self.by("le", f"{ACK_LATENCY}_bucket", ts)
        bounds = sorted((float(le), round(count)) for le, count in buckets.items())
        counts = [count for _, count in bounds] or [0]
        return {
            "le": [le for le, _ in bounds[:-1]],
            "counts": [counts[0], *(b - a for a, b in itertools.pairwise(counts))],
            "sum": self.value(f"{ACK_LATENCY}_sum", ts) or 0.0,
        }

    def _processes(self, ts: int) -> list[dict[str, Any]]:
        restarts = self.by("process", PROCESS_RESTARTS, ts)
        return [
            {"name": name, "up": up == 1, "restarts": round(restarts.get(name, 0))}
            for name, up in sorted(self.by("process", PROCESS_UP, ts).items())
        ]

    def _metadata(self, ts: int) -> list[dict[str, Any]]:
        ages = self.by("kind", SYNC_AGE, ts)
        failures = self.by("kind", SYNC_FAILURES, ts)
        return [
            {
                "kind": kind,
                "age_ms": _ms(ages[kind]) if kind in ages else None,
                "failures": round(failures.get(kind, 0)),
            }
            for kind in sorted(ages.keys() | failures.keys())
        ]

    def _replicas(self, boot: _Boot, ts: int) -> list[dict[str, Any]] | None:
        """A row for each replica; None when one lacks a gauge: such a moment is no sample."""
        gauges = {
            m: self.by("replica", m, ts) for m in (IN_SYNC, ACK_OFFSET, LAG_BYTES, LAG_SECONDS)
        }
        exact = self.by("replica", LAG_EXACT, ts)
        connected = self.by("replica", CONNECTED, ts)
        rows = []
        for replica in sorted(connected.keys() - {_OVERFLOW}):
            if any(replica not in values for values in gauges.values()):
                return None
            is_connected = connected[replica] == 1
            is_in_sync = is_connected and gauges[IN_SYNC][replica] == 1
            state = "in_sync" if is_in_sync else "catching_up" if is_connected else "disconnected"
            rows.append(
                {
                    "id": replica,
                    "connected": is_connected,
                    "in_sync": is_in_sync,
                    "state": state,
                    "ack_offset": round(gauges[ACK_OFFSET][replica]),
                    "lag_bytes": round(gauges[LAG_BYTES][replica]),
                    "lag_ms": _ms(gauges[LAG_SECONDS][replica]),
                    "lag_exact": exact.get(replica, 0) == 1,
                    "transferred": self._counter(boot, TRANSFERRED, replica, ts),
                    "reconnects": self._counter(boot, RECONNECTS, replica, ts),
                    "rejected_acks": self._counter(boot, REJECTED_ACKS, replica, ts),
                    "state_ms": self._state_ms(replica, ts),
                }
            )
        return rows

    def _counter(self, boot: _Boot, metric: str, replica: str, ts: int) -> int:
        found = [item for item in self.values(metric, ts) if item[0].get("replica") == replica]
        return boot.totals[f"{metric} {replica}"].update(found)

    def _state_ms(self, replica: str, ts: int) -> dict[str, int]:
        spent = {
            labels.get("state"): value
            for labels, value in self.values(STATE_SECONDS, ts)
            if labels.get("replica") == replica
        }
        return {state: _ms(spent.get(state, 0.0)) for state in STATES}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _slave_id(target: _Target, targets: Sequence[_Target], given: Mapping[str, int]) -> int:
    """brokerId of a slave: Prometheus has no label for it."""
    if not target.has(CLIENT_CONNECTED):
        return 0
    if target.instance in given:
        return given[target.instance]
    group = [t for t in targets if (t.cluster, t.broker) == (target.cluster, target.broker)]
    slaves = [t.instance for t in group if t.has(CLIENT_CONNECTED)]
    named = {
        series.labels.get("replica", "") for t in group for series in t.series.get(CONNECTED, ())
    }
    ids = {name.rpartition(":")[2] for name in named if name.startswith(f"{target.broker}:")}
    if len(slaves) == 1 and len(ids) == 1 and (only := ids.pop()).isdecimal():
        return int(only)
    raise ResponseError(
        f"{target.name} is a slave and nothing says its brokerId: give"
        f" --broker-id {target.instance}=1 (or whatever it is)"
    )
