"""The nightly report once more, slow and obvious: from samples to every figure and verdict.

Standard library only: the independent check of the Spark program, written from
docs/sla_report.md alone; it must not import anything of spark/. `plain_report` gives the tables
as lists of dictionaries with the column names of the Parquet results.
"""

from __future__ import annotations

import bisect
import fnmatch
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tests.spark.plain_bounds import Past, lag_above, two_masters
from tests.spark.plain_elections import plain_elections
from tests.spark.plain_lag import lag_rows, lag_verdicts, most_left_out
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
    first_rows,
    first_unnamed,
    histogram_of,
    in_order,
    inherit,
    join_names,
    read_dumps,
    replicas_renamed,
    rise_of_field,
    rise_of_row,
    weighted,
)
from tests.spark.plain_spells import (
    IS_MASTER,
    epoch_of,
    nobody_led_before,
    split,
    times_as_leader,
)
from tests.spark.plain_time import (
    BAD,
    EXCLUDED,
    GOOD,
    NOT_YET,
    UNKNOWN,
    Known,
    Piece,
    Time,
    exclude,
    exclusions_of,
    time_of,
)
from tests.spark.plain_verdicts import (
    PlainObjective,
    PlainQuestion,
    date_of,
    group_day,
    key_of,
    metadata_of,
    named,
    ratio,
    verdict_of,
    worst,
)
from tests.spark.plain_windows import several_days

MINUTE_MS: Final = 60_000
SPANS_MS: Final = {"1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": DAY_MS, "3d": 3 * DAY_MS}
QUALITIES: Final = (GOOD, BAD, UNKNOWN, EXCLUDED)

Groups = dict[tuple[str, str], list[Sample]]


@dataclass
class Replica:
    """One replica of D while its figures are computed."""

    key: Key
    objective: PlainObjective
    stream: list[Sample]
    since: float
    """Since when it is known."""
    time: Time
    incidents: list[Json] = field(default_factory=list)
    minutes: dict[int, Json] = field(default_factory=dict)

    @property
    def inside(self) -> list[Sample]:
        return [sample for sample in self.stream if sample.in_window]

    def lags(self, name: str, start: float, end: float) -> list[tuple[int, float]]:
        """(value, ms) of each sample with a row, of the time that counts in [start, end)."""
        first = bisect.bisect_right(self.told, start, key=lambda s: s.segment[1])
        last = bisect.bisect_left(self.told, end, key=lambda s: s.segment[0])
        return [
            (sample.rows[self.key[2]][name], self.time.counted_ms(sample, start, end))
            for sample in self.told[first:last]
        ]

    @functools.cached_property
    def told(self) -> list[Sample]:
        """The samples with a row whose segments lie in the window, by time."""
        told = [s for s in self.stream if s.segment_ms and s.row(self.key[2]) is not None]
        return sorted(told, key=lambda sample: sample.ts)


