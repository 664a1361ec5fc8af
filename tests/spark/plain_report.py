"""The nightly report once more, slow and obvious: from samples to every figure and verdict.

Standard library only: the independent check of the Spark program, written from
docs/sla_report.md alone; it must not import anything of spark/. `plain_report` gives the tables
as lists of dictionaries with the column names of the Parquet results.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
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
    elsewhere,
    histogram_of,
    in_order,
    read_dumps,
    replicas_renamed,
    replicas_seen,
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
    worst,
)
from tests.spark.plain_windows import several_days

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
    since: int
    """Before this nobody misses its row."""
    other: tuple[int, int] | None
    """From when to when a master that another one overtook had it."""
    segments: list[Segment] = field(default_factory=list)
    incidents: list[Json] = field(default_factory=list)
    minutes: dict[int, Json] = field(default_factory=dict)

    @property
    def inside(self) -> list[Sample]:
        return [sample for sample in self.stream if sample.in_window]

    def is_elsewhere(self, sample: Sample, start: int) -> bool:
        return self.other is not None and start < self.other[1] and sample.ts >= self.other[0]

    def is_unseen(self, sample: Sample, start: int, end: int, *, down: bool = False) -> bool:
        """Time that a sample's lack of a row says nothing of."""
        if not down and sample.row(self.key[2]) is not None:
            return False
        return end <= self.since or (not down and self.is_elsewhere(sample, start))

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
    lengths: Sequence[int] = (7, 30),
) -> Tables:
    """All tables of one date. `history`: what this function gave for earlier dates; `lengths`:
    days of the windows."""
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
    tables: Tables = {name: [] for name in ("replica_days", "group_days")}
    tables |= {name: [] for name in ("incidents", "minutes", "hours", "pieces")}
    tables["bad_lines"] = [{"file": file, "text": text} for file, text in found.bad_lines]
    tables["dt"] = [{"dt": window.date}]
    groups = {
        group: group_day(group, stream, window)
        for group, stream in streams.items()
        if any(sample.in_window for sample in stream)
    }
    own_dumps = {key for key, lines in slaves.items() if any(line.in_window for line in lines)}
    everybody = _replicas_of(streams, own_dumps, history or [], window, expect or [], retired or [])
    for key, since in sorted(everybody.items()):
        stream = streams.get(key[:2], [])
        objective = next(o for o in objectives if o.matches(key))
        replica = Replica(key, objective, stream, since, elsewhere(stream, key[2]))
        replica.segments = _timeline(replica, window)
        replica.incidents = _incidents(replica, window)
        replica.minutes = _minutes(replica, window)
        day = _replica_day(replica, window, metadata.get(key, []), groups.get(key[:2]), earlier)
        tables["replica_days"].append(day)
        tables["incidents"] += replica.incidents
        tables["minutes"] += replica.minutes.values()
        tables["hours"] += _hours(replica)
        tables["pieces"] += [
            named(key) | {"start": s.start, "end": s.end, "quality": s.quality}
            for s in replica.segments
        ]
    for group in {key_of(row)[:2] for row in tables["replica_days"]} - groups.keys():
        groups[group] = group_day(group, [], window)
    for group, row in groups.items():
        verdicts = [d["verdict"] for d in tables["replica_days"] if key_of(d)[:2] == group]
        row["verdict"] = worst(verdicts)
        tables["group_days"].append(row)
    several_days(lengths, objectives, tables, earlier, window)
    return tables


def _replicas_of(
    streams: dict[tuple[str, str], list[Sample]],
    slaves: set[tuple[str, str, int]],
    history: list[Tables],
    window: Window,
    expect: list[Key],
    retired: list[Key],
) -> dict[Key, int]:
    """The replicas of D, each with the moment since which its row is missed."""
    results = sorted((day for day in history if day["replica_days"]), key=date_of)
    last = [day for day in results if date_of(day) < window.date][-7:]
    own = [day for day in results if date_of(day) == window.date]
    renamed = {
        (*group, name)
        for group, stream in streams.items()
        for name in replicas_renamed(group, stream)
    }
    found: list[tuple[Key, int]] = [(key, 0) for key in expect]
    for days, since in ((last, 0), (own, window.w1)):
        keys = {key_of(row) for day in days for row in day["replica_days"]}
        found += [(key, since) for key in keys - renamed]
    for group, stream in streams.items():
        found += [((*group, name), ts) for name, ts in replicas_seen(group, stream).items()]
    for cluster, broker, broker_id in slaves:
        if broker_id == 0:
            continue
        found.append(((cluster, broker, f"{broker}:{broker_id}"), window.w1))
    return {
        key: min(since for other, since in found if other == key)
        for key, _ in found
        if not any(all(map(fnmatch.fnmatchcase, key, patterns)) for patterns in retired)
    }


# -- the time of a replica -------------------------------------------------------------------


def _timeline(replica: Replica, window: Window) -> list[Segment]:
    """The whole window, cut into segments without gap or overlap."""
    known = []
    for sample in replica.stream:
        row = sample.row(replica.key[2])
        for start, end in ((sample.start, sample.end), (sample.tail_start, sample.tail_end)):
            if start < end:
                quality = _quality(replica, sample, start, end)
                known.append(Segment(start, end, quality, False, sample, row))
        start, end = sample.down_start, sample.down_end
        if start < end:
            is_unseen = replica.is_unseen(sample, start, end, down=True)
            quality = "unknown" if is_unseen else "bad"
            known.append(Segment(start, end, quality, True, sample))
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


