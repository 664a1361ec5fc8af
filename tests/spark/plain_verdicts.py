"""The nightly report once more, slow and obvious: groups and verdicts.

Standard library only, like plain_report.py, which uses this.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from tests.spark.plain_answers import answers, share_verdict
from tests.spark.plain_bounds import (
    Past,
    at_risk,
    exposure,
    stood_at,
    two_masters,
)
from tests.spark.plain_bounds import ages as bounds_of_ages
from tests.spark.plain_bounds import sends as bounds_of_sends
from tests.spark.plain_elections import TWICE
from tests.spark.plain_lag import PlainLag, lag_verdicts
from tests.spark.plain_samples import (
    QUANTILES,
    SEND_RESULTS,
    SYNC_RESULTS,
    Json,
    Key,
    Sample,
    Tables,
    Window,
    difference,
    histogram_of,
    rise,
    rise_of_field,
    weighted,
)
from tests.spark.plain_spells import IS_MASTER, refused_by_others

BREACHED, INSUFFICIENT, MET = "breached", "insufficient data", "met"
WORST_FIRST: Final = (BREACHED, INSUFFICIENT, MET)
DEFAULT_SYNC_OK_PERCENT: Final = 99.9


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
    first_copy_hours: float = 24
    sends_ok_percent: float | None = None
    consumer_lag: tuple[PlainLag, ...] | None = None
    sync_ok_given: bool = False
    """Whether it says anything of sync sends, if only (without a percentage) that they are not
    judged."""

    def matches(self, key: Key) -> bool:
        patterns = (self.cluster, self.broker, self.replica)
        return all(map(fnmatch.fnmatchcase, key, patterns))

    def budget_s(self, length_s: float) -> float:
        return round((100 - self.availability_percent) * length_s / 100, 3)

    def sync_ok_of(self, group: Json | None) -> float | None:
        """Which percentage holds for a replica of this group; None: not judged."""
        if self.sync_ok_percent is not None or self.sync_ok_given:
            return self.sync_ok_percent
        is_sync = group is not None and group.get("role") == "SYNC_MASTER"
        return DEFAULT_SYNC_OK_PERCENT if is_sync else None


Exclusion = tuple[tuple[str, str, str], int, int, str]
"""Maintenance: patterns of cluster, broker and replica, from, to (epoch ms), reason."""


@dataclass(frozen=True)
class PlainQuestion:
    """What is asked about one date."""

    dumps: list[Path]
    window: Window
    objectives: list[PlainObjective] = field(default_factory=lambda: [PlainObjective()])
    expect: list[Key] = field(default_factory=list)
    retired: list[Key] = field(default_factory=list)
    lengths: tuple[int, ...] = (7, 30)
    exclusions: list[Exclusion] = field(default_factory=list)


def worst(verdicts: list[str]) -> str:
    """breached > insufficient > met; nothing at all is insufficient data."""
    return min(verdicts, key=WORST_FIRST.index, default=INSUFFICIENT)


def key_of(row: Json) -> Key:
    return row["cluster"], row["broker"], row["replica"]


def named(key: Key) -> Json:
    return dict(zip(("cluster", "broker", "replica"), key, strict=True))


def ratio(part: float, whole: float) -> float | None:
    """None where the whole is nothing."""
    return part / whole if whole else None


def date_of(tables: Tables) -> datetime.date:
    date: datetime.date = tables["dt"][0]["dt"]
    return date


# -- groups ----------------------------------------------------------------------------------


def group_day(
    group: tuple[str, str],
    stream: list[Sample],
    past: Past,
    window: Window,
    others: list[list[Sample]],
) -> Json:
    """What is told of a broker group as a whole; the verdict is added by who knows it. `others`:
    streams of members that do not lead."""
    inside = [sample for sample in stream if sample.in_window]
    row: Json = {"cluster": group[0], "broker": group[1], "samples": len(inside)}
    row["closed"] = any(sample.is_closing for sample in stream)
    if not inside:  # its replicas are expected all the same
        return row
    roles = [sample.role for sample in inside]
    row["role"] = "SYNC_MASTER" if "SYNC_MASTER" in roles else roles[-1]
    stood = {boot: stood_at(stream, boot) for boot in {s.boot for s in stream}}
    risks = [(s, at_risk(s, stood[s.boot])) for s in stream]
    for place, name in enumerate(("unreplicated_bytes", "oldest_unreplicated_ms")):
        known = [(risk[place], s.segment_ms) for s, risk in risks if risk[place] is not None]
        figures = weighted(known)
        row |= {f"{name}_max": figures["max"], f"{name}_p99": figures["p99"]}
        row[f"{name}_hist"] = histogram_of(known)
    exposed = [s for s in stream if s.line["unreplicated_bytes"] is not None and s.segment_ms]
    byte_ms = sum((risk[0] or 0) * s.segment_ms for s, risk in risks)
    row["exposure_byte_s"] = byte_ms / 1000 if exposed else None
    row["exposure_covered_s"] = sum(s.segment_ms for s in exposed) / 1000
    least, most = refused_by_others(others, window)
    results = {name: sum(_rise_of_sync(s, name) for s in inside) for name in SYNC_RESULTS}
    results = {name: count + least[f"sync_{name}"] for name, count in results.items()}
    row |= {f"sync_{name}": count for name, count in results.items()}
    sends = sum(results.values())
    row["sync_ok_ratio"] = results["ok"] / sends if sends else None
    row |= _ack_latency(inside)
    row |= answers_of_sends(inside)
    for name in SEND_RESULTS[1:]:
        if row[f"sends_{name}"] is not None:
            row[f"sends_{name}"] += least[f"sends_{name}"]
    row["msgs_in"] = sum(rise_of_field(sample, "msgs_in") for sample in inside)
    row["bytes_in"] = sum(rise_of_field(sample, "bytes_in") for sample in inside)
    row["restarts"] = sum(_is_restart(sample) for sample in inside)
    row |= exposure(stream, past, window) | bounds_of_sends(stream, past, window)
    row |= answers(stream, past, window)
    for kind in ("sends", "sync"):
        for side, counts in (("least", least), ("most", most)):
            if row[f"{kind}_failed_{side}"] is not None:
                failed = sum(n for name, n in counts.items() if name.startswith(f"{kind}_"))
                row[f"{kind}_failed_{side}"] += failed
    both = two_masters(stream, past, window)
    row["two_masters_s"] = sum(end - start for start, end in both) / 1000
    row["ready_samples"] = sum(sample.ready for sample in inside)
    return row


def _is_restart(sample: Sample) -> bool:
    """A boot begins; but not the first life of a broker, and not another role of a member."""
    if "/" in sample.boot:
        return False
    if sample.predecessor is not None:
        return not sample.same_boot
    return bool(sample.seq == 1 and sample.line.get("prev_boot"))


def answers_of_sends(inside: list[Sample]) -> Json:
    """Of all sends: known where every line of the window is of version 2."""
    names = ("ok", "flush_disk_timeout", "flush_slave_timeout", "slave_not_available", "refused")
    if any(sample.line["v"] == 1 or not sample.line.get("sends") for sample in inside):
        return {f"sends_{name}": None for name in names}
    found: Json = {}
    for name in names:
        pairs = [(sample, sample.predecessor) for sample in inside]
        counts = [
            (each, before.line["sends"][name] if before and before.line.get("sends") else None)
            for each, before in pairs
        ]
        found[f"sends_{name}"] = sum(rise(each, each.line["sends"][name], c) for each, c in counts)
    return found


def _rise_of_sync(sample: Sample, name: str) -> int:
    before = sample.predecessor.sync[name] if sample.predecessor else None
    return rise(sample, sample.sync[name], before)


def _ack_latency(inside: list[Sample]) -> Json:
    sums: dict[float, int] = {}
    total_ns = 0
    for sample in inside:
        now = _buckets(sample)
        before = _buckets(sample.predecessor) if sample.predecessor else {}
        for bound, count in now.items():
            sums[bound] = sums.get(bound, 0) + difference(sample, count, before.get(bound))
        earlier = _whole_ns(sample.predecessor) if sample.predecessor else None
        total_ns += difference(sample, _whole_ns(sample), earlier)
    bounds = sorted(sums)[:-1]
    counts = [sums[bound] for bound in sorted(sums)]
    row: Json = {"ack_le": bounds, "ack_counts": counts, "ack_sum_s": total_ns / 1e9}
    for name in ("p50", "p99", "p999"):
        row[f"ack_{name}_s"] = bucket_quantile(float(QUANTILES[name]), bounds, counts)
    return row


def _whole_ns(sample: Sample) -> int:
    seconds: float = sample.ack_latency["sum"]
    return math.floor(seconds * 1e9 + 0.5)


def _buckets(sample: Sample) -> dict[float, int]:
    """Counts by the upper bounds of their buckets."""
    latency = sample.ack_latency
    return dict(zip([*latency["le"], math.inf], latency["counts"], strict=True))


def bucket_quantile(share: float, bounds: list[float], counts: list[int]) -> float | None:
    rank, below = share * sum(counts), 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            lower = bounds[index - 1] if index else 0.0
            if index == len(bounds):
                return lower
            return lower + (bounds[index] - lower) * (rank - below) / count
        below += count
    return None


def metadata_of(stream: list[Sample], past: Past, window: Window) -> list[Json]:
    """How stale a slave's copies were, by kind, from its own samples."""
    ages: dict[str, list[tuple[int, int]]] = defaultdict(list)
    failures: dict[str, int] = defaultdict(int)
    for sample in stream:
        before = _kinds(sample.predecessor)
        for kind, entry in _kinds(sample).items():
            earlier = before[kind]["failures"] if kind in before else None
            if sample.in_window:
                failures[kind] += rise(sample, entry["failures"], earlier)
            if entry["age_ms"] is not None and sample.segment_ms:
                ages[kind].append((entry["age_ms"], sample.segment_ms))
    return [
        {
            "kind": kind,
            "max_age_ms": weighted(ages[kind])["max"],
            "p99_age_ms": weighted(ages[kind])["p99"],
            "failures": failures[kind],
            "covered_s": sum(length for _, length in ages[kind]) / 1000,
            **bounds_of_ages(stream, kind, past, window),
        }
        for kind in sorted(failures.keys() | ages.keys())
    ]