def plain_report(question: PlainQuestion, history: list[Tables] | None = None) -> Tables:
    """All tables of one date. `history`: what this function gave for earlier dates, or for this
    one; of several of a date the last counts."""
    window = question.window
    found = read_dumps(question.dumps, window)
    elections = plain_elections(found.samples, window)
    found.samples = split(found.samples)
    masters: Groups = defaultdict(list)
    slaves: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in found.samples:
        if sample.role in MASTER_ROLES:
            masters[sample.cluster, sample.broker].append(sample)
        elif sample.role == "SLAVE":
            slaves[sample.cluster, sample.broker, sample.broker_id].append(sample)
    results = {date_of(day): day for day in history or []}
    earlier = [results[date] for date in sorted(results) if date < window.date]
    reported = {key_of(row)[:2] for day in earlier for row in day["replica_days"]}
    every = {
        group: [s for s in found.samples if (s.cluster, s.broker) == group]
        for group in everyone(masters, slaves)
    }
    of_slaves = {key: in_order(slaves[key], window, every[key[:2]]) for key in sorted(slaves)}
    streams = {
        group: in_order(
            samples, window, every[group], group in reported, nobody_led_before(every[group])
        )
        for group, samples in masters.items()
    }
    for group, stream in streams.items():
        inherit(stream, every[group], window)
    joined = {group: join_names(group, stream) for group, stream in streams.items()}
    pasts = {group: _past(group, streams, of_slaves, every[group]) for group in every}
    metadata = {
        (cluster, broker, f"{broker}:{broker_id}"): metadata_of(
            stream, pasts[cluster, broker], window
        )
        for (cluster, broker, broker_id), stream in of_slaves.items()
    }
    both = {group: two_masters(stream, pasts[group], window) for group, stream in streams.items()}
    tables: Tables = {name: [] for name in ("replica_days", "group_days")}
    tables |= {name: [] for name in ("incidents", "minutes", "hours", "pieces")}
    tables["bad_lines"] = [{"file": file, "text": text} for file, text in found.bad_lines]
    tables["dt"] = [{"dt": window.date}]
    others = {
        group: [stream for key, stream in of_slaves.items() if key[:2] == group] for group in every
    }
    groups = {
        group: group_day(group, stream, pasts[group], window, others[group])
        for group, stream in streams.items()
        if any(sample.in_window for sample in stream)
    }
    tables["elections"] = elections
    lags = {group: lag_rows(stream, window) for group, stream in streams.items()}
    left_out = {group: most_left_out(stream) for group, stream in streams.items()}
    own_dumps = {key for key, lines in slaves.items() if any(line.in_window for line in lines)}
    everybody = _replicas_of(question, streams, joined, own_dumps, list(results.values()))
    for key, since in sorted(everybody.items()):
        stream = streams.get(key[:2], [])
        former = [old for old, new in joined.get(key[:2], {}).items() if new == key[2]]
        replica = _replica(question, key, stream, since, both.get(key[:2], []), former, earlier)
        if all(piece.reason == NOT_YET for piece in replica.time.pieces):
            continue  # it came behind the window
        replica.incidents = _incidents(replica)
        replica.minutes = _minutes(replica, window)
        elected = [row for row in elections if (row["cluster"], row["broker"]) == key[:2]]
        lagging = lags.get(key[:2], []), left_out.get(key[:2], 0)
        of_group = groups.get(key[:2]), elected, lagging
        day = _replica_day(replica, window, metadata.get(key, []), of_group, earlier)
        tables["replica_days"].append(day)
        tables["incidents"] += replica.incidents
        tables["minutes"] += replica.minutes.values()
        tables["hours"] += _hours(replica, window)
        tables["pieces"] += [
            named(key)
            | {"start": p.start, "end": p.end, "quality": GOOD if p.ends_incident else p.quality}
            for p in replica.time.pieces
        ]
    for group in {key_of(row)[:2] for row in tables["replica_days"]} - groups.keys():
        past = pasts.get(group, Past([]))
        groups[group] = group_day(group, streams.get(group, []), past, window, [])
    for group, row in groups.items():
        verdicts = [d["verdict"] for d in tables["replica_days"] if key_of(d)[:2] == group]
        row["verdict"] = worst(verdicts)
        tables["group_days"].append(row)
    tables["consumer_lag"] = [
        {"cluster": group[0], "broker": group[1], **row}
        for group, rows in lags.items()
        for row in rows
    ]
    for row in tables["consumer_lag"]:
        row["verdict"] = _lag_verdict(row, question, tables["replica_days"])
    several_days(question.lengths, question.objectives, tables, earlier, window)
    return tables


def _lag_verdict(row: Json, question: PlainQuestion, days: list[Json]) -> str | None:
    """By the promises of the objectives of its broker group's replicas."""
    group = row["cluster"], row["broker"]
    names = {day["objective"] for day in days if key_of(day)[:2] == group}
    found = [
        verdict
        for each in question.objectives
        if each.name in names
        for of, verdict in lag_verdicts(
            each.consumer_lag or (), each.availability_percent, [row], 0
        )
        if of is not None
    ]
    return worst(found) if found else None


