"""The nightly report once more, slow and obvious: groups, verdicts, 7 and 30 days.

Standard library only, like plain_report.py, which uses this.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from tests.spark.plain_samples import (
    QUANTILES,
    SYNC_RESULTS,
    Json,
    Key,
    Sample,
    Tables,
    Window,
    rise,
    rise_of_field,
    weighted,
)

DAY_S: Final = 86_400
BREACHED, INSUFFICIENT, MET = "breached", "insufficient data", "met"
WORST_FIRST: Final = (BREACHED, INSUFFICIENT, MET)


@dataclass(frozen=True)
class PlainObjective:
    """What is asked of the replicas whose cluster and broker match."""

    name: str = "default"
    cluster: str = "*"
    broker: str = "*"
    replica: str = "*"
    availability_percent: float = 99.9
    lag_seconds: float = 10
    min_coverage_percent: float = 99
    lag_p99_seconds: float | None = None
    sync_ok_percent: float | None = None
    rpo_bytes: int | None = None
    metadata_age_seconds: float | None = None
    metadata_required: bool = False

    def matches(self, key: Key) -> bool:
        patterns = (self.cluster, self.broker, self.replica)
        return all(map(fnmatch.fnmatchcase, key, patterns))

    def budget_s(self, length_s: float) -> float:
        return round((100 - self.availability_percent) / 100 * length_s, 3)


def worst(verdicts: list[str]) -> str:
    """breached > insufficient > met; nothing at all is insufficient data."""
    return min(verdicts, key=WORST_FIRST.index, default=INSUFFICIENT)


def key_of(row: Json) -> Key:
    return row["cluster"], row["broker"], row["replica"]


def named(key: Key) -> Json:
    return dict(zip(("cluster", "broker", "replica"), key, strict=True))


def date_of(tables: Tables) -> datetime.date:
    date: datetime.date = tables["dt"][0]["dt"]
    return date


# -- groups ----------------------------------------------------------------------------------


def group_day(group: tuple[str, str], stream: list[Sample], window: Window) -> Json:
    """What is told of a broker group as a whole; the verdict is added by who knows it."""
    inside = [sample for sample in stream if sample.in_window]
    row: Json = {"cluster": group[0], "broker": group[1], "samples": len(inside)}
    if not inside:  # its replicas are expected all the same
        return row
    row["role"] = inside[-1].role
    for name in ("unreplicated_bytes", "oldest_unreplicated_ms"):
        known = [(s.line[name], s.length_ms) for s in inside if s.line[name] is not None]
        figures = weighted(known)
        row |= {f"{name}_max": figures["max"], f"{name}_p99": figures["p99"]}
    exposed = [
        s.unreplicated_bytes * s.length_ms
        for s in inside
        if s.line["unreplicated_bytes"] is not None
    ]
    row["exposure_byte_s"] = sum(exposed) / 1000 if exposed else None
    results = {name: sum(_rise_of_sync(s, name) for s in inside) for name in SYNC_RESULTS}
    row |= {f"sync_{name}": count for name, count in results.items()}
    sends = sum(results.values())
    row["sync_ok_ratio"] = results["ok"] / sends if sends else None
    row |= _ack_latency(inside)
    row["msgs_in"] = sum(rise_of_field(sample, "msgs_in") for sample in inside)
    row["bytes_in"] = sum(rise_of_field(sample, "bytes_in") for sample in inside)
    row["restarts"] = sum(_is_restart(sample) for sample in inside)
    return row


def _is_restart(sample: Sample) -> bool:
    """A boot begins; but not the first life of a broker."""
    if sample.predecessor is not None:
        return not sample.same_boot
    return bool(sample.seq == 1 and sample.line.get("prev_boot"))


def _rise_of_sync(sample: Sample, name: str) -> int:
    before = sample.predecessor.sync[name] if sample.predecessor else None
    return int(rise(sample, sample.sync[name], before))


def _ack_latency(inside: list[Sample]) -> Json:
    sums: dict[float, int] = {}
    total_s = 0.0
    for sample in inside:
        now = _buckets(sample)
        before = _buckets(sample.predecessor) if sample.predecessor else {}
        for bound, count in now.items():
            sums[bound] = sums.get(bound, 0) + int(rise(sample, count, before.get(bound)))
        earlier = sample.predecessor.ack_latency["sum"] if sample.predecessor else None
        total_s += rise(sample, sample.ack_latency["sum"], earlier)
    bounds = sorted(sums)[:-1]
    counts = [sums[bound] for bound in sorted(sums)]
    row: Json = {"ack_le": bounds, "ack_counts": counts, "ack_sum_s": total_s}
    for name in ("p50", "p99", "p999"):
        row[f"ack_{name}_s"] = _bucket_quantile(float(QUANTILES[name]), bounds, counts)
    return row


def _buckets(sample: Sample) -> dict[float, int]:
    """Counts by the upper bounds of their buckets."""
    latency = sample.ack_latency
    return dict(zip([*latency["le"], math.inf], latency["counts"], strict=True))


def _bucket_quantile(share: float, bounds: list[float], counts: list[int]) -> float | None:
    rank, below = share * sum(counts), 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            lower = bounds[index - 1] if index else 0.0
            if index == len(bounds):
                return lower
            return lower + (bounds[index] - lower) * (rank - below) / count
        below += count
    return None


def metadata_of(stream: list[Sample], window: Window) -> list[Json]:
    """How stale a slave's copies were, by kind, from its own samples."""
    ages: dict[str, list[tuple[int, int]]] = defaultdict(list)
    failures: dict[str, int] = defaultdict(int)
    for sample in stream:
        if not sample.in_window:
            continue
        before = _kinds(sample.predecessor)
        for kind, entry in _kinds(sample).items():
            earlier = before[kind]["failures"] if kind in before else None
            failures[kind] += int(rise(sample, entry["failures"], earlier))
            if entry["age_ms"] is not None:
                ages[kind].append((entry["age_ms"], sample.length_ms))
    return [
        {
            "kind": kind,
            "max_age_ms": weighted(ages[kind])["max"],
            "p99_age_ms": weighted(ages[kind])["p99"],
            "failures": failures[kind],
            "covered_s": sum(length for _, length in ages[kind]) / 1000,
        }
        for kind in sorted(failures)
    ]


