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

from spark.figures.age_bounds import AgeBounds, age_bounds, first_of_kind
from spark.figures.answer_bounds import answer_bounds
from spark.figures.distributions import (
    Weights,
    ack_figures,
    distribution,
    largest,
    percentiles,
    send_ratio,
    whole_ns,
)
from spark.figures.exposure_bounds import at_risk, exposure_bounds, reported_positions
from spark.figures.other_members import answered_by_others
from spark.figures.result_tables import PERCENTILES
from spark.figures.sample_stream import GroupSamples, Sample, Stream
from spark.figures.send_answers import send_columns
from spark.figures.send_bounds import send_bounds
from spark.figures.spells import is_change_of_role
from spark.figures.two_masters import Ancestry, Overlap, columns, overlaps
from spark.reported_day import Day
from spark.vocabulary import MINUTE_MS, SEND_ANSWERS, SYNC_MASTER, SYNC_RESULTS

Row = dict[str, Any]

_MILLION: Final = 1_000_000
_DEFAULT_INTERVAL_MS: Final = 5_000
P99: Final = {"p99": PERCENTILES["p99"]}


def risen(sample: Sample, now: int, before: int | None) -> int:
    """What a counter counted since the predecessor, never below 0: all of it where the boot began
    in the window, nothing where neither is known. `before`: of the predecessor of its boot."""
    if sample.same_boot:
        return max(0, now - (before or 0))
    return now if sample.from_zero else 0


def spoken(stream: Stream, day: Day) -> list[tuple[int, int, Sample]]:
    """(start_ms, end_ms, sample): segments that have a part in the window, clipped to it."""
    found = []
    w0_ms, w1_ms = day.w0_ms, day.w1_ms
    for sample in stream.samples:
        start_ms, end_ms = sample.spoken_ms, sample.ts
        if start_ms < w0_ms:
            start_ms = w0_ms
        if end_ms > w1_ms:
            end_ms = w1_ms
        if start_ms < end_ms:
            found.append((start_ms, end_ms, sample))
    return found


