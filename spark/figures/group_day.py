"""One broker group's day in figures: samples, sends, exposure, and its slaves' metadata.

Runs in the executors, over the group's samples (spark/figures/sample_stream.py); its replicas are
in spark/figures/replica_day.py. Each figure's rule is in docs/sla_report.md. Rows are dictionaries
by column (spark/figures/result_tables.py). Must not know objectives' criteria, stored results or
pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark.figures.distributions import (
    ack_figures,
    distribution,
    largest,
    percentiles,
    send_ratio,
    whole_ns,
)
from spark.figures.result_tables import PERCENTILES
from spark.figures.sample_stream import GroupSamples, Sample, Stream
from spark.reported_day import Day
from spark.vocabulary import MINUTE_MS, SYNC_RESULTS

Row = dict[str, Any]

_MILLION: Final = 1_000_000
_DEFAULT_INTERVAL_MS: Final = 5_000
P99: Final = {"p99": PERCENTILES["p99"]}
_EXPOSED: Final = ("unreplicated_bytes", "oldest_unreplicated_ms")


def risen(sample: Sample, now: int, before: int | None) -> int:
    """What a counter counted since the predecessor, never below 0: all of it where the boot began
    in the window, nothing where neither is known. `before`: of the predecessor of its boot."""
    if sample.same_boot:
        return max(0, now - (before or 0))
    return now if sample.from_zero else 0


def spoken(stream: Stream, day: Day) -> list[tuple[int, int, Sample]]:
    """(start_ms, end_ms, sample): segments that have a part in the window, clipped to it."""
    found = []
    for sample in stream.samples:
        start_ms, end_ms = max(sample.spoken_ms, day.w0_ms), min(sample.ts, day.w1_ms)
        if start_ms < end_ms:
            found.append((start_ms, end_ms, sample))
    return found


class GroupFigures:
    """What is the same for all replicas of the group. `segments`: see `spoken`; `written` and
    `msgs_in` by minute."""

    def __init__(self, samples: GroupSamples, day: Day) -> None:
        self.stream: Final = samples.masters
        self.day: Final = day
        self.segments: Final = spoken(self.stream, day)
        self.columns: Final = _sample_counts(samples, self.segments, day)
        self.first_minute: Final = day.w0_ms - day.w0_ms % MINUTE_MS
        self.minutes: Final = -(-(day.w1_ms - self.first_minute) // MINUTE_MS)
        self.msgs_in: Final = [0] * self.minutes
        self.written: Final = [False] * self.minutes
        for sample in self.stream.inside:
            minute = (sample.ts - self.first_minute) // MINUTE_MS
            before = sample.boot_predecessor
            past = before.line.msgs_in if before is not None else None
            self.msgs_in[minute] += risen(sample, sample.line.msgs_in, past)
            if before is not None and sample.line.max_offset > before.line.max_offset:
                self.written[minute] = True


def _sample_counts(
    samples: GroupSamples, segments: Sequence[tuple[int, int, Sample]], day: Day
) -> Row:
    inside = samples.masters.inside
    interval_ms = inside[-1].line.interval_ms if inside else _DEFAULT_INTERVAL_MS
    spoken_ms = sum(end_ms - start_ms for start_ms, end_ms, _ in segments)
    # Whole millionths of a sample: their sum does not depend on the order.
    parts = [(end_ms - start_ms, each.line.interval_ms) for start_ms, end_ms, each in segments]
    parts.append((day.window_ms - spoken_ms, interval_ms))
    millionths = sum(math.floor(ms * _MILLION / interval + 0.5) for ms, interval in parts)
    return {
        "interval_s": interval_ms / 1000,
        "expected": math.floor(millionths / _MILLION + 0.5),
        "received": len(inside),
        "duplicates": sum(sample.duplicates for sample in inside),
        "conflicts": sum(sample.conflict for sample in inside),
        "out_of_order": sum(sample.out_of_order for sample in inside),
        "clock_skew_ms": _clock_skew_ms(inside),
        "input_digest": samples.digest,
    }


def _clock_skew_ms(inside: Iterable[Sample]) -> int | None:
    ends: dict[str, tuple[int, int]] = {}
    for sample in inside:
        skew = sample.ts - sample.line.mono
        low, high = ends.get(sample.line.boot, (skew, skew))
        ends[sample.line.boot] = (min(low, skew), max(high, skew))
    return max((high - low for low, high in ends.values()), default=None)


# -- the group -------------------------------------------------------------------------------


def group_columns(group: GroupFigures) -> Row:
    """The columns of group_days but verdict and revision."""
    inside = group.stream.inside
    row: Row = {"samples": len(inside), "closed": bool(group.stream.closing)}
    row["role"] = inside[-1].line.role if inside else None
    for name in _EXPOSED:
        weights: dict[int, int] = {}
        for start_ms, end_ms, sample in group.segments:
            value = getattr(sample.line, name)
            if value is not None:
                weights[value] = weights.get(value, 0) + end_ms - start_ms
        row |= distribution(name, weights, P99)
        if name == "unreplicated_bytes":
            row["exposure_covered_s"] = sum(weights.values()) / 1000
            exposure = sum(value * ms for value, ms in weights.items())
            row["exposure_byte_s"] = exposure / 1000 if weights else None
    if not inside:
        return {**row, "exposure_covered_s": None}
    row |= _sends(inside)
    row["restarts"] = sum(map(_is_restart, inside))
    return row


def _sends(inside: Sequence[Sample]) -> Row:
    msgs_in = bytes_in = 0
    sync = dict.fromkeys(SYNC_RESULTS, 0)
    for sample in inside:
        line, before = sample.line, sample.boot_predecessor
        past = before.line if before is not None else None
        msgs_in += risen(sample, line.msgs_in, past.msgs_in if past else None)
        bytes_in += risen(sample, line.bytes_in, past.bytes_in if past else None)
        if past is None or line.sync != past.sync:
            for name in SYNC_RESULTS:
                earlier = getattr(past.sync, name) if past else None
                sync[name] += risen(sample, getattr(line.sync, name), earlier)
    row: Row = {f"sync_{name}": count for name, count in sync.items()}
    row |= {"msgs_in": msgs_in, "bytes_in": bytes_in, **_latency(inside)}
    row["sync_ok_ratio"] = send_ratio(row)
    return row


def _latency(inside: Sequence[Sample]) -> Row:
    """Of runs of one boot: what the last line counted, less what had been counted before the
    first. Unlike other counters it may seem to fall; buckets are added up by their bound."""
    buckets: dict[float, int] = {}
    total_ns = 0

    def add(sample: Sample, sign: int) -> int:
        latency = sample.line.ack_latency
        for bound, count in zip((*latency.le, math.inf), latency.counts, strict=True):
            buckets[bound] = buckets.get(bound, 0) + sign * count
        return sign * whole_ns(latency.sum)

    for place, sample in enumerate(inside):
        before = sample.boot_predecessor
        if before is None or not before.in_window:
            if before is not None:
                total_ns += add(before, -1)
            elif not sample.from_zero:
                total_ns += add(sample, -1)
        if place + 1 == len(inside) or inside[place + 1].boot_predecessor is not sample:
            total_ns += add(sample, 1)
    return ack_figures(buckets) | {"ack_sum_s": total_ns / 1_000_000_000}


def _is_restart(sample: Sample) -> bool:
    """A boot begins; but not the first life of a broker."""
    if sample.predecessor is not None:
        return not sample.same_boot
    return sample.line.seq == 1 and sample.line.prev_boot is not None


def metadata_columns(slave: Stream, day: Day) -> list[Row]:
    """Of a slave that writes dumps itself: how old its metadata was, by kind."""
    ages: dict[str, dict[int, int]] = {}
    failures: dict[str, int] = {}
    for sample in slave.inside:
        before = sample.boot_predecessor
        past = {each.kind: each.failures for each in _first_of_kind(before)} if before else {}
        for each in _first_of_kind(sample):
            rise = risen(sample, each.failures, past.get(each.kind))
            failures[each.kind] = failures.get(each.kind, 0) + rise
    for start_ms, end_ms, sample in spoken(slave, day):
        for each in _first_of_kind(sample):
            if each.age_ms is not None and each.kind in failures:
                weights = ages.setdefault(each.kind, {})
                weights[each.age_ms] = weights.get(each.age_ms, 0) + end_ms - start_ms
    return [
        {
            "kind": kind,
            "max_age_ms": largest(ages.get(kind, {})),
            "p99_age_ms": percentiles(ages.get(kind, {}), P99)["p99"],
            "failures": failures[kind],
            "covered_s": sum(ages.get(kind, {}).values()) / 1000,
        }
        for kind in sorted(failures)
    ]


def _first_of_kind(sample: Sample) -> list[Any]:
    return list({each.kind: each for each in reversed(sample.line.metadata or [])}.values())