def _kinds(sample: Sample | None) -> dict[str, Json]:
    entries: list[Json] = (sample.line.get("metadata") or []) if sample else []
    return {entry["kind"]: entry for entry in entries}


# -- verdicts --------------------------------------------------------------------------------


def verdict_of(
    objective: PlainObjective,
    day: Json,
    group: Json | None,
    elections: list[Json],
    lags: tuple[list[Json], int] = ([], 0),
) -> str:
    """The worst of a replica's criteria; two masters at once, and a broker that was never ready,
    are met by nothing, nor is a day with an election that lost what was acknowledged."""
    told = group if group is not None and group["samples"] else None
    reasons = {each["reason"] for each in day["exclusions"]}
    is_excluded = day["excluded_s"] == day["window_s"]
    verdicts = [BREACHED for row in elections if row["promise"] == "lost"]
    verdicts += [INSUFFICIENT for row in elections if row["why"] == TWICE]
    if is_excluded and not reasons & {"first copy", IS_MASTER}:
        return worst([MET, *verdicts])
    verdicts.append(MET if is_excluded else available(objective, day))
    promised = lag_verdicts(objective.consumer_lag or (), objective.availability_percent, *lags)
    verdicts += [verdict for _, verdict in promised]
    if told is not None and (told["two_masters_s"] > 0 or told["ready_samples"] == 0):
        verdicts.append(INSUFFICIENT)
    if is_excluded:
        wanted = objective.sync_ok_of(group)
        verdicts += [] if wanted is None else _sync_ok(told, wanted)
        return worst([*verdicts, *_sends_ok(objective, told)])
    verdicts += _sends_ok(objective, told)
    if objective.lag_p99_seconds is not None:
        verdicts.append(_lag_p99(day))
    wanted = objective.sync_ok_of(group)
    if wanted is not None:
        verdicts += _sync_ok(told, wanted)
    limit = objective.rpo_bytes
    if limit is not None:
        least, most = (told or {}).get("exposure_at_least"), (told or {}).get("exposure_at_most")
        free_s = told["exposure_unbounded_s"] if told is not None else 0
        verdicts.append(
            judged((least or 0) > limit, most is not None and most <= limit and free_s == 0)
        )
    if objective.metadata_age_seconds is not None:
        limit_ms = objective.metadata_age_seconds * 1000
        kinds = day["metadata"]
        if kinds or objective.metadata_required:
            verdicts.append(
                judged(
                    any((kind["at_least_ms"] or 0) > limit_ms for kind in kinds),
                    bool(kinds) and all(_is_young(kind, limit_ms) for kind in kinds),
                )
            )
    return worst(verdicts)


