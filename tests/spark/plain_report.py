"""The nightly report once more, slow and obvious: from samples to every figure and verdict.

Standard library only: the independent check of the Spark program, written from
docs/sla_report.md alone; it must not import anything of spark/. `plain_report` gives the tables
as lists of dictionaries with the column names of the Parquet results.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.spark.plain_samples import (
    DAY_MS,
    HOUR_MS,
    MASTER_ROLES,
    STATES,
    Json,
    Key,
    Sample,
    Tables,
    Window,
    histogram_of,
    in_order,
    read_dumps,
    rise_of_field,
    rise_of_row,
    weighted,
)
from tests.spark.plain_verdicts import (
    PlainObjective,
    date_of,
    group_day,
    key_of,
    metadata_of,
    named,
    verdict_of,
    window_row,
    worst,
)

MINUTE_MS: Final = 60_000
SPANS_MS: Final = {"1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": DAY_MS, "3d": 3 * DAY_MS}


@dataclass
class Segment:
    """Part of the window of one replica. `sample` is None for unknown time."""

    start: int
    end: int
    quality: str
    down: bool = False
    sample: Sample | None = None
    row: Json | None = None

    @property
    def length_ms(self) -> int:
        return self.end - self.start


@dataclass
class Replica:
    """One replica of D while its figures are computed."""

    key: Key
    objective: PlainObjective
    stream: list[Sample]
    segments: list[Segment]
    incidents: list[Json] = field(default_factory=list)
    minutes: dict[int, Json] = field(default_factory=dict)

    @property
    def inside(self) -> list[Sample]:
        return [sample for sample in self.stream if sample.in_window]

    def total_ms(self, quality: str) -> int:
        return sum(s.length_ms for s in self.segments if s.quality == quality)


def plain_report(
    dumps: list[Path],
    window: Window,
    objectives: list[PlainObjective],
    *,
    expect: list[Key] | None = None,
    retired: list[Key] | None = None,
    history: list[Tables] | None = None,
) -> Tables:
    """All tables of one date. `history`: what this function gave for earlier dates."""
    found = read_dumps(dumps, window)
    masters: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    slaves: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in found.samples:
        if sample.role in MASTER_ROLES:
            masters[sample.cluster, sample.broker].append(sample)
        elif sample.role == "SLAVE":
            slaves[sample.cluster, sample.broker, sample.broker_id].append(sample)
    streams = {group: in_order(samples, window) for group, samples in masters.items()}
    metadata = {
        (cluster, broker, f"{broker}:{broker_id}"): metadata_of(in_order(samples, window), window)
        for (cluster, broker, broker_id), samples in slaves.items()
    }
    earlier = [day for day in history or [] if date_of(day) < window.date]
    tables: Tables = {name: [] for name in ("replica_days", "group_days", "windows")}
    tables |= {name: [] for name in ("incidents", "minutes")}
    tables["bad_lines"] = [{"file": file, "text": text} for file, text in found.bad_lines]
    tables["dt"] = [{"dt": window.date}]
    groups = {
        group: group_day(group, stream, window)
        for group, stream in streams.items()
        if any(sample.in_window for sample in stream)
    }
    for key in _replicas_of(streams, earlier, window, expect or [], retired or []):
        stream = streams.get(key[:2], [])
        objective = next(o for o in objectives if o.matches(key))
        replica = Replica(key, objective, stream, _timeline(key[2], stream, objective, window))
        replica.incidents = _incidents(replica, window)
        replica.minutes = _minutes(replica, window)
        day = _replica_day(replica, window, metadata.get(key, []), groups.get(key[:2]), earlier)
        tables["replica_days"].append(day)
        tables["incidents"] += replica.incidents
        tables["minutes"] += replica.minutes.values()
        tables["windows"] += [window_row(n, key, objective, day, earlier, window) for n in (7, 30)]
    for group in {key_of(row)[:2] for row in tables["replica_days"]} - groups.keys():
        groups[group] = group_day(group, [], window)
    for group, row in groups.items():
        verdicts = [d["verdict"] for d in tables["replica_days"] if key_of(d)[:2] == group]
        row["verdict"] = worst(verdicts)
        tables["group_days"].append(row)
    return tables


def _replicas_of(
    streams: dict[tuple[str, str], list[Sample]],
    earlier: list[Tables],
    window: Window,
    expect: list[Key],
    retired: list[Key],
) -> list[Key]:
    seen = {
        (*group, row["id"])
        for group, stream in streams.items()
        for sample in stream
        if sample.in_window
        for row in sample.line.get("replicas") or []
    }
    remembered = {
        key_of(row)
        for day in earlier
        if window.date - date_of(day) <= datetime.timedelta(days=7)
        for row in day["replica_days"]
    }
    missed = {
        key
        for key in remembered | set(expect)
        if not any(all(map(fnmatch.fnmatchcase, key, patterns)) for patterns in retired)
    }
    return sorted(seen | missed)


# -- the time of a replica -------------------------------------------------------------------


def _timeline(
    replica: str, stream: list[Sample], objective: PlainObjective, window: Window
) -> list[Segment]:
    """The whole window, cut into segments without gap or overlap."""
    known = []
    for sample in stream:
        row = sample.row(replica)
        quality = "good" if _is_good(row, objective) else "bad"
        for start, end in ((sample.start, sample.end), (sample.tail_start, sample.tail_end)):
            if start < end:
                known.append(Segment(start, end, quality, False, sample, row))
        if sample.down_start < sample.down_end:
            known.append(Segment(sample.down_start, sample.down_end, "bad", True, sample))
    segments: list[Segment] = []
    at = window.w0
    for segment in sorted(known, key=lambda s: s.start):
        assert segment.start >= at, "segments overlap"
        if segment.start > at:
            segments.append(Segment(at, segment.start, "unknown"))
        segments.append(segment)
        at = segment.end
    if at < window.w1:
        segments.append(Segment(at, window.w1, "unknown"))
    return segments


def _is_good(row: Json | None, objective: PlainObjective) -> bool:
    if row is None or row["state"] != "in_sync":
        return False
    within: bool = row["lag_ms"] <= objective.lag_seconds * 1000
    return within


# -- a replica's day -------------------------------------------------------------------------


def _replica_day(
    replica: Replica,
    window: Window,
    metadata: list[Json],
    group: Json | None,
    earlier: list[Tables],
) -> Json:
    inside, objective = replica.inside, replica.objective
    good, bad, unknown = (replica.total_ms(q) / 1000 for q in ("good", "bad", "unknown"))
    length_s = window.length_ms / 1000
    interval_ms = inside[-1].interval_ms if inside else 5000
    day: Json = named(replica.key) | {
        "objective": objective.name,
        "window_s": length_s,
        "interval_s": interval_ms / 1000,
        "expected": math.floor(window.length_ms / interval_ms + 0.5),
        "received": len(inside),
        "duplicates": sum(sample.duplicates for sample in inside),
        "conflicts": sum(sample.conflict for sample in inside),
        "out_of_order": _out_of_order(replica.stream),
        "longest_gap_s": _longest_gap_ms(replica.segments) / 1000,
        "clock_skew_ms": _clock_skew_ms(inside),
        "good_s": good,
        "bad_s": bad,
        "unknown_s": unknown,
        "coverage": (good + bad) / length_s,
        "availability": good / (good + bad) if good + bad else None,
    }
    lag_ms, lag_bytes = (
        [(s.row[name], s.length_ms) for s in replica.segments if s.row is not None]
        for name in ("lag_ms", "lag_bytes")
    )
    day |= {f"lag_ms_{name}": value for name, value in weighted(lag_ms).items()}
    day |= {f"lag_bytes_{name}": value for name, value in weighted(lag_bytes).items()}
    day |= {"lag_ms_hist": histogram_of(lag_ms), "lag_bytes_hist": histogram_of(lag_bytes)}
    day |= _state_seconds(replica, window)
    day |= _minute_counts(replica)
    day |= _incident_figures(replica.incidents, good)
    for column, name in (
        ("transferred_bytes", "transferred"),
        ("reconnects", "reconnects"),
        ("rejected_acks", "rejected_acks"),
    ):
        day[column] = sum(rise_of_row(sample, replica.key[2], name) for sample in inside)
    day |= _catch_up(replica)
    day["metadata"] = metadata
    budget = objective.budget_s(length_s)
    day |= {
        "budget_s": budget,
        "budget_left_s": budget - bad,
        "budget_used_ratio": bad / budget if budget else None,
    }
    day |= _burn_rates(replica, window, earlier)
    day["verdict"] = verdict_of(objective, day, group)
    return day


def _out_of_order(stream: list[Sample]) -> int:
    latest: dict[str, int] = {}
    count = 0
    for sample in stream:
        if sample.in_window and sample.ts < latest.get(sample.boot, sample.ts):
            count += 1
        latest[sample.boot] = max(sample.ts, latest.get(sample.boot, sample.ts))
    return count


def _longest_gap_ms(segments: list[Segment]) -> int:
    return max((s.length_ms for s in segments if s.quality == "unknown"), default=0)


def _clock_skew_ms(inside: list[Sample]) -> int | None:
    differences: dict[str, list[int]] = defaultdict(list)
    for sample in inside:
        differences[sample.boot].append(sample.ts - sample.mono)
    return max((max(values) - min(values) for values in differences.values()), default=None)


def _state_seconds(replica: Replica, window: Window) -> Json:
    spent_ms: dict[str, float] = dict.fromkeys([*STATES, "down"], 0.0)
    for sample in replica.inside:
        row, before = sample.row(replica.key[2]), None
        if sample.same_boot and sample.predecessor is not None:
            before = sample.predecessor.row(replica.key[2])
        state = "disconnected" if row is None else row["state"]
        spent_ms[state] += sample.tail_end - sample.tail_start
        if row is None or before is None:
            spent_ms[state] += sample.end - sample.start
            continue
        share = 1.0
        if sample.predecessor is not None and sample.predecessor.ts < window.w0:
            mono = sample.mono - sample.predecessor.mono
            share = min(1.0, (sample.ts - window.w0) / mono) if mono > 0 else 0.0
        for state in STATES:
            spent_ms[state] += share * (row["state_ms"][state] - before["state_ms"][state])
    spent_ms["down"] += sum(s.length_ms for s in replica.segments if s.down)
    spent_ms["unknown"] = max(0.0, window.length_ms - sum(spent_ms.values()))
    return {f"state_{state}_s": spent / 1000 for state, spent in spent_ms.items()}


def _catch_up(replica: Replica) -> Json:
    """Runs of consecutive samples of one boot that are all catching up."""
    runs: list[tuple[int, int]] = []
    run = (0, 0)
    for sample in replica.inside:
        row, before = sample.row(replica.key[2]), None
        if sample.same_boot and sample.predecessor is not None:
            before = sample.predecessor.row(replica.key[2])
        catching_up = [r is not None and r["state"] == "catching_up" for r in (before, row)]
        if all(catching_up) and row and before and sample.predecessor:
            run = (
                run[0] + sample.mono - sample.predecessor.mono,
                run[1] + row["ack_offset"] - before["ack_offset"],
            )
        else:
            runs.append(run)
            run = (0, 0)
    runs.append(run)
    seconds, risen = sum(run[0] for run in runs) / 1000, sum(run[1] for run in runs)
    return {
        "catch_up_s": seconds,
        "catch_up_longest_s": max(run[0] for run in runs) / 1000,
        "catch_up_bytes": risen,
        "catch_up_mb_s": risen / 1e6 / seconds if seconds else None,
    }


# -- minutes and burn rates ------------------------------------------------------------------


def _minutes(replica: Replica, window: Window) -> dict[int, Json]:
    minutes: dict[int, Json] = {}
    for begin in range(window.w0 - window.w0 % MINUTE_MS, window.w1, MINUTE_MS):
        counts = {"good_ms": 0, "bad_ms": 0, "unknown_ms": 0, "lag_weighted_ms": 0}
        counts |= {"transferred_bytes": 0, "msgs_in": 0}
        minutes[begin] = named(replica.key) | {"minute": begin} | counts
        minutes[begin] |= {"lag_ms_max": None, "lag_bytes_max": None, "written": False}
    for segment in replica.segments:
        at = segment.start
        while at < segment.end:
            minute = minutes[at - at % MINUTE_MS]
            end = min(segment.end, minute["minute"] + MINUTE_MS)
            minute[f"{segment.quality}_ms"] += end - at
            if segment.row is not None:
                minute["lag_weighted_ms"] += segment.row["lag_ms"] * (end - at)
                for name in ("lag_ms", "lag_bytes"):
                    largest = minute[f"{name}_max"]
                    minute[f"{name}_max"] = max(largest or 0, segment.row[name])
            at = end
    for sample in replica.inside:
        minute = minutes[sample.ts - sample.ts % MINUTE_MS]
        minute["transferred_bytes"] += rise_of_row(sample, replica.key[2], "transferred")
        minute["msgs_in"] += rise_of_field(sample, "msgs_in")
        before = sample.predecessor
        if before is not None and sample.same_boot and sample.max_offset > before.max_offset:
            minute["written"] = True
    return minutes


def _quality_of(minute: Json) -> str:
    length = minute["good_ms"] + minute["bad_ms"] + minute["unknown_ms"]
    if minute["bad_ms"]:
        return "bad"
    return "good" if minute["good_ms"] * 2 >= length else "unknown"


def _minute_counts(replica: Replica) -> Json:
    minutes = list(replica.minutes.values())
    counts = {f"minutes_{q}": 0 for q in ("good", "bad", "unknown")}
    for minute in minutes:
        counts[f"minutes_{_quality_of(minute)}"] += 1
    written = [minute for minute in minutes if minute["written"]]
    counts["minutes_written"] = len(written)
    counts["minutes_written_good"] = sum(_quality_of(minute) == "good" for minute in written)
    return counts


def _burn_rates(replica: Replica, window: Window, earlier: list[Tables]) -> Json:
    bad_ms = {minute["minute"]: minute["bad_ms"] for minute in replica.minutes.values()}
    of_today = sorted(bad_ms)
    for day in earlier:
        for row in day["minutes"]:
            if key_of(row) == replica.key:
                bad_ms[row["minute"]] = row["bad_ms"]
    allowed = (100 - replica.objective.availability_percent) / 100
    rates: Json = {}
    for name, span in SPANS_MS.items():
        largest = 0
        for minute in of_today:
            first = minute + MINUTE_MS - span
            if name in ("1h", "6h"):
                bad = sum(bad_ms.get(m, 0) for m in range(first, minute + 1, MINUTE_MS))
            else:
                bad = sum(ms for m, ms in bad_ms.items() if first <= m <= minute and ms)
            largest = max(largest, bad)
        rates[f"burn_{name}"] = largest / (span * allowed) if allowed else None
    return rates


# -- incidents -------------------------------------------------------------------------------


def _incidents(replica: Replica, window: Window) -> list[Json]:
    runs: list[list[Segment]] = []
    open_run: list[Segment] = []
    for segment in replica.segments:
        if segment.quality == "good":
            runs.append(open_run)
            open_run = []
        elif segment.quality == "bad" or open_run:
            open_run.append(segment)
    runs.append(open_run)
    incidents: list[Json] = []
    for run in runs:
        run_end = run[-1].end if run else 0
        while run and run[-1].quality == "unknown":
            run.pop()
        if not run:
            continue
        rows = [segment.row for segment in run if segment.row is not None]
        incidents.append(
            named(replica.key)
            | {
                "number": len(incidents) + 1,
                "start_ms": run[0].start,
                "end_ms": run[-1].end,
                "duration_s": (run[-1].end - run[0].start) / 1000,
                "bad_s": sum(s.length_ms for s in run if s.quality == "bad") / 1000,
                "unknown_s": sum(s.length_ms for s in run if s.quality == "unknown") / 1000,
                "cause": _cause(run, replica.key[2]),
                "open": run_end == window.w1,
                "max_lag_ms": max((row["lag_ms"] for row in rows), default=None),
                "max_lag_bytes": max((row["lag_bytes"] for row in rows), default=None),
            }
        )
    return incidents


def _cause(run: list[Segment], replica: str) -> str:
    first, sample = run[0], run[0].sample
    assert sample is not None, "an incident begins with a bad segment"
    if first.down:
        return "master_restart"
    if _ha_failed(sample):
        return "ha_restart"
    begins_boot = sample.predecessor is not None and not sample.same_boot
    if not sample.proved and (begins_boot or sample.seq == 1):
        return "master_restart"
    if first.row is None or first.row["state"] == "disconnected":
        return "disconnected"
    if first.row["state"] == "catching_up":
        return "fell_behind"
    in_run = [segment.sample for segment in run if segment.sample is not None and not segment.down]
    return "stalled" if any(_is_stuck(sample, replica) for sample in in_run) else "slow"


def _ha_failed(sample: Sample) -> bool:
    ha = _process_ha(sample)
    if ha is None:
        return False
    if not ha["up"]:
        return True
    before = _process_ha(sample.predecessor) if sample.same_boot and sample.predecessor else None
    return before is not None and ha["restarts"] > before["restarts"]


def _process_ha(sample: Sample) -> Json | None:
    return next((process for process in sample.processes if process["name"] == "ha"), None)


def _is_stuck(sample: Sample, replica: str) -> bool:
    if not sample.same_boot or sample.predecessor is None:
        return False
    row, before = sample.row(replica), sample.predecessor.row(replica)
    if row is None or before is None:
        return False
    stuck: bool = (
        row["ack_offset"] == before["ack_offset"] and min(row["lag_bytes"], before["lag_bytes"]) > 0
    )
    return stuck


def _incident_figures(incidents: list[Json], good_s: float) -> Json:
    ended = [incident["duration_s"] for incident in incidents if not incident["open"]]
    return {
        "incidents": len(incidents),
        "incident_s": sum(incident["duration_s"] for incident in incidents),
        "longest_incident_s": max((i["duration_s"] for i in incidents), default=0),
        "mttr_s": sum(ended) / len(ended) if ended else None,
        "mtbf_s": good_s / len(incidents) if incidents else None,
        "incidents_ended": len(ended),
        "incident_ended_s": sum(ended),
    }