def everyone(masters: Groups, slaves: dict[tuple[str, str, int], list[Sample]]) -> set[Any]:
    """All groups of which anybody wrote a line."""
    return {*masters, *(key[:2] for key in slaves)}


def _past(
    group: tuple[str, str],
    streams: dict[tuple[str, str], list[Sample]],
    of_slaves: dict[tuple[str, str, int], list[Sample]],
    samples: list[Sample],
) -> Past:
    some = list(streams.get(group, []))
    for key, stream in of_slaves.items():
        if key[:2] == group:
            some += stream
    return Past(some, [sample for sample in samples if sample.seq == 1])


def _replicas_of(
    question: PlainQuestion,
    streams: Groups,
    joined: dict[tuple[str, str], dict[str, str]],
    slaves: set[tuple[str, str, int]],
    results: list[Tables],
) -> dict[Key, float]:
    """The replicas of D, each with the moment since which it is known (infinite: never)."""
    window = question.window
    told = sorted((day for day in results if day["replica_days"]), key=date_of)
    earlier = [day for day in told if date_of(day) < window.date]
    own = [day for day in told if date_of(day) == window.date]
    first = {
        (*group, name): ts
        for group, stream in streams.items()
        for name, ts in first_rows(stream, window).items()
    }
    renamed = {
        (*group, name)
        for group, stream in streams.items()
        for name in replicas_renamed(group, stream)
    }
    own_lines = {
        (cluster, broker, f"{broker}:{number}") for cluster, broker, number in slaves if number
    }

    def keys(days: list[Tables]) -> set[Key]:
        """By the names that replicas have got since."""
        found = _keys(days)
        return {
            (*key[:2], key[2] if key in first else joined.get(key[:2], {}).get(key[2], key[2]))
            for key in found
        }

    everybody = own_lines | ((first.keys() | keys(earlier[-7:]) | keys(own)) - renamed)
    everybody |= set(question.expect)
    for group, stream in streams.items():
        leaders = [sample for sample in stream if epoch_of(sample) is not None]
        for name, spans in times_as_leader(stream).items():
            key = (*group, name)
            is_over = name != f"{leaders[-1].broker}:{leaders[-1].broker_id}"
            if is_over or key in everybody:
                everybody.add(key)
                first[key] = min(spans[0][0], first.get(key, spans[0][0]))
    always = keys(earlier) | set(question.expect)
    return {
        key: -math.inf if key in always else first.get(key, math.inf)
        for key in everybody
        if not any(all(map(fnmatch.fnmatchcase, key, patterns)) for patterns in question.retired)
    }


def _keys(days: list[Tables]) -> set[Key]:
    return {key_of(row) for day in days for row in day["replica_days"]}


def _replica(
    question: PlainQuestion,
    key: Key,
    stream: list[Sample],
    since: float,
    both: list[tuple[float, float]],
    former: Collection[str],
    earlier: list[Tables],
) -> Replica:
    window = question.window
    objective = next(o for o in question.objectives if o.matches(key))
    limit_ms = objective.lag_seconds * 1000
    unnamed = first_unnamed(key[:2], stream, earlier)
    known = Known(key[2], limit_ms, since, elsewhere(stream, key[2]), both, unnamed)
    time = time_of(stream, known, window)
    maintenance = [
        (max(start, window.w0), min(end, window.w1), reason)
        for patterns, start, end, reason in question.exclusions
        if all(map(fnmatch.fnmatchcase, key, patterns))
        and max(start, window.w0) < min(end, window.w1)
    ]
    leading = times_as_leader(stream).get(key[2], [])
    maintenance += [(start, end, IS_MASTER) for start, end in leading]
    copy_since = _copies_since(key, former, window, earlier)
    if window.w0 < since < window.w1:
        first = next((n for n, sample in enumerate(stream) if sample.row(key[2])), math.inf)
        has_led = bool(leading) and leading[0][0] <= since
        copy_since = int(since) if unnamed >= first and not has_led else None
    copy_ms = objective.first_copy_hours * HOUR_MS
    return Replica(key, objective, stream, since, exclude(time, maintenance, copy_since, copy_ms))


