"""Metrics that a Prometheus server scraped from our brokers, as lines of a metrics dump.

Plain Python, no Spark; knows the names of broker/metrics/metrics_table.py and docs/metrics_dump.md,
and no file. What Prometheus does not know is derived so that missing data stay missing
(docs/nightly.md, "From Prometheus"): a boot is a process start or a counter that went back, `seq`
counts the steps of the grid, so that a moment without a scrape is a hole. Scrapes that failed
before a boot that follows, or before nothing at all, are lines of a master that serves no replica.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark.prometheus_import.metrics import (
    ACK_BUCKET,
    ACK_LATENCY,
    ACK_OFFSET,
    CLIENT_CONNECTED,
    CONNECTED,
    DUMP_LINES,
    IN_SYNC,
    LAG_BYTES,
    LAG_EXACT,
    LAG_SECONDS,
    MESSAGES_IN,
    OLDEST_UNREPLICATED,
    PER_TOPIC,
    PROCESS_RESTARTS,
    PROCESS_START,
    PROCESS_UP,
    READY,
    RECONNECTS,
    REJECTED_ACKS,
    SCRAPED_AT,
    STATE_SECONDS,
    STORE_OFFSET,
    SYNC_AGE,
    SYNC_FAILURES,
    SYNC_RESULT,
    THROUGHPUT_IN,
    TRANSFERRED,
    UNREPLICATED,
    UNREPLICATED_EXACT,
)
from spark.prometheus_import.response import Grid, ResponseError
from spark.prometheus_import.targets import Target, targets_of
from spark.vocabulary import STATES, SYNC_RESULTS

Line = dict[str, Any]

_NEVER_BACK: Final = (DUMP_LINES, PROCESS_RESTARTS, SYNC_RESULT, ACK_BUCKET)
"""Counters whose series never vanish while a supervisor lives: one that falls is a new boot."""
_OVERFLOW: Final = "__overflow__"
_ALL_QUERIES: Final = "import the files of all queries of `mqreport import --print-queries`"
_CONSEQUENCES: Final = {
    SCRAPED_AT: "up to 5 minutes in which Prometheus did not scrape look like data",
    PROCESS_START: "restarts are known only by counters that fall, and each import is a new life",
}
"""Of a metric that a target lacks. Its lines are made nevertheless."""
_NO_DIGEST: Final = "0" * 12
_LOST: Final = "disconnected"


@dataclass(frozen=True, slots=True)
class Imported:
    """Lines in the order of broker and time; how many moments had no scrape, how many targets gave
    no line; and notes."""

    lines: list[Line]
    missing: int
    left_out: int
    notes: list[str]


def lines_of(grid: Grid, broker_ids: Mapping[str, int]) -> Imported:
    """The lines of every broker in `grid`. `broker_ids`: of slaves, by their label `instance`.

    A target that lacks metrics is left out, with a note. Raises ResponseError when no line comes of
    it all, or when it is unclear which of several series is a broker's.
    """
    targets = targets_of(grid)
    lacking = [(target, _lacking(target)) for target in targets]
    whole = [target for target, metrics in lacking if not metrics]
    left_out = [
        f"{target.name}: left out: no values of {', '.join(metrics)}"
        for target, metrics in lacking
        if metrics
    ]
    spoken = _Spoken(grid.step_ms)
    dead: list[tuple[int, list[tuple[int, Line]]]] = []
    missing = 0
    for target in whole:
        slave_id = _slave_id(target, targets, broker_ids)
        maker = _LineMaker(target, grid.step_ms, slave_id)
        made = list(maker.lines())
        for moment, line in made:
            spoken.add(target.name, moment, line)
        if made:
            down = list(maker.down_lines(made))
            dead += down
            missing += (made[-1][0] - made[0][0]) // grid.step_ms + 1 - len(made)
            missing -= sum(moment < made[-1][0] for _, some in down for moment, _ in some)
        else:
            left_out.append(f"{target.name}: left out: at no moment has it all its metrics")
    for last, some in dead:
        spoken.add_down(last, some)
    lines = spoken.lines()
    if not lines:
        what = "; ".join(left_out) or "no series of a broker at all"
        raise ResponseError(f"{what}; {_ALL_QUERIES}")
    notes = [*grid.notes, *_notes(whole), *left_out]
    return Imported(lines, missing, len(left_out), notes)


def _lacking(target: Target) -> list[str]:
    """Metrics that every broker shows and this one does not."""
    wanted = [READY, STORE_OFFSET, PROCESS_UP]
    if not target.has(CLIENT_CONNECTED):
        wanted += [UNREPLICATED, OLDEST_UNREPLICATED]
    if target.has(CONNECTED):
        wanted += [IN_SYNC, ACK_OFFSET, LAG_BYTES, LAG_SECONDS, STATE_SECONDS]
    lacking = [metric for metric in wanted if not target.has(metric)]
    bounds = {float(series.labels["le"]) for series in target.series.get(ACK_BUCKET, ())}
    if bounds and math.inf not in bounds:
        lacking.append(f'{ACK_BUCKET}{{le="+Inf"}}')
    return lacking


def _notes(targets: Sequence[Target]) -> list[str]:
    """What a whole file would have said that is not there."""
    notes = []
    for metric, consequence in _CONSEQUENCES.items():
        if names := ", ".join(target.name for target in targets if not target.has(metric)):
            notes.append(f"{names}: without {metric} {consequence}; {_ALL_QUERIES}")
    if not any(target.has(metric) for target in targets for metric in PER_TOPIC):
        notes.append(
            f"no broker has {' or '.join(PER_TOPIC)}: msgs_in and bytes_in stay 0, which is wrong"
            f" if messages were sent; {_ALL_QUERIES}"
        )
    return notes


class _Spoken:
    """Who said what of each broker at each moment."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._said: dict[tuple[str, str, int], dict[int, tuple[str, Line]]] = defaultdict(dict)
        self._twice: set[tuple[str, str, int, int]] = set()

    def add(self, target: str, moment: int, line: Line) -> None:
        """A broker that moved may be seen at both places at one moment: the later scrape counts.

        Raises ResponseError when that continues.
        """
        broker = (line["cluster"], line["broker"], line["broker_id"])
        said = self._said[broker]
        other, before = said.get(moment, (target, line))
        if other != target:
            if (*broker, moment - self._step_ms) in self._twice:
                raise ResponseError(
                    f"{other} and {target} are both broker {line['broker_id']} at the same"
                    " time: choose one of them in the queries (--print-queries --match)"
                )
            self._twice.add((*broker, moment))
        said[moment] = (target, line) if line["ts"] >= before["ts"] else (other, before)

    def add_down(self, last: int, lines: Sequence[tuple[int, Line]]) -> None:
        """After all that was said: a target whose last word was at `last` gave no answer. From the
        moment on at which its broker speaks from another place, that counts."""
        for _, line in lines[:1]:
            said = self._said[line["cluster"], line["broker"], line["broker_id"]]
            until = min((moment for moment in said if moment > last), default=math.inf)
            said |= {moment: ("", line) for moment, line in lines if moment < until}

    def lines(self) -> list[Line]:
        """All that count, in the order of broker and time."""
        return [
            line
            for broker in sorted(self._said)
            for _, (_, line) in sorted(self._said[broker].items())
        ]