def _is_young(kind: Json, limit_ms: float) -> bool:
    most = kind["at_most_ms"]
    return most is not None and bool(most <= limit_ms) and kind["unbounded_s"] == 0


def _lag_p99(day: Json) -> str:
    above, unknown = day["lag_p99_above_s"], day["lag_p99_unknown_s"]
    if above is None:
        return INSUFFICIENT
    asked = day["window_s"] - day["excluded_s"] - day["state_down_s"]
    allowed = round(asked / 100, 3)
    return judged(above > allowed, asked > 0 and round(above + unknown, 6) <= allowed)


def _sends_ok(objective: PlainObjective, group: Json | None) -> list[str]:
    if objective.sends_ok_percent is None:
        return []
    found = share_verdict(group, objective.sends_ok_percent)
    return [] if found is None else [judged(*found)]


def _sync_ok(group: Json | None, wanted: float) -> list[str]:
    if group is None:
        return [INSUFFICIENT]
    ok = group["sync_ok_least"], group["sync_ok_most"]
    failed = group["sync_failed_least"], group["sync_failed_most"]
    if ok[1] + failed[1] == 0:
        return []  # nobody sent synchronously
    at_best = Fraction(ok[1], ok[1] + failed[0]) if ok[1] + failed[0] else Fraction(1)
    at_worst = Fraction(ok[0], ok[0] + failed[1]) if ok[0] + failed[1] else Fraction(1)
    share = Fraction(str(wanted)) / 100
    return [judged(at_best < share, at_worst >= share)]


def available(objective: PlainObjective, row: Json) -> str:
    """Availability, of a day or of a window: met only if the budget holds all unknown time."""
    if row["bad_s"] > row["budget_s"]:
        return BREACHED
    if row["excluded_s"] == row["window_s"]:
        return MET
    at_worst = round(row["bad_s"] + row["unknown_s"], 6)
    covered = row["coverage"] * 100 >= objective.min_coverage_percent
    return judged(False, covered and at_worst <= row["budget_s"])


def judged(breached: bool, covered: bool) -> str:
    if breached:
        return BREACHED
    return MET if covered else INSUFFICIENT