def _copies_since(
    key: Key, former: Collection[str], window: Window, earlier: list[Tables]
) -> int | None:
    """Since when its first copy runs that was not done when the day before D ended; under its name
    or a former one."""
    rows = [
        row
        for day in earlier
        if (window.date - date_of(day)).days == 1
        for row in day["replica_days"]
        if key_of(row)[:2] == key[:2] and row["replica"] in (key[2], *former)
    ]
    return rows[0]["first_copy_since_ms"] if rows else None


# -- a replica's day -------------------------------------------------------------------------


def _replica_day(
    replica: Replica,
    window: Window,
    metadata: list[Json],
    of_group: tuple[Json | None, list[Json], tuple[list[Json], int]],
    earlier: list[Tables],
) -> Json:
    """of_group: its figures of the day, its elections, how consumer groups lagged."""
    inside, objective, time = replica.inside, replica.objective, replica.time
    total_ms = time.total_ms(window.w0, window.w1)
    good, bad, unknown, excluded = (total_ms[quality] / 1000 for quality in QUALITIES)
    length_s = window.length_ms / 1000
    interval_ms = inside[-1].interval_ms if inside else 5000
    day: Json = named(replica.key) | {
        "objective": objective.name,
        "window_s": length_s,
        "interval_s": interval_ms / 1000,
        "expected": _expected(replica.stream, interval_ms, window),
        "received": sum(sample.is_line for sample in inside),
        "duplicates": sum(sample.duplicates for sample in inside),
        "conflicts": sum(sample.conflict for sample in inside),
        "out_of_order": _out_of_order(replica.stream),
        "longest_gap_s": _longest_gap_ms(time.pieces) / 1000,
        "leading_unknown_s": _leading_unknown_ms(time.pieces) / 1000,
        "clock_skew_ms": _clock_skew_ms(inside),
        "good_s": good,
        "bad_s": bad,
        "unknown_s": unknown,
        "excluded_s": excluded,
        "coverage": ratio(good + bad, length_s - excluded),
        "availability": ratio(good, good + bad),
        "exclusions": exclusions_of(time),
        "first_copy_since_ms": time.first_copy_since_ms,
    }
    for name in ("lag_ms", "lag_bytes"):
        lags = replica.lags(name, window.w0, window.w1)
        day |= {f"{name}_{figure}": value for figure, value in weighted(lags).items()}
        day[f"{name}_hist"] = histogram_of(lags)
    day |= dict.fromkeys(("lag_p99_above_s", "lag_p99_unknown_s", "lag_p99_bounds_ms"))
    if objective.lag_p99_seconds is not None and replica.stream:
        left_out = [
            (piece.start, piece.end)
            for piece in time.pieces
            if piece.quality == EXCLUDED or piece.state == "down"
        ]
        limit_ms = objective.lag_p99_seconds * 1000
        day |= lag_above(replica.stream, replica.key[2], limit_ms, left_out, window)
    unproved = [p for p in time.pieces if p.quality == UNKNOWN and p.state == "in_sync"]
    day["lag_unproved_s"] = sum(p.length_ms for p in unproved) / 1000
    day |= _state_seconds(time, length_s - excluded)
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
    budget = objective.budget_s(length_s - excluded)
    day |= {
        "budget_s": budget,
        "budget_left_s": budget - bad,
        "budget_used_ratio": ratio(bad, budget),
    }
    day |= _burn_rates(replica, window, earlier)
    day["verdict"] = verdict_of(objective, day, *of_group)
    return day