@dataclass
class _Boot:
    """One boot of a broker, as far as it is known. `first_seq` is that of `first_ts`."""

    start_ms: int
    digest: str
    first_ts: int
    first_seq: int
    totals: dict[str, _RisingTotal] = field(default_factory=lambda: defaultdict(_RisingTotal))


class _RisingTotal:
    """The sum of a counter's series: never falls when one of them vanishes or begins anew."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], float] = {}
        self._total = 0.0

    def update(self, values: Sequence[tuple[Mapping[str, str], float]]) -> int:
        """The sum, now that the series have these values."""
        for labels, value in values:
            key = tuple(labels.values())
            before = self._seen.get(key, 0.0)
            self._total += value - before if value >= before else value
            self._seen[key] = value
        return round(self._total)


@dataclass(frozen=True, slots=True)
class _LineMaker:
    """Makes the lines of one target. `slave_id`: the brokerId where it is a slave."""

    target: Target
    step_ms: int
    slave_id: int

    def lines(self) -> Iterator[tuple[int, Line]]:
        """Moment and line, for each scrape in which all gauges have values."""
        step_ms = self.step_ms
        boot: _Boot | None = None
        before = 0
        for ts, scraped_ms in self.target.scrapes:
            boot = self._boot(boot, before, ts, scraped_ms)
            before = ts
            if line := self._line(boot, ts):
                seq = boot.first_seq + (ts - boot.first_ts) // step_ms
                times = {"ts": scraped_ms, "mono": scraped_ms, "seq": seq, "interval_ms": step_ms}
                yield ts, line | times

    def down_lines(
        self, made: Sequence[tuple[int, Line]]
    ) -> Iterator[tuple[int, list[tuple[int, Line]]]]:
        """Of a master, where no later scrape shows that the same boot went on: the moment of one of
        `made`, and moment and line of each scrape that failed after it."""
        following: list[tuple[int, Line] | None] = [*made[1:], None]
        for (last, line), after in zip(made, following, strict=True):
            if line["role"] == "SLAVE" or (after and after[1]["boot"] == line["boot"]):
                continue
            until = math.inf if after is None else after[0]
            failed = [(ts, at_ms) for ts, at_ms in self.target.failed if last < ts < until]
            lines: list[tuple[int, Line]] = []
            for moment, at_ms in failed:
                follows = bool(lines) and lines[-1][0] == moment - self.step_ms
                seq = line["seq"] + (moment - last) // self.step_ms
                before = lines[-1][1] if lines else line
                lines.append((moment, _without_master(before, at_ms, seq, is_lost=follows)))
            yield last, lines

    def _boot(self, boot: _Boot | None, before: int, ts: int, scraped_ms: int) -> _Boot:
        """The life that the scrape at moment `ts` belongs to; `before` is the moment before it."""
        start_s = self.target.value(PROCESS_START, ts)
        if start_s is not None:
            start_ms = round(start_s * 1000)
            if boot is not None and boot.start_ms == start_ms:
                return boot
            # The two clocks are of different machines.
            first_seq = max(1, 1 + (scraped_ms - start_ms) // self.step_ms)
        elif boot is not None and not self._fell(before, ts):
            return boot
        else:
            # Not known when it began. After a fall it was since the moment before, and its counters
            # count from 0; what the first boot counted before is unknown.
            start_ms = scraped_ms
            first_seq = 1 if boot is not None else max(2, ts // self.step_ms)
        target = self.target
        text = "\0".join((target.cluster, target.broker, target.instance, str(start_ms)))
        return _Boot(start_ms, hashlib.sha256(text.encode()).hexdigest()[:16], ts, first_seq)

    def _fell(self, before: int, ts: int) -> bool:
        return any(
            series.points[ts] < series.points[before]
            for metric in _NEVER_BACK
            for series in self.target.series.get(metric, ())
            if ts in series.points and before in series.points
        )

    def _line(self, boot: _Boot, ts: int) -> Line | None:
        offsets = self.target.by("kind", STORE_OFFSET, ts)
        is_slave = bool(self.target.values(CLIENT_CONNECTED, ts))
        replicas = self._replicas(boot, ts)
        unreplicated = 0.0 if is_slave else self.target.value(UNREPLICATED, ts)
        oldest_s = 0.0 if is_slave else self.target.value(OLDEST_UNREPLICATED, ts)
        if not {"min", "max", "replicated"} <= offsets.keys():
            return None
        ack_latency = self._ack_latency(ts)
        if replicas is None or unreplicated is None or oldest_s is None or ack_latency is None:
            return None
        role = "SLAVE" if is_slave else self._role(ts)
        # A bound is not reported as a fact: as in a broker's own dumps.
        is_known = is_slave or self.target.value(UNREPLICATED_EXACT, ts) != 0
        return {
            "v": 1,
            "boot": boot.digest,
            "boot_ts": boot.start_ms,
            "prev_boot": None,
            "prev_seq": None,
            "final": False,
            "cluster": self.target.cluster,
            "broker": self.target.broker,
            "broker_id": self.slave_id if is_slave else 0,
            "role": role,
            "version": "unknown (from Prometheus)",
            "config": _NO_DIGEST,
            "ready": self.target.value(READY, ts) == 1,
            "min_offset": round(offsets["min"]),
            "max_offset": round(offsets["max"]),
            "replicated_offset": round(offsets["replicated"]),
            "msgs_in": boot.totals["messages"].update(self.target.values(MESSAGES_IN, ts)),
            "bytes_in": boot.totals["bytes"].update(self.target.values(THROUGHPUT_IN, ts)),
            "sync": self._sync(ts),
            "ack_latency": ack_latency,
            "unreplicated_bytes": round(unreplicated) if is_known else None,
            "oldest_unreplicated_ms": _ms(oldest_s) if is_known else None,
            "processes": self._processes(ts),
            "replicas": replicas,
            "metadata": self._metadata(ts) if is_slave else [],
        }

    def _role(self, ts: int) -> str:
        """As the replicas' series say; a master without replicas does not say which it is."""
        roles = {labels.get("role", "") for labels, _ in self.target.values(CONNECTED, ts)}
        return "SYNC_MASTER" if "SYNC_MASTER" in roles else "ASYNC_MASTER"

    def _sync(self, ts: int) -> dict[str, int]:
        counts = self.target.by("result", SYNC_RESULT, ts)
        return {result: round(counts.get(result, 0)) for result in SYNC_RESULTS}

    def _ack_latency(self, ts: int) -> dict[str, Any] | None:
        """Prometheus' buckets are cumulative, a line's are not. None without the last one."""
        buckets = self.target.by("le", ACK_BUCKET, ts)
        bounds = sorted((float(le), round(count)) for le, count in buckets.items())
        if bounds and bounds[-1][0] != math.inf:
            return None
        counts = [count for _, count in bounds] or [0]
        return {
            "le": [le for le, _ in bounds[:-1]],
            "counts": [counts[0], *(b - a for a, b in itertools.pairwise(counts))],
            "sum": self.target.value(f"{ACK_LATENCY}_sum", ts) or 0.0,
        }

    def _processes(self, ts: int) -> list[dict[str, Any]]:
        restarts = self.target.by("process", PROCESS_RESTARTS, ts)
        return [
            {"name": name, "up": up == 1, "restarts": round(restarts.get(name, 0))}
            for name, up in sorted(self.target.by("process", PROCESS_UP, ts).items())
        ]

    def _metadata(self, ts: int) -> list[dict[str, Any]]:
        ages = self.target.by("kind", SYNC_AGE, ts)
        failures = self.target.by("kind", SYNC_FAILURES, ts)
        return [
            {
                "kind": kind,
                "age_ms": _ms(ages[kind]) if kind in ages else None,
                "failures": round(failures.get(kind, 0)),
            }
            for kind in sorted(ages.keys() | failures.keys())
        ]

    def _replicas(self, boot: _Boot, ts: int) -> list[dict[str, Any]] | None:
        """A row for each replica; None when one lacks a gauge: such a moment is not a sample."""
        gauges = {
            m: self.target.by("replica", m, ts)
            for m in (IN_SYNC, ACK_OFFSET, LAG_BYTES, LAG_SECONDS)
        }
        exact = self.target.by("replica", LAG_EXACT, ts)
        connected = self.target.by("replica", CONNECTED, ts)
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
        found = [
            item for item in self.target.values(metric, ts) if item[0].get("replica") == replica
        ]
        return boot.totals[f"{metric} {replica}"].update(found)

    def _state_ms(self, replica: str, ts: int) -> dict[str, int]:
        spent = {
            labels.get("state"): value
            for labels, value in self.target.values(STATE_SECONDS, ts)
            if labels.get("replica") == replica
        }
        return {state: _ms(spent.get(state, 0.0)) for state in STATES}