def _quality(replica: Replica, sample: Sample, start: int, end: int) -> str:
    row = sample.row(replica.key[2])
    if replica.is_unseen(sample, start, end):
        return "unknown"
    if row is None or row["state"] == "disconnected":
        return "unknown" if replica.is_elsewhere(sample, start) else "bad"
    if row["state"] != "in_sync" or row["lag_ms"] > replica.objective.lag_seconds * 1000:
        return "bad"
    is_known = row["lag_exact"] or row["lag_bytes"] <= 0
    return "good" if is_known else "unknown"


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
        "expected": _expected(inside, interval_ms, window),
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
    day |= _at_the_borders(replica)
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


def _expected(inside: list[Sample], interval_ms: int, window: Window) -> int:
    """By each sample's own interval for its time, by the last one for the rest; millionths."""
    known_ms = sum(sample.length_ms for sample in inside)
    times = [(sample.length_ms, sample.interval_ms) for sample in inside]
    times.append((window.length_ms - known_ms, interval_ms))
    millionths: int = sum(math.floor(ms * 1e6 / interval + 0.5) for ms, interval in times)
    return math.floor(millionths / 1e6 + 0.5)


def _out_of_order(stream: list[Sample]) -> int:
    latest: dict[str, int] = {}
    count = 0
    for sample in stream:
        if sample.in_window and sample.ts < latest.get(sample.boot, sample.ts):
            count += 1
        latest[sample.boot] = max(sample.ts, latest.get(sample.boot, sample.ts))
    return count


def _longest_gap_ms(segments: list[Segment]) -> int:
    runs = itertools.groupby(segments, key=lambda s: s.quality == "unknown")
    return max((sum(s.length_ms for s in run) for is_gap, run in runs if is_gap), default=0)


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
        if not replica.is_unseen(sample, sample.tail_start, sample.tail_end):
            spent_ms[state] += sample.tail_end - sample.tail_start
        if row is None or before is None:
            if not replica.is_unseen(sample, sample.start, sample.end):
                spent_ms[state] += sample.end - sample.start
            continue
        share = 1.0
        if sample.predecessor is not None and sample.predecessor.ts < window.w0:
            mono = sample.mono - sample.predecessor.mono
            share = min(1.0, (sample.ts - window.w0) / mono) if mono > 0 else 0.0
        for state in STATES:
            rise = row["state_ms"][state] - before["state_ms"][state]
            spent_ms[state] += math.floor(share * rise + 0.5)
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
        counts = {"good_ms": 0, "bad_ms": 0, "unknown_ms": 0, "msgs_in": 0}
        minutes[begin] = named(replica.key) | {"minute": begin} | counts
        minutes[begin] |= {"lag_ms_max": None, "written": False}
    for segment in replica.segments:
        at = segment.start
        while at < segment.end:
            minute = minutes[at - at % MINUTE_MS]
            end = min(segment.end, minute["minute"] + MINUTE_MS)
            minute[f"{segment.quality}_ms"] += end - at
            if segment.row is not None:
                minute["lag_ms_max"] = max(minute["lag_ms_max"] or 0, segment.row["lag_ms"])
            at = end
    for sample in replica.inside:
        minute = minutes[sample.ts - sample.ts % MINUTE_MS]
        minute["msgs_in"] += rise_of_field(sample, "msgs_in")
        before = sample.predecessor
        if before is not None and sample.same_boot and sample.max_offset > before.max_offset:
            minute["written"] = True
    return minutes


def _hours(replica: Replica) -> list[Json]:
    hours: dict[int, Json] = {}
    for minute in replica.minutes.values():
        begin = minute["minute"] - minute["minute"] % HOUR_MS
        nothing = {"good_ms": 0, "bad_ms": 0, "unknown_ms": 0, "lag_ms_max": None}
        hour = hours.setdefault(begin, named(replica.key) | {"hour": begin} | nothing)
        for quality in ("good", "bad", "unknown"):
            hour[f"{quality}_ms"] += minute[f"{quality}_ms"]
        lags = [lag for lag in (hour["lag_ms_max"], minute["lag_ms_max"]) if lag is not None]
        hour["lag_ms_max"] = max(lags, default=None)
    for begin, hour in hours.items():
        lags = [
            (s.row["lag_ms"], min(s.end, begin + HOUR_MS) - max(s.start, begin))
            for s in replica.segments
            if s.row is not None
        ]
        hour["lag_ms_p99"] = weighted(lags)["p99"]
    return list(hours.values())


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
        rows = [s.row for s in run if s.row is not None and s.quality == "bad"]
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
    in_run = [s.sample for s in run if s.sample is not None and s.quality == "bad" and not s.down]
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


def _at_the_borders(replica: Replica) -> Json:
    """Incidents that may go on in the day before, or in the day after."""
    good = [s.start for s in replica.segments if s.quality == "good" and s.length_ms]
    first = [i for i in replica.incidents if not good or i["end_ms"] <= good[0]]
    last = [i for i in replica.incidents if i["open"]]
    return {
        "carried_start_ms": first[0]["start_ms"] if first else None,
        "carried_end_ms": first[0]["end_ms"] if first else None,
        "open_start_ms": last[0]["start_ms"] if last else None,
        "open_end_ms": last[0]["end_ms"] if last else None,
    }