def _expected(stream: list[Sample], interval_ms: int, window: Window) -> int:
    """By each sample's own interval for its segment, by the last one's for the rest."""
    known_ms = sum(sample.segment_ms for sample in stream)
    lines = sum(Fraction(sample.segment_ms, sample.interval_ms) for sample in stream)
    lines += Fraction(window.length_ms - known_ms, interval_ms)
    return math.floor(lines + Fraction(1, 2))


def _out_of_order(stream: list[Sample]) -> int:
    latest: dict[str, int] = {}
    count = 0
    for sample in stream:
        if sample.in_window and sample.ts < latest.get(sample.boot, sample.ts):
            count += 1
        latest[sample.boot] = max(sample.ts, latest.get(sample.boot, sample.ts))
    return count


def _leading_unknown_ms(pieces: list[Piece]) -> float:
    known = [piece.start for piece in pieces if piece.quality != UNKNOWN]
    return min(known, default=pieces[-1].end) - pieces[0].start


def _longest_gap_ms(pieces: list[Piece]) -> float:
    runs = itertools.groupby(pieces, key=lambda p: p.quality == UNKNOWN)
    return max((sum(p.length_ms for p in run) for is_gap, run in runs if is_gap), default=0)


def _clock_skew_ms(inside: list[Sample]) -> int | None:
    differences: dict[str, list[int]] = defaultdict(list)
    for sample in inside:
        differences[sample.boot].append(sample.ts - sample.mono)
    return max((max(values) - min(values) for values in differences.values()), default=None)


def _state_seconds(time: Time, length_s: float) -> Json:
    spent_s = {state: time.state_ms(state) / 1000 for state in (*STATES, "down")}
    spent_s["unknown"] = max(0.0, round(length_s - sum(spent_s.values()), 6))
    return {f"state_{state}_s": seconds for state, seconds in spent_s.items()}


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
        times = _times(replica, begin, MINUTE_MS, window)
        minutes[begin] = named(replica.key) | {"minute": begin} | times
        minutes[begin] |= {"msgs_in": 0, "written": False}
    for sample in replica.inside:
        minute = minutes[sample.ts - sample.ts % MINUTE_MS]
        minute["msgs_in"] += rise_of_field(sample, "msgs_in")
        if sample.before is not None and sample.max_offset > sample.before.max_offset:
            minute["written"] = True
    return minutes


def _times(replica: Replica, begin: int, length: int, window: Window) -> Json:
    """The part of [begin, begin + length) that lies in the window, by quality; the largest lag."""
    start, end = max(begin, window.w0), min(begin + length, window.w1)
    times = {f"{q}_ms": ms for q, ms in replica.time.told_ms(start, end).items()}
    return times | {"lag_ms_max": weighted(replica.lags("lag_ms", start, end))["max"]}


def _hours(replica: Replica, window: Window) -> list[Json]:
    hours = []
    for begin in range(window.w0 - window.w0 % HOUR_MS, window.w1, HOUR_MS):
        lags = replica.lags("lag_ms", begin, begin + HOUR_MS)
        times = _times(replica, begin, HOUR_MS, window)
        hours.append(named(replica.key) | {"hour": begin} | times)
        hours[-1]["lag_ms_p99"] = weighted(lags)["p99"]
    return hours


def _quality_of(minute: Json) -> str:
    if minute["bad_ms"]:
        return BAD
    is_good = minute["good_ms"] > 0 and minute["good_ms"] >= minute["unknown_ms"]
    return GOOD if is_good else UNKNOWN


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
    bad_ms = {begin: minute["bad_ms"] for begin, minute in replica.minutes.items()}
    for day in earlier:
        for row in day["minutes"]:
            if key_of(row) == replica.key:
                bad_ms[row["minute"]] = row["bad_ms"]
    bad_ms = {begin: ms for begin, ms in bad_ms.items() if ms}
    allowed = (100 - replica.objective.availability_percent) / 100
    rates: Json = {}
    for name, span in SPANS_MS.items():
        largest = 0
        for minute in replica.minutes:
            first = minute + MINUTE_MS - span
            largest = max(largest, sum(ms for m, ms in bad_ms.items() if first <= m <= minute))
        rates[f"burn_{name}"] = largest / (span * allowed) if allowed else None
    return rates