class GroupFigures:
    """What is the same for all replicas of the group. `segments`: see `spoken`; `minute_of`: of
    each segment the number of the minute that it lies in, -1 for one that lies in several;
    `at_risk`, `oldest`: exposure, value -> ms; `counters`: of the window; `written` and `msgs_in`
    by minute; `overlaps`: two masters at once; `others`: answers of members that did not lead."""

    def __init__(self, samples: GroupSamples, day: Day) -> None:
        self.stream: Final = samples.masters
        self.day: Final = day
        self.segments: Final = spoken(self.stream, day)
        self.first_minute: Final = day.w0_ms - day.w0_ms % MINUTE_MS
        self.minutes: Final = -(-(day.w1_ms - self.first_minute) // MINUTE_MS)
        self.minute_of: Final[list[int]] = []
        self.ancestry: Final = Ancestry(samples)
        self.overlaps: Final[list[Overlap]] = overlaps(samples, self.ancestry, day)
        self.others: Final = answered_by_others(samples, day)
        self.at_risk: Final[dict[int, int]] = {}
        self.oldest: Final[dict[int, int]] = {}
        self.msgs_in: Final = [0] * self.minutes
        self.written: Final = [False] * self.minutes
        self.counters: Final = self._count()
        self.columns: Final = _sample_counts(samples) | {"expected": self._expected()}

    def _expected(self) -> int:
        """How many samples there should be; the segments' minutes and exposure on the way."""
        first, risks, oldest = self.first_minute, self.at_risk, self.oldest
        stood = reported_positions(self.stream.samples)
        spoken_ms = millionths = 0
        # Whole millionths of a sample: their sum does not depend on the order.
        for start_ms, end_ms, sample in self.segments:
            line, ms = sample.line, end_ms - start_ms
            minute, within_ms = divmod(start_ms - first, MINUTE_MS)
            self.minute_of.append(minute if within_ms + ms <= MINUTE_MS else -1)
            spoken_ms += ms
            millionths += int(ms * _MILLION / line.interval_ms + 0.5)
            size, age = at_risk(sample, stood.get(line.boot))
            if size is not None:
                risks[size] = risks.get(size, 0) + ms
            if age is not None:
                oldest[age] = oldest.get(age, 0) + ms
        silent_ms = self.day.window_ms - spoken_ms
        interval_ms = _interval_ms(self.stream.inside)
        millionths += math.floor(silent_ms * _MILLION / interval_ms + 0.5)
        return math.floor(millionths / _MILLION + 0.5)

    def _count(self) -> Row:
        """What the counters of sends counted; `msgs_in` and `written` on the way."""
        first, msgs_in, written = self.first_minute, self.msgs_in, self.written
        bytes_in = sync_ok = 0
        others = dict.fromkeys(SYNC_RESULTS[1:], 0)
        for sample in self.stream.inside:
            line, before = sample.line, sample.boot_predecessor
            minute = (sample.ts - first) // MINUTE_MS
            if before is None:
                msgs_in[minute] += risen(sample, line.msgs_in, None)
                bytes_in += risen(sample, line.bytes_in, None)
                sync_ok += risen(sample, line.sync.ok, None)
                for name in others:
                    others[name] += risen(sample, getattr(line.sync, name), None)
                continue
            past = before.line
            if line.max_offset > past.max_offset:
                written[minute] = True
            if line.msgs_in > past.msgs_in:
                msgs_in[minute] += line.msgs_in - past.msgs_in
            if line.bytes_in > past.bytes_in:
                bytes_in += line.bytes_in - past.bytes_in
            now, then = line.sync, past.sync
            if now.ok > then.ok:
                sync_ok += now.ok - then.ok
            if (
                now.flush_slave_timeout != then.flush_slave_timeout
                or now.slave_not_available != then.slave_not_available
                or now.flush_disk_timeout != then.flush_disk_timeout
            ):
                for name in others:
                    others[name] += max(0, getattr(now, name) - getattr(then, name))
        sync = {"ok": sync_ok, **others}
        row: Row = {f"sync_{name}": count for name, count in sync.items()}
        return row | {"msgs_in": sum(msgs_in), "bytes_in": bytes_in}


def _interval_ms(inside: Sequence[Sample]) -> int:
    return inside[-1].line.interval_ms if inside else _DEFAULT_INTERVAL_MS


def _sample_counts(samples: GroupSamples) -> Row:
    inside = samples.masters.inside
    return {
        "interval_s": _interval_ms(inside) / 1000,
        "received": sum([sample.is_line for sample in inside]),
        "duplicates": sum([sample.duplicates for sample in inside]),
        "conflicts": sum([sample.conflict for sample in inside]),
        "out_of_order": sum([sample.out_of_order for sample in inside]),
        "clock_skew_ms": _clock_skew_ms(inside),
        "input_digest": samples.digest,
    }


def _clock_skew_ms(inside: Iterable[Sample]) -> int | None:
    ends: dict[str, list[int]] = {}
    boot, of_boot = None, [0, 0]
    for sample in inside:
        line = sample.line
        skew = line.ts - line.mono
        if line.boot != boot:
            boot = line.boot
            of_boot = ends.setdefault(boot, [skew, skew])
        if skew < of_boot[0]:
            of_boot[0] = skew
        elif skew > of_boot[1]:
            of_boot[1] = skew
    return max((high - low for low, high in ends.values()), default=None)


# -- the group -------------------------------------------------------------------------------


def _role(inside: Sequence[Sample]) -> str | None:
    """What waited for replicas at any moment promised it for the window; else the last role."""
    if any(sample.line.role == SYNC_MASTER for sample in inside):
        return SYNC_MASTER
    return inside[-1].line.role if inside else None


def group_columns(group: GroupFigures) -> Row:
    """The columns of group_days but verdict and revision."""
    inside = group.stream.inside
    row: Row = {"samples": len(inside), "closed": bool(group.stream.closing)}
    row["role"] = _role(inside)
    if not inside:  # a closing sample alone says too little of a group
        return {**row, **_exposure({}, {}), "exposure_covered_s": None}
    row |= {**_exposure(group.at_risk, group.oldest), **group.counters, **_latency(inside)}
    row |= send_columns(inside, risen)
    for name, count in group.others.least.items():
        if row[name] is not None:
            row[name] += count
    row["sync_ok_ratio"] = send_ratio(row)
    row["restarts"] = sum(map(_is_restart, inside))
    return row | _bounds(group)


def _bounds(group: GroupFigures) -> Row:
    """What is proved from both sides, and what puts all of it in doubt."""
    exposed = exposure_bounds(group.stream, group.ancestry, group.day)
    sent = send_bounds(group.stream, group.ancestry, group.day)
    others_least, others_most = group.others.failed("sync", SYNC_RESULTS)
    return {
        "exposure_at_least": exposed.at_least,
        "exposure_at_most": exposed.at_most,
        "exposure_unmarked": exposed.unmarked,
        "exposure_unbounded_s": exposed.unbounded_ms / 1000,
        "sync_ok_least": sent.ok_least,
        "sync_ok_most": sent.ok_most,
        "sync_failed_least": sent.failed_least + others_least,
        "sync_failed_most": sent.failed_most + others_most,
        **_answers(group),
        **columns(group.overlaps),
        "ready_samples": sum([sample.line.ready for sample in group.stream.inside]),
    }


def _answers(group: GroupFigures) -> Row:
    """All sends of clients."""
    found = answer_bounds(group.stream, group.ancestry, group.day)
    if not found.le:
        return {"sends_uncounted": found.uncounted}
    others_least, others_most = group.others.failed("sends", SEND_ANSWERS)
    return {
        "sends_ok_least": found.ok_least,
        "sends_ok_most": found.ok_most,
        "sends_failed_least": found.failed_least + others_least,
        "sends_failed_most": found.failed_most + others_most,
        "sends_le": found.le,
        "sends_least": found.least,
        "sends_most": found.most,
        "sends_unmeasured": found.unmeasured,
        "sends_uncounted": found.uncounted,
    }


def _exposure(at_risk: Weights, oldest: Weights) -> Row:
    row = distribution("unreplicated_bytes", at_risk, P99)
    row |= distribution("oldest_unreplicated_ms", oldest, P99)
    row["exposure_covered_s"] = sum(at_risk.values()) / 1000
    exposure = sum(size * ms for size, ms in at_risk.items())
    row["exposure_byte_s"] = exposure / 1000 if at_risk else None
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
    """A boot begins; but not the first life of a broker, and nothing begins with another role."""
    if sample.same_boot or is_change_of_role(sample.line):
        return False
    if sample.predecessor is not None:
        return True
    return sample.line.seq == 1 and sample.line.prev_boot is not None


def metadata_columns(slave: Stream, ancestry: Ancestry, day: Day) -> list[Row]:
    """Of a slave that writes dumps itself: how old its metadata was, by kind."""
    ages: dict[str, dict[int, int]] = {}
    failures: dict[str, int] = {}
    for sample in slave.inside:
        before = sample.boot_predecessor
        past = {each.kind: each.failures for each in first_of_kind(before)} if before else {}
        for each in first_of_kind(sample):
            rise = risen(sample, each.failures, past.get(each.kind))
            failures[each.kind] = failures.get(each.kind, 0) + rise
    for start_ms, end_ms, sample in spoken(slave, day):
        for each in first_of_kind(sample):
            if each.age_ms is not None:
                failures.setdefault(each.kind, 0)  # of a closing sample alone, perhaps
                weights = ages.setdefault(each.kind, {})
                weights[each.age_ms] = weights.get(each.age_ms, 0) + end_ms - start_ms
    return [
        {
            "kind": kind,
            "max_age_ms": largest(ages.get(kind, {})),
            "p99_age_ms": percentiles(ages.get(kind, {}), P99)["p99"],
            "failures": failures[kind],
            "covered_s": sum(ages.get(kind, {}).values()) / 1000,
            **_age_columns(age_bounds(slave, kind, ancestry, day)),
        }
        for kind in sorted(failures)
    ]


def _age_columns(bounds: AgeBounds) -> Row:
    return {
        "at_least_ms": bounds.at_least_ms,
        "at_most_ms": bounds.at_most_ms,
        "unbounded_s": bounds.unbounded_ms / 1000,
    }