def _without_master(before: Line, at_ms: int, seq: int, *, is_lost: bool) -> Line:
    """The line of a scrape that failed at `at_ms`. `is_lost`: so did the one of `before`, else
    it is unknown when in between the master died."""
    passed_ms = at_ms - before["ts"]
    lost_ms = passed_ms if is_lost else 0
    rows = [
        row
        | {"connected": False, "in_sync": False, "state": _LOST, "lag_exact": False}
        | {"lag_ms": row["lag_ms"] + passed_ms if row["lag_bytes"] else 0}
        | {"state_ms": row["state_ms"] | {_LOST: row["state_ms"][_LOST] + lost_ms}}
        for row in before["replicas"]
    ]
    return before | {
        "ts": at_ms,
        "mono": at_ms,
        "seq": seq,
        "ready": False,
        "replicas": rows,
        "unreplicated_bytes": None,
        "oldest_unreplicated_ms": None,
        "processes": [],
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _slave_id(target: Target, targets: Sequence[Target], given: Mapping[str, int]) -> int:
    """brokerId of a slave: Prometheus has no label for it."""
    if not target.has(CLIENT_CONNECTED):
        return 0
    if target.instance in given:
        return given[target.instance]
    group = [t for t in targets if (t.cluster, t.broker) == (target.cluster, target.broker)]
    slaves = [t.instance for t in group if t.has(CLIENT_CONNECTED)]
    named = {series.labels["replica"] for t in group for series in t.series.get(CONNECTED, ())}
    ids = {name.rpartition(":")[2] for name in named if name.startswith(f"{target.broker}:")}
    if len(slaves) == 1 and len(ids) == 1 and (only := ids.pop()).isdecimal():
        return int(only)
    raise ResponseError(
        f"{target.name} is a slave and nothing says its brokerId: give"
        f" --broker-id {target.instance}=1 (or whatever it is)"
    )