# -- incidents -------------------------------------------------------------------------------


def _incidents(replica: Replica) -> list[Json]:
    runs: list[list[Piece]] = []
    open_run: list[Piece] = []
    for piece in replica.time.pieces:
        if piece.ends_incident:
            runs.append(open_run)
            open_run = []
        elif piece.quality == BAD or open_run:
            open_run.append(piece)
    runs = [run for run in [*runs, open_run] if run]
    return [
        _incident(replica, number, run, is_open=run is open_run)
        for number, run in enumerate(runs, 1)
    ]


def _incident(replica: Replica, number: int, run: list[Piece], *, is_open: bool) -> Json:
    """Of pieces that begin with a bad one; what comes behind the last bad one is none of it."""
    name = replica.key[2]
    bad = [piece for piece in run if piece.quality == BAD]
    start, end = bad[0].start, bad[-1].end
    bad_ms = sum(piece.length_ms for piece in bad)
    samples = [p.sample for p in bad if p.sample is not None and p.state != "down"]
    rows = [row for row in (sample.row(name) for sample in samples) if row is not None]
    return named(replica.key) | {
        "number": number,
        "start_ms": start,
        "end_ms": end,
        "duration_s": (end - start) / 1000,
        "bad_s": bad_ms / 1000,
        "unknown_s": (end - start - bad_ms) / 1000,
        "cause": _cause(bad[0], samples, name),
        "open": is_open,
        "max_lag_ms": max((row["lag_ms"] for row in rows), default=None),
        "max_lag_bytes": max((row["lag_bytes"] for row in rows), default=None),
        **_end_of_connection(rows, start, end),
    }


def _end_of_connection(rows: list[Json], start: float, end: float) -> Json:
    """The first one that ended in the incident, or up to 2.5 s before it."""
    ends = [
        (row["last_error"]["ts"], row["last_error"]["reason"], row["remote"])
        for row in rows
        if row.get("last_error") and start - 2_500 <= row["last_error"]["ts"] <= end
    ]
    found = min(ends, key=lambda each: each[0]) if ends else (None, None, None)
    return dict(zip(("disconnect_ms", "disconnect_reason", "peer"), found, strict=True))


def _cause(first: Piece, samples: list[Sample], replica: str) -> str:
    """By the first bad piece, and all samples with bad time in the incident."""
    sample = first.sample
    assert sample is not None, "an incident begins with bad time"
    if first.state == "down":
        return "master_restart" if sample.proved else "failover"
    if _ha_failed(sample):
        return "ha_restart"
    before = sample.before
    if before is not None and before.before is None and before.start == before.ts:
        sample = before  # a first line at the moment of its boot
    if sample.begins_boot and not sample.proved:
        before = sample.predecessor
        is_other = before is not None and before.boot != sample.line.get("prev_boot")
        return "failover" if is_other else "master_restart"
    if first.state == "disconnected":
        return "disconnected"
    if first.state == "catching_up":
        return "fell_behind"
    return "stalled" if any(_is_stuck(sample, replica) for sample in samples) else "slow"


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
    ends = [piece.start for piece in replica.time.pieces if piece.ends_incident]
    first = [i for i in replica.incidents if not ends or i["end_ms"] <= ends[0]]
    last = [i for i in replica.incidents if i["open"]]
    return {
        "carried_start_ms": first[0]["start_ms"] if first else None,
        "carried_end_ms": first[0]["end_ms"] if first else None,
        "open_start_ms": last[0]["start_ms"] if last else None,
        "open_end_ms": last[0]["end_ms"] if last else None,
    }
