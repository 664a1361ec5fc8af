"""The nightly report once more, slow and obvious: several days, and whole clusters.

Standard library only, like plain_report.py, which uses this.
"""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tests.spark.plain_samples import (
    DAY_MS,
    STATES,
    SYNC_RESULTS,
    Json,
    Key,
    Tables,
    Window,
    midnight,
    weighted,
)
from tests.spark.plain_verdicts import (
    BREACHED,
    INSUFFICIENT,
    MET,
    PlainObjective,
    available,
    bucket_quantile,
    date_of,
    key_of,
    named,
    ratio,
    worst,
)

DAY_S: Final = 86_400
LAG_FIGURES: Final = ("p50", "p90", "p95", "p99", "p999")
ADDED: Final = (
    *("expected", "received", "duplicates", "conflicts", "out_of_order"),
    *("minutes_good", "minutes_bad", "minutes_written", "minutes_written_good"),
    *("transferred_bytes", "reconnects", "rejected_acks", "catch_up_bytes"),
)
STATE_SECONDS: Final = [f"state_{state}_s" for state in (*STATES, "down")]
SECONDS: Final = ("good_s", "bad_s", "excluded_s", "catch_up_s", *STATE_SECONDS)
LARGEST: Final = (
    *("clock_skew_ms", "catch_up_longest_s"),
    *(f"burn_{span}" for span in ("1h", "6h", "24h", "3d")),
)
GROUP_ADDED: Final = (
    *("samples", *(f"sync_{name}" for name in SYNC_RESULTS)),
    *("msgs_in", "bytes_in", "restarts", "exposure_byte_s", "ack_sum_s"),
)
EXPOSED: Final = ("unreplicated_bytes", "oldest_unreplicated_ms")

Days = dict[datetime.date, Tables]


def several_days(
    lengths: Sequence[int],
    objectives: list[PlainObjective],
    today: Tables,
    earlier: list[Tables],
    window: Window,
) -> None:
    """Adds windows, group_windows and clusters to D's tables."""
    every = {date_of(tables): tables for tables in [*earlier, today]}
    today["windows"], today["group_windows"] = [], []
    begun = min(
        date for date, tables in every.items() if tables["replica_days"] or date == window.date
    )
    for length in lengths:
        days = {d: t for d, t in every.items() if 0 <= (window.date - d).days < length}
        for row in today["replica_days"]:
            objective = next(o for o in objectives if o.matches(key_of(row)))
            found = _window_row(length, key_of(row), objective, days, window, begun)
            found["forecast"] = _forecast(found, every, window) if length == max(lengths) else None
            today["windows"].append(found)
        today["group_windows"] += [_group_window(length, g, days, today) for g in groups_of(today)]
    today["clusters"] = [
        _cluster(name, length, today)
        for name in sorted({row["cluster"] for row in today["group_days"]})
        for length in (1, *lengths)
    ]


def groups_of(tables: Tables) -> list[tuple[str, str]]:
    return [(row["cluster"], row["broker"]) for row in tables["group_days"]]