def _kinds(sample: Sample | None) -> dict[str, Json]:
    entries: list[Json] = (sample.line.get("metadata") or []) if sample else []
    return {entry["kind"]: entry for entry in entries}


# -- verdicts --------------------------------------------------------------------------------


def verdict_of(objective: PlainObjective, day: Json, group: Json | None) -> str:
    """The worst of a replica's criteria."""
    covered = day["coverage"] * 100 >= objective.min_coverage_percent
    verdicts = [_judged(day["bad_s"] > day["budget_s"], covered)]
    if objective.lag_p99_seconds is not None:
        verdicts.append(_above(day["lag_ms_p99"], objective.lag_p99_seconds * 1000, covered))
    if objective.sync_ok_percent is not None:
        if group is None:
            verdicts.append(INSUFFICIENT)
        elif group["sync_ok_ratio"] is not None:
            too_low = group["sync_ok_ratio"] * 100 < objective.sync_ok_percent
            verdicts.append(_judged(too_low, covered))
    if objective.rpo_bytes is not None:
        at_risk = group["unreplicated_bytes_max"] if group else None
        verdicts.append(_above(at_risk, objective.rpo_bytes, covered))
    asked = objective.metadata_age_seconds is not None
    if asked and (day["metadata"] or objective.metadata_required):
        verdicts.append(_metadata_verdict(objective, day, covered))
    return worst(verdicts)


