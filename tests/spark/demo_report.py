"""A day as it might be: ReportData for tests of the page and for the picture in the README.

Simulated in steps of 5 s, every figure computed from the same steps: what the page shows together
fits together; its sentences are the program's own (tests/spark/test_demo_report.py). Group broker-a
breached its objective with one replica (a cut connection, then a slow disk), its other replica met
it; broker-b is known for two thirds of the day only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from spark.figures.report_data import (
    BREACHED,
    INSUFFICIENT,
    MET,
    STATES,
    ReportData,
    Row,
    plotted_keys,
)
from spark.vocabulary import SEND_ANSWERS

DATE = "2026-03-14"
W0_MS = int(datetime(2026, 3, 14, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000
STEP_S = 5
STEPS = 86_400 // STEP_S
CLUSTER = "DefaultCluster"
OBJECTIVE_MS = 10_000
BUDGET_S = 86.4
NOT_ENDED = dict.fromkeys(("peer", "disconnect_reason", "disconnect_ms"))
END_OF_CONNECTION = {
    "peer": "192.0.2.3:58200",
    "disconnect_reason": "Connection reset by peer",
    "disconnect_ms": W0_MS + (2 * 3600 + 10 * 60 + 4) * 1000,
}
Step = tuple[str, float | None]
"""(state, lag in ms): state `in_sync`, `catching_up`, `disconnected`, `down`, `unknown`."""


@dataclass
class Replica:
    """One replica's day, made of steps."""

    broker: str
    replica: str
    verdict: str
    reasons: list[str]
    steps: list[Step]
    messages: list[int]
    causes: list[str] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> dict[str, Any]:
        return {"cluster": CLUSTER, "broker": self.broker, "replica": self.replica}

    def quality(self, step: Step) -> str:
        state, lag = step
        if state == "unknown":
            return "unknown"
        good = state == "in_sync" and lag is not None and lag <= OBJECTIVE_MS
        return "good" if good else "bad"

    def seconds(self, quality: str) -> int:
        return STEP_S * sum(self.quality(step) == quality for step in self.steps)

    def histogram(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for _, lag in self.steps:
            if lag is not None:
                bucket = 0 if lag < 1 else 1 + math.floor(math.log(lag) / math.log(1.02))
                found[bucket] = found.get(bucket, 0) + STEP_S * 1000
        return found

    def percentiles(self, prefix: str, scale: float) -> dict[str, Any]:
        lags = sorted(lag for _, lag in self.steps if lag is not None)
        parts = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
        return {
            f"{prefix}_{name}": round(lags[min(int(part * len(lags)), len(lags) - 1)] * scale)
            for name, part in parts.items()
        }

    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        inside = False
        for index, step in enumerate(self.steps):
            bad = self.quality(step) == "bad"
            if bad and not inside:
                found.append(self._incident(len(found), index))
            if bad:
                one = found[-1]
                one["end_ms"] = W0_MS + (index + 1) * STEP_S * 1000
                one["duration_s"] = one["bad_s"] = (one["end_ms"] - one["start_ms"]) / 1000
                if step[1] is not None:
                    one["max_lag_ms"] = max(one["max_lag_ms"] or 0, step[1])
                    one["max_lag_bytes"] = one["max_lag_ms"] * 40_000
            inside = bad
        return found

    def _incident(self, number: int, index: int) -> dict[str, Any]:
        return {
            **self.key,
            "number": number + 1,
            "start_ms": W0_MS + index * STEP_S * 1000,
            "unknown_s": 0,
            "cause": self.causes[number % len(self.causes)],
            "open": False,
            "max_lag_ms": None,
            "max_lag_bytes": None,
            **(
                END_OF_CONNECTION
                if self.causes[number % len(self.causes)] == "disconnected"
                else NOT_ENDED
            ),
        }

    def minutes(self) -> list[dict[str, Any]]:
        rows = []
        for minute in range(1440):
            steps = self.steps[minute * 12 : minute * 12 + 12]
            kinds = [self.quality(step) for step in steps]
            lags = [lag for _, lag in steps if lag is not None]
            times = {f"{k}_ms": kinds.count(k) * 5000 for k in ("good", "bad", "unknown")}
            rows.append(
                {
                    **self.key,
                    "minute": W0_MS + minute * 60_000,
                    **times,
                    "excluded_ms": 0,
                    "lag_ms_max": max(lags) if lags else None,
                    "msgs_in": self.messages[minute] if times["unknown_ms"] < 60_000 else None,
                }
            )
        return rows

    def hours(self) -> list[dict[str, Any]]:
        """Of 14 days; the last from the minutes, those before it quiet with a few bad hours."""
        rng = random.Random(self.replica)
        rows = []
        for back in range(13, 0, -1):
            for hour in range(24):
                busy = 1 + math.sin((hour - 6) / 24 * 2 * math.pi)
                bad = 1000 * rng.randrange(5, 60) if rng.random() < 0.008 else 0
                gone = self.broker == "broker-b" and back in (1, 2) and hour > 15
                rows.append(
                    {
                        **self.key,
                        "hour": W0_MS - back * DAY_MS + hour * 3_600_000,
                        "good_ms": 0 if gone else 3_600_000 - bad,
                        "bad_ms": 0 if gone else bad,
                        "unknown_ms": 3_600_000 if gone else 0,
                        "excluded_ms": 0,
                        "lag_ms_max": None if gone else round(rng.lognormvariate(3.5 + busy, 1)),
                    }
                )
        minutes = self.minutes()
        for hour in range(24):
            part = minutes[hour * 60 : hour * 60 + 60]
            lags = [row["lag_ms_max"] for row in part if row["lag_ms_max"] is not None]
            rows.append(
                {
                    **self.key,
                    "hour": W0_MS + hour * 3_600_000,
                    **{n: sum(r[n] for r in part) for n in ("good_ms", "bad_ms", "unknown_ms")},
                    "excluded_ms": 0,
                    "lag_ms_max": max(lags) if lags else None,
                    "lag_ms_p99": self._p99_of_hour(hour),
                }
            )
        for row in rows[:-24]:
            row["lag_ms_p99"] = None if row["lag_ms_max"] is None else round(row["lag_ms_max"] / 3)
        return rows

    def _p99_of_hour(self, hour: int) -> int | None:
        steps = self.steps[hour * 720 : hour * 720 + 720]
        lags = sorted(lag for _, lag in steps if lag is not None)
        return round(lags[math.ceil(0.99 * len(lags)) - 1]) if lags else None

    def days(self) -> list[dict[str, Any]]:
        sums: dict[str, dict[str, Any]] = {}
        for row in self.hours():
            date = datetime.fromtimestamp(row["hour"] / 1000, UTC).strftime("%Y-%m-%d")
            day = sums.setdefault(
                date, {**self.key, "dt": date, "good_s": 0.0, "bad_s": 0.0, "unknown_s": 0.0}
            )
            for name in ("good", "bad", "unknown"):
                day[f"{name}_s"] += row[f"{name}_ms"] / 1000
        return [sums[date] for date in sorted(sums)]

    def row(self) -> dict[str, Any]:
        good, bad, unknown = (self.seconds(kind) for kind in ("good", "bad", "unknown"))
        incidents = self.incidents()
        lengths = [incident["duration_s"] for incident in incidents]
        minutes = self.minutes()
        bad_minutes = sum(row["bad_ms"] > 0 for row in minutes)
        dark_minutes = sum(row["unknown_ms"] > 30_000 for row in minutes)
        catching_up = STEP_S * sum(state == "catching_up" for state, _ in self.steps)
        caught = catching_up * 61_000_000
        received = STEPS - unknown // STEP_S
        return {
            **self.key,
            "objective": "default",
            "verdict": self.verdict,
            "reasons": self.reasons,
            "window_s": 86_400.0,
            "interval_s": 5.0,
            "expected": STEPS,
            "received": received,
            "duplicates": 12 if self.broker == "broker-a" else 0,
            "conflicts": 0,
            "late": 0,
            "out_of_order": 0,
            "longest_gap_s": float(unknown),
            "clock_skew_ms": 7,
            "lag_p99_above_s": self._late_s(),
            "lag_p99_unknown_s": self.seconds("unknown"),
            "lag_p99_bounds_ms": None,
            "lag_unproved_s": 0.0,
            "coverage": (good + bad) / 86_400,
            "good_s": float(good),
            "bad_s": float(bad),
            "unknown_s": float(unknown),
            "excluded_s": 0.0,
            "exclusions": [],
            "availability": good / (good + bad),
            **self.percentiles("lag_ms", 1),
            **self.percentiles("lag_bytes", 40_000),
            **{
                f"state_{state}_s": float(STEP_S * sum(s == state for s, _ in self.steps))
                for state in ("in_sync", "catching_up", "disconnected", "down", "unknown")
            },
            "minutes_good": 1440 - bad_minutes - dark_minutes,
            "minutes_bad": bad_minutes,
            "minutes_unknown": dark_minutes,
            "minutes_written": 1440 - dark_minutes,
            "minutes_written_good": 1440 - bad_minutes - dark_minutes,
            "incidents": len(incidents),
            "incidents_ended": len(incidents),
            "incident_s": sum(lengths),
            "incident_ended_s": sum(lengths),
            "longest_incident_s": max(lengths) if lengths else None,
            "mttr_s": sum(lengths) / len(lengths) if lengths else None,
            "mtbf_s": good / len(lengths) if lengths else None,
            "transferred_bytes": sum(self.messages) * 1100,
            "reconnects": sum(state == "disconnected" for state, _ in self.steps[:1])
            + len(lengths),
            "rejected_acks": 0,
            "catch_up_s": float(catching_up),
            "catch_up_longest_s": float(catching_up) if catching_up else None,
            "catch_up_bytes": caught,
            "catch_up_mb_s": caught / catching_up / 1e6 if catching_up else None,
            "metadata": self.metadata,
            "budget_s": BUDGET_S,
            "budget_left_s": BUDGET_S - bad,
            "budget_used_ratio": bad / BUDGET_S,
            "burn_1h": bad / 3.6,
            "burn_6h": bad / 21.6,
            "burn_24h": bad / 86.4,
            "burn_3d": bad / 259.2,
            "revision": 1,
            "input_digest": f"{random.Random(self.replica).getrandbits(64):016x}",
            "lag_ms_hist": self.histogram(),
        }

    def window(self, days: int) -> dict[str, Any]:
        recent = self.days()[-days:]
        good, bad = (sum(day[f"{kind}_s"] for day in recent) for kind in ("good", "bad"))
        row = self.row()
        budget = BUDGET_S * days
        window_s = days * 86_400.0
        # The days before were in sync, and every bad hour of theirs had one incident.
        before = good + bad - row["good_s"] - row["bad_s"]
        first_ms = W0_MS - (days - 1) * DAY_MS
        bad_hours = sum(first_ms <= h["hour"] < W0_MS and h["bad_ms"] > 0 for h in self.hours())
        incidents = row["incidents"] + bad_hours
        states = {name: row[f"state_{name}_s"] for name in STATES if name != "unknown"}
        states["in_sync"] += before
        states["unknown"] = window_s - sum(states.values())
        good_minutes = row["minutes_good"] + int(before // 60) - bad_hours
        left_out = {"objective", "reasons", "interval_s", "revision", "input_digest", "lag_ms_hist"}
        return {
            **{name: value for name, value in row.items() if name not in left_out},
            "days": days,
            "days_with_data": len(recent),
            "begun": None,
            "verdict": _verdict_of_window(bad, budget, (good + bad) / window_s),
            "window_s": window_s,
            "expected": STEPS * days,
            "received": row["received"] + int(before // STEP_S),
            "longest_gap_s": 86_400.0 if days > len(recent) else row["longest_gap_s"],
            "good_s": good,
            "bad_s": bad,
            "unknown_s": window_s - good - bad,
            "coverage": (good + bad) / window_s,
            "availability": good / (good + bad),
            **{f"state_{name}_s": value for name, value in states.items()},
            "minutes_good": good_minutes,
            "minutes_bad": row["minutes_bad"] + bad_hours,
            "minutes_unknown": days * 1440 - good_minutes - row["minutes_bad"] - bad_hours,
            "minutes_written": row["minutes_written"] + int(before // 60),
            "minutes_written_good": good_minutes,
            "incidents": incidents,
            "incidents_ended": incidents,
            "incident_s": bad,
            "incident_ended_s": bad,
            "mttr_s": bad / incidents if incidents else None,
            "mtbf_s": good / incidents if incidents else None,
            "transferred_bytes": row["transferred_bytes"] * len(recent),
            "metadata": [
                {name: entry[name] for name in ("kind", "max_age_ms", "failures")}
                | {"covered_s": entry["covered_s"] * len(recent)}
                for entry in row["metadata"]
            ],
            "budget_s": budget,
            "budget_left_s": budget - bad,
            "budget_used_ratio": bad / budget,
            "forecast": self._forecast(budget - bad) if days == 30 else None,
        }

    def _late_s(self) -> float:
        """Of lag p99 within 2 s."""
        return sum(STEP_S for _, lag_ms in self.steps if lag_ms is not None and lag_ms > 2_000)

    def _forecast(self, left_s: float) -> str | None:
        """At the rate of the last 7 days, all of which are known."""
        rate = sum(day["bad_s"] for day in self.days()[-7:]) / 7
        end = datetime.fromisoformat(DATE) + timedelta(days=left_s // rate if rate else 0)
        return end.strftime("%Y-%m-%d") if rate else None


def _verdict_of_window(bad_s: float, budget_s: float, coverage: float) -> str:
    if bad_s > budget_s:
        return BREACHED
    return MET if coverage >= 0.99 else INSUFFICIENT


def messages_of_a_day(seed: int, peak: int) -> list[int]:
    """Messages of each minute: quiet at night, two humps."""
    rng = random.Random(seed)
    return [
        round(peak * (0.15 + 0.85 * math.sin(minute / 1440 * math.pi) ** 2) * rng.uniform(0.9, 1.1))
        for minute in range(1440)
    ]


def quiet_steps(seed: int, messages: list[int], at_peak_ms: float) -> list[Step]:
    """In sync all day; the lag goes with the load."""
    rng = random.Random(seed)
    top = max(messages)
    return [
        (
            "in_sync",
            round(at_peak_ms * (messages[i // 12] / top) ** 2 * rng.lognormvariate(0, 0.7), 1),
        )
        for i in range(STEPS)
    ]


def put(steps: list[Step], clock: str, count: int, step: Callable[[int], Step]) -> None:
    """Replaces `count` steps from HH:MM:SS on."""
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    first = (hours * 3600 + minutes * 60 + seconds) // STEP_S
    for index in range(count):
        steps[first + index] = step(index)


def _ages(worst_ms: int, failures: int) -> list[dict[str, Any]]:
    kinds = ("topics", "consumer_offsets", "delay_offsets", "subscription_groups")
    return [
        {
            "kind": kind,
            "max_age_ms": worst_ms - 700 * index,
            "p99_age_ms": 10_400 - 90 * index,
            "failures": failures,
            "covered_s": 86_400.0,
            "at_least_ms": worst_ms - 700 * index,
            "at_most_ms": worst_ms - 700 * index,
            "unbounded_s": 0.0,
        }
        for index, kind in enumerate(kinds)
    ]


def _replicas() -> list[Replica]:
    load_a, load_b = messages_of_a_day(1, 240_000), messages_of_a_day(2, 90_000)
    breached = quiet_steps(11, load_a, 120)
    put(breached, "02:10:05", 24, lambda i: ("disconnected", 5_000.0 * (i + 1)))
    put(breached, "02:12:05", 16, lambda i: ("catching_up", 125_000.0 - 7_500 * i))
    put(breached, "13:41:00", 12, lambda i: ("in_sync", 10_500.0 + 900 * (6 - abs(6 - i))))
    put(breached, "18:02:30", 3, lambda _: ("down", None))
    met = quiet_steps(12, load_a, 45)
    put(met, "02:31:20", 5, lambda i: ("in_sync", 11_000.0 + 400 * i))
    put(met, "18:02:30", 3, lambda _: ("down", None))
    dark = quiet_steps(13, load_b, 60)
    put(dark, "15:12:00", 6336, lambda _: ("unknown", None))
    short = ["availability 99.681 % < 99.9 %: 275 s bad of 86.4 s allowed"]
    gap = [
        "availability not proved: 0 s bad and 8 h 48 min unknown of 86.4 s allowed",
        "lag p99, objective 2 s: not proved, 0 s above it and 8 h 48 min unknown of 864 s allowed",
    ]
    near = [
        "availability 99.953 %, objective 99.9 %: 40 s bad of 86.4 s allowed",
        "lag p99, objective 2 s: above it for at most 25 s of 863.85 s allowed",
    ]
    causes = ["disconnected", "slow", "master_restart"]
    return [
        Replica(
            "broker-a", "broker-a:1", BREACHED, short, breached, load_a, causes, _ages(41_800, 3)
        ),
        Replica("broker-a", "broker-a:2", MET, near, met, load_a, causes[1:], _ages(19_900, 0)),
        Replica("broker-b", "broker-b:1", INSUFFICIENT, gap, dark, load_b, causes),
    ]


def _group(broker: str, role: str, verdict: str, replicas: list[Replica]) -> dict[str, Any]:
    le = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
    sync = role == "SYNC_MASTER"
    shape = (
        0,
        4_100,
        61_000,
        182_000,
        143_000,
        58_000,
        19_500,
        6_100,
        1_900,
        610,
        140,
        22,
        3,
        0,
        0,
    )
    messages = sum(replicas[0].messages)
    return {
        "cluster": CLUSTER,
        "broker": broker,
        "role": role,
        "verdict": verdict,
        "samples": STEPS - replicas[0].seconds("unknown") // STEP_S,
        "unreplicated_bytes_max": 5_480_000 if sync else 61_300_000,
        "unreplicated_bytes_p99": 212_000 if sync else 4_900_000,
        "oldest_unreplicated_ms_max": 2_350 if sync else 18_400,
        "oldest_unreplicated_ms_p99": 61 if sync else 1_320,
        "exposure_byte_s": 7.1e8 if sync else 2.6e10,
        "exposure_covered_s": 86_400.0,
        "exposure_at_least": 5_480_000 if sync else 61_300_000,
        "exposure_at_most": 5_480_000 if sync else 61_300_000,
        "exposure_unmarked": 0,
        "exposure_unbounded_s": 0.0,
        "sync_ok_least": sum(shape) if sync else 0,
        "sync_ok_most": sum(shape) if sync else 0,
        "sync_failed_least": 245 if sync else 0,
        "sync_failed_most": 245 if sync else 0,
        "sends_ok_least": messages,
        "sends_ok_most": messages,
        "sends_failed_least": 245 if sync else 0,
        "sends_failed_most": 245 if sync else 0,
        "sends_le": le,
        "sends_least": list(shape),
        "sends_most": list(shape),
        "sends_unmeasured": 0,
        "sends_uncounted": 0,
        "two_masters_s": 0.0,
        "two_masters": None,
        "ready_samples": STEPS - replicas[0].seconds("unknown") // STEP_S,
        "closed": True,
        "sync_ok": sum(shape) if sync else 0,
        "sync_flush_slave_timeout": 214 if sync else 0,
        "sync_slave_not_available": 31 if sync else 0,
        "sync_flush_disk_timeout": 0,
        "sync_ok_ratio": sum(shape) / (sum(shape) + 245) if sync else None,
        "ack_p50_s": 0.0041 if sync else None,
        "ack_p99_s": 0.0612 if sync else None,
        "ack_p999_s": 0.3140 if sync else None,
        "ack_le": le,
        "ack_counts": list(shape) if sync else [0] * 15,
        "ack_sum_s": 4711.5 if sync else 0.0,
        "sends_ok": messages - 245 if sync else messages,
        "sends_flush_disk_timeout": 0,
        "sends_flush_slave_timeout": 214 if sync else 0,
        "sends_slave_not_available": 31 if sync else 0,
        "sends_refused": 0 if sync else 12,
        "msgs_in": messages,
        "bytes_in": messages * 1_050,
        "restarts": 1 if sync else 0,
        "revision": 1,
    }


def _worst(rows: Sequence[Row]) -> str:
    verdicts = [str(row["verdict"]) for row in rows]
    return min(verdicts, key=[BREACHED, INSUFFICIENT, MET].index)


def _group_window(group: dict[str, Any], days: int, verdict: str) -> dict[str, Any]:
    """As if every one of the days with data had been like the one of the report."""
    added = ["samples", "exposure_byte_s", "ack_sum_s", "msgs_in", "bytes_in", "restarts"]
    added += [f"sends_{name}" for name in SEND_ANSWERS]
    added += ["sync_ok", "sync_flush_slave_timeout", "sync_slave_not_available"]
    row = {name: value for name, value in group.items() if name not in ("role", "revision")}
    with_data = min(days, 14)
    row |= {name: group[name] * with_data for name in added}
    row |= {"ack_counts": [count * with_data for count in group["ack_counts"]]}
    return row | {"days": days, "days_with_data": with_data, "verdict": verdict}


_CLUSTER_MAXIMA = ("unreplicated_bytes_max", "oldest_unreplicated_ms_max")


def _clusters(
    replicas: list[dict[str, Any]], groups: list[dict[str, Any]], days: int
) -> dict[str, Any]:
    """The one cluster over so many days, from rows of replicas and groups."""
    worst = max(replicas, key=lambda row: row["lag_ms_max"])
    added = ["window_s", "good_s", "bad_s", "unknown_s", "excluded_s", "incidents"]
    added += ["incidents_ended", "incident_s", "incident_ended_s"]
    added += ["transferred_bytes", "reconnects", "rejected_acks"]
    added += [name for name in worst if name.startswith(("state_", "minutes_"))]
    lags = {name: value for name, value in worst.items() if name.startswith("lag_")}
    verdicts = [row["verdict"] for row in replicas]
    found = {
        **_group_window(groups[0], days, _worst(replicas)),
        **{name: value for name, value in lags.items() if not name.endswith("_hist")},
        **{name: sum(row[name] for row in replicas) for name in added},
        "cluster": CLUSTER,
        "groups": len(groups),
        "replicas": len(replicas),
        "replicas_met": verdicts.count(MET),
        "replicas_breached": verdicts.count(BREACHED),
        "replicas_insufficient": verdicts.count(INSUFFICIENT),
        "longest_incident_s": max(row["longest_incident_s"] or 0 for row in replicas),
        "days": days,
        **{name: max(group[name] for group in groups) for name in _CLUSTER_MAXIMA},
    }
    known, minutes = found["good_s"] + found["bad_s"], found["minutes_good"] + found["minutes_bad"]
    return found | {
        "coverage": known / found["window_s"],
        "availability": found["good_s"] / known,
        "minutes_good_ratio": found["minutes_good"] / minutes,
        "mttr_s": found["incident_ended_s"] / found["incidents_ended"],
        "mtbf_s": found["good_s"] / found["incidents"],
        "calendar": [] if days == 1 else None,
    }


def _event(broker: str, clock: str, kind: str, text: str) -> dict[str, Any]:
    ts = datetime.fromisoformat(f"{DATE}T{clock}+00:00").timestamp() * 1000
    row = {"cluster": CLUSTER, "broker": broker, "broker_id": 0, "ts": int(ts)}
    return {**row, "kind": kind, "text": text}


def demo_objective() -> dict[str, Any]:
    """The one that all replicas of the demo have."""
    return {
        "name": "default",
        "availability_percent": 99.9,
        "lag_seconds": 10.0,
        "min_coverage_percent": 99.0,
        "lag_p99_seconds": 2.0,
        "sync_ok_percent": None,
        "rpo_bytes": None,
        "metadata_age_seconds": None,
        "first_copy_hours": 24.0,
        "sync_ok_given": True,
        "runbook_url": None,
        "sends_ok_percent": None,
        "sends_slower_than": None,
        "group_availability": None,
        "consumer_lag": None,
    }


@functools.cache
def demo_report() -> ReportData:
    """The day described above, with 13 days before it in heat maps and windows."""
    replicas = _replicas()
    rows = [replica.row() for replica in replicas]
    windows = [replica.window(days) for replica in replicas for days in (7, 30)]
    groups = [
        _group("broker-a", "SYNC_MASTER", BREACHED, replicas[:2]),
        _group("broker-b", "ASYNC_MASTER", INSUFFICIENT, replicas[2:]),
    ]
    restart = "started at 2026-03-14 18:02:45 UTC; nothing is missing between the two lives"
    config = "settings changed, digest 90c1be22a4f7 -> 17d3550be1aa"
    return ReportData(
        date=DATE,
        w0_ms=W0_MS,
        w1_ms=W0_MS + DAY_MS,
        verdict=BREACHED,
        replica_days=rows,
        group_days=groups,
        windows=windows,
        group_windows=[
            _group_window(
                group,
                days,
                _worst([w for w in windows if (w["days"], w["broker"]) == (days, group["broker"])]),
            )
            for group in groups
            for days in (7, 30)
        ],
        clusters=[
            _clusters(rows, groups, 1),
            *(_clusters([w for w in windows if w["days"] == n], groups, n) for n in (7, 30)),
        ],
        incidents=[incident for replica in replicas for incident in replica.incidents()],
        events=[
            _event("broker-a", "18:02:50", "config_change", config),
            _event("broker-a", "18:02:50", "restart", restart),
            _event("broker-b", "03:20:10", "process_restart", "process ha was restarted"),
        ],
        bad_lines=[
            {
                "reason": "not one JSON object",
                "lines": 1,
                "files": 1,
                "example_file": "/dumps/dt=2026-03-14/cluster=DefaultCluster/broker=broker-b/"
                "1500-0-5f21c0aa-00010801.jsonl",
                "example_text": '{"v":1,"ts":1773501120004,"mono":88213',
            }
        ],
        minutes=[row for replica in replicas for row in replica.minutes()],
        hours=[row for replica in replicas for row in replica.hours()],
        days=[row for replica in replicas for row in replica.days()],
        objectives=[demo_objective()],
    )


def empty_report() -> ReportData:
    """A day of which nothing is known and for which nobody expects a replica."""
    return ReportData(DATE, W0_MS, W0_MS + DAY_MS, INSUFFICIENT)


def one_replica_report(name: str = "broker-a:1", broker: str = "broker-a") -> ReportData:
    """The breached replica alone, on its first day, under any name."""
    demo = demo_report()
    renamed = {"broker": broker, "replica": name}

    def of(rows: Sequence[Row]) -> list[Row]:
        return [{**row, **renamed} for row in rows if row["replica"] == "broker-a:1"]

    return dataclasses.replace(
        demo,
        replica_days=of(demo.replica_days),
        group_days=[{**row, "broker": broker} for row in demo.group_days[:1]],
        windows=of(demo.windows),
        group_windows=[{**row, "broker": broker} for row in demo.group_windows[:2]],
        incidents=of(demo.incidents),
        minutes=of(demo.minutes),
        events=[{**demo.events[0], "broker": broker, "text": name}],
        bad_lines=[{**row, "reason": name, "example_text": name} for row in demo.bad_lines],
        hours=[],
        days=[],
    )


def large_report(groups: int) -> ReportData:
    """`groups` groups of two replicas, each day as one of the demo's; a day of many incidents."""
    demo = demo_report()
    patterns = {row["replica"]: row for row in demo.replica_days}
    rows: list[Row] = []
    group_days: list[Row] = []
    windows: list[Row] = []
    group_windows: list[Row] = []
    incidents: list[Row] = []
    minutes: list[Row] = []
    hours: list[Row] = []
    days: list[Row] = []
    for number in range(groups):
        broker = f"broker-{number:04d}"
        like = demo.group_days[number % 2]["broker"]
        group_days.append({**demo.group_days[number % 2], "broker": broker})
        group_windows += [
            {**r, "broker": broker} for r in demo.group_windows if r["broker"] == like
        ]
        for slave in (1, 2):
            like = ("broker-a:1", "broker-a:2", "broker-b:1")[(number + slave) % 3]
            renamed = {"broker": broker, "replica": f"{broker}:{slave}"}
            rows.append({**patterns[like], **renamed})
            windows += [{**row, **renamed} for row in demo.windows if row["replica"] == like]
            incidents += [{**row, **renamed} for row in demo.incidents if row["replica"] == like]
    for key in plotted_keys(rows):
        renamed = dict(zip(("cluster", "broker", "replica"), key, strict=True))
        for rows_of, table in ((minutes, demo.minutes), (hours, demo.hours), (days, demo.days)):
            rows_of += [{**row, **renamed} for row in table if row["replica"] == "broker-a:1"]
    return dataclasses.replace(
        demo,
        replica_days=rows,
        group_days=group_days,
        windows=windows,
        group_windows=group_windows,
        incidents=incidents,
        minutes=minutes,
        hours=hours,
        days=days,
        events=list(demo.events) * groups,
    )