def _window_row(
    length: int,
    key: Key,
    objective: PlainObjective,
    days: Days,
    window: Window,
    begun: datetime.date,
) -> Json:
    rows = {
        date: row
        for date, tables in days.items()
        for row in tables["replica_days"]
        if key_of(row) == key
    }
    every, today = list(rows.values()), rows[window.date]
    # Before the first result of all, and before its first line, there is nothing to judge.
    since = min(length, (window.date - begun).days + 1)
    first = rows.get(begun, {"leading_unknown_s": 0, "window_s": 1})
    is_later = (window.date - begun).days < length
    silent = first["leading_unknown_s"] if is_later else 0
    if silent == first["window_s"]:
        silent = 0
    window_s = round((since - 1) * DAY_S + window.length_ms / 1000 - silent, 3)
    result = named(key) | {"days": length, "window_s": window_s}
    is_begun = since < length or silent
    result["begun"] = begun.isoformat() if is_begun else None
    result |= {name: sum(row[name] for row in every) for name in (*ADDED, *SECONDS)}
    result |= {name: _largest(row[name] for row in every) for name in LARGEST}
    good, bad, excluded = result["good_s"], result["bad_s"], result["excluded_s"]
    budget = objective.budget_s(window_s - excluded)
    not_stored_s = window_s - sum(row["window_s"] for row in every)
    minutes = (since - 1) * 1440 + sum(today[f"minutes_{q}"] for q in ("good", "bad", "unknown"))
    minutes = minutes - int(silent // 60)
    gaps = [row["longest_gap_s"] for row in every]
    result |= {
        "days_with_data": sum(row["good_s"] + row["bad_s"] > 0 for row in every),
        "unknown_s": max(0.0, round(window_s - good - bad - excluded, 6)),
        "state_unknown_s": max(0, not_stored_s + sum(row["state_unknown_s"] for row in every)),
        "minutes_unknown": max(0, minutes - result["minutes_good"] - result["minutes_bad"]),
        "longest_gap_s": max(gaps if len(rows) == since else [*gaps, DAY_S]),
        "catch_up_mb_s": result["catch_up_bytes"] / 1e6 / result["catch_up_s"]
        if result["catch_up_s"]
        else None,
        "metadata": _metadata(every),
        "budget_s": budget,
        "budget_left_s": budget - bad,
        "budget_used_ratio": ratio(bad, budget),
    }
    for name in ("lag_ms", "lag_bytes"):
        result |= merged(name, every, LAG_FIGURES, with_histogram=True)
    result |= _incidents(_pieces(key, days, length, window))
    result |= shares(result)
    result["verdict"] = available(objective, result)
    return result


def _largest(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def shares(row: Json) -> Json:
    """Parts and means of sums."""
    good, known = row["good_s"], row["good_s"] + row["bad_s"]
    ended, count = row["incidents_ended"], row["incidents"]
    return {
        "coverage": ratio(known, row["window_s"] - row["excluded_s"]),
        "availability": ratio(good, known),
        "mttr_s": ratio(row["incident_ended_s"], ended),
        "mtbf_s": ratio(good, count),
    }


def _metadata(rows: list[Json]) -> list[Json]:
    entries = [entry for row in rows for entry in row["metadata"]]
    found = []
    for kind in sorted({entry["kind"] for entry in entries}):
        of_kind = [entry for entry in entries if entry["kind"] == kind]
        found.append(
            {
                "kind": kind,
                "max_age_ms": _largest(entry["max_age_ms"] for entry in of_kind),
                "failures": sum(entry["failures"] for entry in of_kind),
                "covered_s": sum(entry["covered_s"] for entry in of_kind),
            }
        )
    return found


def merged(
    name: str, rows: list[Json], figures: Sequence[str], *, with_histogram: bool = False
) -> Json:
    """Percentiles of histograms added up: upper ends of buckets, at most the largest value."""
    total: dict[int, int] = defaultdict(int)
    for row in rows:
        for bucket, length_ms in (row.get(f"{name}_hist") or {}).items():
            total[bucket] += length_ms
    largest = _largest(row.get(f"{name}_max") for row in rows)
    found = weighted(list(total.items()))
    result: Json = {f"{name}_max": largest}
    for figure in figures:
        bucket = found[figure]
        end = None if bucket is None else min(1.02**bucket if bucket else 0.0, largest)
        result[f"{name}_{figure}"] = end
    return result | ({f"{name}_hist": dict(total) or None} if with_histogram else {})


# -- incidents over midnight: every day's pieces one behind the other --------------------------


Piece = tuple[int, int, str]


def _pieces(key: Key, days: Days, length: int, window: Window) -> list[Piece]:
    """(start, end, quality) from the first day's midnight to the end of D's window."""
    at = midnight(window.date) - (length - 1) * DAY_MS
    found: list[Piece] = []
    for date in sorted(days):
        for piece in days[date]["pieces"]:
            if key_of(piece) == key:
                if piece["start"] > at:
                    found.append((at, piece["start"], "unknown"))
                found.append((piece["start"], piece["end"], piece["quality"]))
                at = piece["end"]
    return found


def _incidents(pieces: list[Piece]) -> Json:
    lengths: list[int] = []
    ended: list[int] = []
    begin = end = None
    for start, until, quality in [*pieces, (0, 0, "the end")]:
        if quality == "bad":
            begin, end = start if begin is None else begin, until
        elif quality in ("good", "the end") and begin is not None and end is not None:
            lengths.append(end - begin)
            if quality == "good":
                ended.append(end - begin)
            begin = end = None
    return {
        "incidents": len(lengths),
        "incidents_ended": len(ended),
        "incident_s": sum(lengths) / 1000,
        "incident_ended_s": sum(ended) / 1000,
        "longest_incident_s": max(lengths, default=0) / 1000,
    }


def _forecast(month: Json, days: Days, window: Window) -> str | None:
    if month["bad_s"] and month["budget_left_s"] <= 0:
        return "exhausted"
    if month["begun"]:
        return None
    week = [
        row
        for date, tables in days.items()
        for row in tables["replica_days"]
        if key_of(row) == key_of(month) and (window.date - date).days < 7
    ]
    known_days = sum(row["good_s"] + row["bad_s"] for row in week) / DAY_S
    bad = sum(row["bad_s"] for row in week)
    if known_days < 1 or not bad:
        return None
    whole_days = int(month["budget_left_s"] / (bad / known_days))
    return (window.date + datetime.timedelta(days=whole_days)).isoformat()


# -- groups and clusters ---------------------------------------------------------------------


def _group_window(length: int, group: tuple[str, str], days: Days, today: Tables) -> Json:
    rows = [
        row
        for tables in days.values()
        for row in tables["group_days"]
        if (row["cluster"], row["broker"]) == group
    ]
    verdicts = [
        row["verdict"]
        for row in today["windows"]
        if row["days"] == length and key_of(row)[:2] == group
    ]
    result: Json = {"cluster": group[0], "broker": group[1], "days": length}
    result |= {"days_with_data": sum(row["samples"] > 0 for row in rows)}
    result |= {"verdict": worst(verdicts), **_group_sums(rows)}
    for name in EXPOSED:
        result |= merged(name, rows, ["p99"])
    return result


def _group_sums(rows: list[Json]) -> Json:
    told = [row for row in rows if row["samples"]]
    result: Json = {}
    for name in GROUP_ADDED:
        values = [row[name] for row in told if row.get(name) is not None]
        result[name] = sum(values) if values else None
    result["samples"] = sum(row["samples"] for row in rows)
    for name in (
        "ok",
        "flush_disk_timeout",
        "flush_slave_timeout",
        "slave_not_available",
        "refused",
    ):
        values = [row.get(f"sends_{name}") for row in told]
        is_known = bool(values) and None not in values
        result[f"sends_{name}"] = sum(values) if is_known else None
    sends = sum(result[f"sync_{name}"] or 0 for name in SYNC_RESULTS)
    result["sync_ok_ratio"] = result["sync_ok"] / sends if sends else None
    return result | _acks(told)


def _acks(rows: list[Json]) -> Json:
    counts: dict[float, int] = defaultdict(int)
    for row in rows:
        if row.get("ack_le") is not None:
            for bound, count in zip([*row["ack_le"], math.inf], row["ack_counts"], strict=True):
                counts[bound] += count
    bounds = sorted(counts)
    every = [counts[bound] for bound in bounds]
    result: Json = {"ack_le": bounds[:-1], "ack_counts": every}
    if not bounds:
        result = {"ack_le": None, "ack_counts": None}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        result[f"ack_{name}_s"] = bucket_quantile(share, bounds[:-1], every)
    return result


def _cluster(name: str, length: int, today: Tables) -> Json:
    replicas, groups = (
        [
            row
            for row in today[of_day if length == 1 else of_days]
            if row["cluster"] == name and row.get("days", 1) == length
        ]
        for of_day, of_days in (("replica_days", "windows"), ("group_days", "group_windows"))
    )
    verdicts = [row["verdict"] for row in replicas]
    added = (
        *("window_s", "good_s", "bad_s", "unknown_s", "excluded_s"),
        *(*STATE_SECONDS, "state_unknown_s"),
        *(f"minutes_{kind}" for kind in ("good", "bad", "unknown", "written", "written_good")),
        *("incidents", "incidents_ended", "incident_s", "incident_ended_s"),
        *("transferred_bytes", "reconnects", "rejected_acks"),
    )
    waiting = {
        (row["cluster"], row["broker"])
        for row in today["group_days"]
        if row["cluster"] == name and row.get("role") == "SYNC_MASTER"
    } - {key_of(row)[:2] for row in today["replica_days"]}
    found = [*verdicts, *([INSUFFICIENT] if waiting else [])]
    result: Json = {"cluster": name, "days": length, "verdict": worst(found)}
    result |= {"groups": len(groups), "replicas": len(replicas)}
    for word, verdict in (("met", MET), ("breached", BREACHED), ("insufficient", INSUFFICIENT)):
        result[f"replicas_{word}"] = verdicts.count(verdict)
    result |= {column: sum(row[column] for row in replicas) for column in added}
    result["longest_incident_s"] = max((r["longest_incident_s"] for r in replicas), default=0)
    result |= shares(result)
    known = result["minutes_good"] + result["minutes_bad"]
    result["minutes_good_ratio"] = result["minutes_good"] / known if known else None
    for lag in ("lag_ms", "lag_bytes"):
        result |= merged(lag, replicas, LAG_FIGURES)
    result |= _group_sums(groups)
    for exposed in EXPOSED:
        result[f"{exposed}_max"] = _largest(row.get(f"{exposed}_max") for row in groups)
    return result