def _metadata_verdict(objective: PlainObjective, day: Json, covered: bool) -> str:
    """The slave's own samples have to cover the window, too."""
    limit_ms = (objective.metadata_age_seconds or 0) * 1000
    wanted_s = objective.min_coverage_percent / 100 * day["window_s"]
    if any((kind["max_age_ms"] or 0) > limit_ms for kind in day["metadata"]):
        return BREACHED
    known = bool(day["metadata"]) and all(
        kind["max_age_ms"] is not None and kind["covered_s"] >= wanted_s for kind in day["metadata"]
    )
    return _judged(False, covered and known)


def _judged(breached: bool, covered: bool) -> str:
    if breached:
        return BREACHED
    return MET if covered else INSUFFICIENT


def _above(value: float | None, limit: float, covered: bool) -> str:
    return INSUFFICIENT if value is None else _judged(value > limit, covered)


# -- 7 and 30 days ---------------------------------------------------------------------------


def window_row(
    days: int,
    key: Key,
    objective: PlainObjective,
    today: Json,
    earlier: list[Tables],
    window: Window,
) -> Json:
    """Sums over the days that end with D, of those whose results are there."""
    rows = {window.date: today}
    for tables in earlier:
        if window.date - date_of(tables) < datetime.timedelta(days=days):
            for row in tables["replica_days"]:
                if key_of(row) == key:
                    rows[date_of(tables)] = row
    good = sum(row["good_s"] for row in rows.values())
    bad = sum(row["bad_s"] for row in rows.values())
    length_s = (days - 1) * DAY_S + window.length_ms / 1000
    budget = objective.budget_s(length_s)
    result = named(key) | {
        "days": days,
        "days_with_data": sum(row["good_s"] + row["bad_s"] > 0 for row in rows.values()),
        "good_s": good,
        "bad_s": bad,
        "unknown_s": length_s - good - bad,
        "coverage": (good + bad) / length_s,
        "availability": good / (good + bad) if good + bad else None,
    }
    for name in ("lag_ms", "lag_bytes"):
        result |= _merged_percentiles(name, list(rows.values()))
    ended = sum(row["incidents_ended"] for row in rows.values())
    ended_s = sum(row["incident_ended_s"] for row in rows.values())
    incidents = sum(row["incidents"] for row in rows.values())
    result |= {
        "incidents": incidents,
        "mttr_s": ended_s / ended if ended else None,
        "mtbf_s": good / incidents if incidents else None,
        "budget_s": budget,
        "budget_left_s": budget - bad,
        "budget_used_ratio": bad / budget if budget else None,
    }
    result["forecast"] = _forecast(result, rows, window) if days == 30 else None
    covered = result["coverage"] * 100 >= objective.min_coverage_percent
    result["verdict"] = _judged(bad > budget, covered)
    return result


def _merged_percentiles(name: str, rows: list[Json]) -> Json:
    merged: dict[int, int] = defaultdict(int)
    for row in rows:
        for bucket, length_ms in (row[f"{name}_hist"] or {}).items():
            merged[bucket] += length_ms
    largest = max((r[f"{name}_max"] for r in rows if r[f"{name}_max"] is not None), default=None)
    figures = weighted(list(merged.items()))
    result: Json = {f"{name}_max": largest}
    for share in ("p50", "p99", "p999"):
        bucket = figures[share]
        if bucket is None or largest is None:
            result[f"{name}_{share}"] = None
        else:
            result[f"{name}_{share}"] = min(0.0 if bucket == 0 else 1.02**bucket, largest)
    return result


def _forecast(month: Json, rows: dict[datetime.date, Json], window: Window) -> str | None:
    if month["bad_s"] and month["budget_left_s"] <= 0:
        return "exhausted"
    week = [r for date, r in rows.items() if window.date - date < datetime.timedelta(days=7)]
    known = [row for row in week if row["good_s"] + row["bad_s"] > 0]
    bad = sum(row["bad_s"] for row in week)
    if not bad:
        return None
    rate = bad / len(known)
    whole_days = int(month["budget_left_s"] / rate)
    return (window.date + datetime.timedelta(days=whole_days)).isoformat()
