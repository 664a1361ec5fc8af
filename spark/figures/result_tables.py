"""The columns of the result tables: what a Parquet partition holds, in this order and type.

Plain data for the stages that write or read results and for the files that people read; it must
not know Spark. What each column means is in docs/report_files.md, how it is computed in
docs/sla_report.md. `dt` (text, YYYY-MM-DD) is the name of a partition and not in its files.

Tested by tests/spark/test_report_files.py.
"""

from __future__ import annotations

from typing import Final

from spark import vocabulary
from spark.vocabulary import GROUP, REPLICA, SEND_ANSWERS, SYNC_RESULTS

PERCENTILES: Final = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}
"""Of the lag: name -> thousandths of the time."""
LAG_FIGURES: Final = (*PERCENTILES, "max")
HISTOGRAM_BASE: Final = 1.02
"""Each bucket's upper end is so many times its lower one."""
STATES: Final = (*vocabulary.STATES, "down", "unknown")
SPANS_S: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "3d": 259_200}
"""Spans of the burn rates, seconds."""
METADATA_FIGURES: Final = {
    "kind": "string",
    "max_age_ms": "bigint",
    "p99_age_ms": "bigint",
    "failures": "bigint",
    "covered_s": "double",
    "at_least_ms": "bigint",
    "at_most_ms": "bigint",
    "unbounded_s": "double",
}
CLUSTER_CALENDAR_FIGURES: Final = {
    **dict.fromkeys(("period", "name"), "string"),
    "final": "boolean",
    "verdict": "string",
    **dict.fromkeys(
        ("replicas_met", "replicas_breached", "replicas_insufficient"),
        "bigint",
    ),
    **dict.fromkeys(("window_s", "open_s", "coverage"), "double"),
    **dict.fromkeys(("good_s", "bad_s", "unknown_s", "excluded_s", "availability"), "double"),
}
WINDOW_METADATA_FIGURES: Final = {
    name: kind
    for name, kind in METADATA_FIGURES.items()
    if name not in ("p99_age_ms", "at_least_ms", "at_most_ms", "unbounded_s")
}


def _array_of(fields: dict[str, str]) -> str:
    return f"array<struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>>"


METADATA_TYPE: Final = _array_of(METADATA_FIGURES)
EXCLUSIONS_TYPE: Final = _array_of({"reason": "string", "seconds": "double"})
WINDOW_METADATA_TYPE: Final = _array_of(WINDOW_METADATA_FIGURES)
CLUSTER_CALENDAR_TYPE: Final = _array_of(CLUSTER_CALENDAR_FIGURES)


def _columns(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


_GROUP_COLUMNS = _columns("string", *GROUP)
_KEY_COLUMNS = _columns("string", *REPLICA)
_LAGS = tuple(f"{lag}_{name}" for lag in ("lag_ms", "lag_bytes") for name in LAG_FIGURES)
_LAG_HISTOGRAMS = _columns("map<int,bigint>", "lag_ms_hist", "lag_bytes_hist")
_SAMPLE_COUNTS = ("expected", "received", "duplicates", "conflicts", "late", "out_of_order")
_KNOWN = _columns(
    "double", *("coverage", "good_s", "bad_s", "unknown_s", "excluded_s", "availability")
)
_STATE_COLUMNS = _columns("double", *(f"state_{name}_s" for name in STATES))
_MINUTE_COUNTS = _columns(
    "bigint",
    *("minutes_good", "minutes_bad", "minutes_unknown"),
    *("minutes_written", "minutes_written_good"),
)
_INCIDENT_FIGURES = _columns("bigint", "incidents", "incidents_ended") | _columns(
    "double", "incident_s", "incident_ended_s", "longest_incident_s", "mttr_s", "mtbf_s"
)
_COUNTERS = _columns("bigint", "transferred_bytes", "reconnects", "rejected_acks")
_CATCH_UP = (
    _columns("double", "catch_up_s", "catch_up_longest_s")
    | _columns("bigint", "catch_up_bytes")
    | _columns("double", "catch_up_mb_s")
)
_BUDGET = _columns(
    "double",
    *("budget_s", "budget_left_s", "budget_used_ratio"),
    *(f"burn_{name}" for name in SPANS_S),
)
_SENDS = (
    _columns("bigint", *(f"sync_{name}" for name in SYNC_RESULTS))
    | _columns("double", "sync_ok_ratio", "ack_p50_s", "ack_p99_s", "ack_p999_s")
    | _columns("array<double>", "ack_le")
    | _columns("array<bigint>", "ack_counts")
    | _columns("double", "ack_sum_s")
    | _columns("bigint", *(f"sends_{name}" for name in SEND_ANSWERS))
    | _columns("bigint", "msgs_in", "bytes_in", "restarts")
)

_OF_LAG = ("le", "within_ms", "beyond_ms", "unknown_ms")
"""By bound."""

TABLES: Final[dict[str, dict[str, str]]] = {
    "replica_days": _KEY_COLUMNS
    | _columns("string", "objective", "verdict")
    | _columns("array<string>", "reasons")
    | _columns("double", "window_s", "interval_s")
    | _columns("bigint", *_SAMPLE_COUNTS)
    | _columns("double", "longest_gap_s")
    | _columns("bigint", "clock_skew_ms")
    | _KNOWN
    | _columns("bigint", *_LAGS)
    | _columns("double", "lag_p99_above_s", "lag_p99_unknown_s")
    | _columns("array<bigint>", "lag_p99_bounds_ms")
    | _columns("double", "lag_unproved_s")
    | _STATE_COLUMNS
    | _MINUTE_COUNTS
    | _INCIDENT_FIGURES
    | _columns("bigint", "carried_start_ms", "carried_end_ms", "open_start_ms", "open_end_ms")
    | _columns(EXCLUSIONS_TYPE, "exclusions")
    | _columns("bigint", "first_copy_since_ms")
    | _columns("double", "leading_unknown_s")
    | _COUNTERS
    | _CATCH_UP
    | _columns(METADATA_TYPE, "metadata")
    | _BUDGET
    | _LAG_HISTOGRAMS
    | _columns("bigint", "revision", "first_received")
    | _columns("string", "input_digest"),
    "group_days": _GROUP_COLUMNS
    | _columns("string", "role", "verdict")
    | _columns("bigint", "samples", "unreplicated_bytes_max", "unreplicated_bytes_p99")
    | _columns("bigint", "oldest_unreplicated_ms_max", "oldest_unreplicated_ms_p99")
    | _columns("double", "exposure_byte_s", "exposure_covered_s")
    | _columns("bigint", "exposure_at_least", "exposure_at_most", "exposure_unmarked")
    | _columns("double", "exposure_unbounded_s")
    | _columns("bigint", "sync_ok_least", "sync_ok_most", "sync_failed_least", "sync_failed_most")
    | _columns("bigint", "sends_ok_least", "sends_ok_most")
    | _columns("bigint", "sends_failed_least", "sends_failed_most")
    | _columns("array<double>", "sends_le")
    | _columns("array<bigint>", "sends_least", "sends_most")
    | _columns("bigint", "sends_unmeasured", "sends_uncounted")
    | _columns("double", "two_masters_s")
    | _columns("string", "two_masters")
    | _columns("bigint", "ready_samples")
    | _columns("boolean", "closed")
    | _SENDS
    | _columns("map<int,bigint>", "unreplicated_bytes_hist", "oldest_unreplicated_ms_hist")
    | _columns("bigint", "revision"),
    "group_availability": _GROUP_COLUMNS
    | _columns("string", "objective")
    | _columns("int", "in_sync_replicas", "replicas")
    | _columns("string", "verdict", "reason")
    | _columns("double", "window_s")
    | _KNOWN
    | _columns("double", "availability_percent", "budget_s", "budget_left_s", "budget_used_ratio"),
    "consumer_lag": _GROUP_COLUMNS
    | _columns("string", "consumer_group", "topic", "verdict")
    | _columns("array<string>", "reasons")
    | _columns("double", "window_s", "absent_s")
    | _columns("bigint", "lines", "messages_max", "age_max_ms")
    | _columns("array<bigint>", *(f"age_{name}" for name in _OF_LAG))
    | _columns("array<bigint>", *(f"messages_{name}" for name in _OF_LAG)),
    "windows": _KEY_COLUMNS
    | _columns("int", "days", "days_with_data")
    | _columns("string", "begun", "verdict")
    | _columns("double", "window_s")
    | _columns("bigint", *_SAMPLE_COUNTS)
    | _columns("double", "longest_gap_s")
    | _columns("bigint", "clock_skew_ms")
    | _KNOWN
    | _columns("double", *_LAGS)
    | _STATE_COLUMNS
    | _MINUTE_COUNTS
    | _INCIDENT_FIGURES
    | _COUNTERS
    | _CATCH_UP
    | _columns(WINDOW_METADATA_TYPE, "metadata")
    | _BUDGET
    | _columns("string", "forecast")
    | _LAG_HISTOGRAMS,
    "calendar_windows": _KEY_COLUMNS
    | _columns("string", "period", "name", "timezone")
    | _columns("bigint", "from_ms", "to_ms", "until_ms")
    | _columns("boolean", "final")
    | _columns("int", "days_with_data")
    | _columns("string", "verdict", "reason")
    | _columns("double", "window_s", "open_s")
    | _KNOWN
    | _columns("double", "budget_s", "budget_left_s", "budget_used_ratio"),
    "group_windows": _GROUP_COLUMNS
    | _columns("int", "days", "days_with_data")
    | _columns("string", "verdict")
    | _columns("bigint", "samples", "unreplicated_bytes_max")
    | _columns("double", "unreplicated_bytes_p99")
    | _columns("bigint", "oldest_unreplicated_ms_max")
    | _columns("double", "oldest_unreplicated_ms_p99", "exposure_byte_s")
    | _SENDS,
    "clusters": _columns("string", "cluster")
    | _columns("int", "days")
    | _columns("string", "verdict")
    | _columns("bigint", "groups", "replicas")
    | _columns("bigint", "replicas_met", "replicas_breached", "replicas_insufficient")
    | _columns("double", "window_s")
    | _KNOWN
    | _columns("double", *_LAGS)
    | _STATE_COLUMNS
    | _MINUTE_COUNTS
    | _columns("double", "minutes_good_ratio")
    | _INCIDENT_FIGURES
    | _COUNTERS
    | _columns("bigint", "samples", "unreplicated_bytes_max", "oldest_unreplicated_ms_max")
    | _columns("double", "exposure_byte_s")
    | _SENDS
    | _columns(CLUSTER_CALENDAR_TYPE, "calendar"),
    "incidents": _KEY_COLUMNS
    | _columns("int", "number")
    | _columns("bigint", "start_ms", "end_ms")
    | _columns("double", "duration_s", "bad_s", "unknown_s")
    | _columns("string", "cause")
    | _columns("boolean", "open")
    | _columns("bigint", "max_lag_ms", "max_lag_bytes")
    | _columns("string", "peer", "disconnect_reason")
    | _columns("bigint", "disconnect_ms"),
    "events": _GROUP_COLUMNS
    | _columns("int", "broker_id")
    | _columns("bigint", "ts")
    | _columns("string", "kind", "text"),
    "elections": _GROUP_COLUMNS
    | _columns("bigint", "epoch", "ts")
    | _columns("int", "broker_id")
    | _columns("string", "cause", "why")
    | _columns("bigint", "old_epoch")
    | _columns("int", "old_master")
    | _columns("string", "members")
    | _columns("double", "without_master_s")
    | _columns("bigint", "confirm_offset", "log_end", "at_risk_bytes", "lost_bytes")
    | _columns("string", "promise"),
    "minutes": _KEY_COLUMNS
    | _columns("bigint", "minute", "good_ms", "bad_ms", "unknown_ms", "excluded_ms")
    | _columns("bigint", "lag_ms_max", "msgs_in")
    | _columns("boolean", "written"),
    "hours": _KEY_COLUMNS
    | _columns("bigint", "hour", "good_ms", "bad_ms", "unknown_ms", "excluded_ms")
    | _columns("bigint", "lag_ms_max", "lag_ms_p99"),
    "bad_lines": _columns("string", "file", "reason", "text"),
    "reports": _columns("bigint", "w0_ms", "w1_ms", "replicas", "bad_lines")
    | _columns("string", "verdict"),
}
"""Table -> column -> Spark SQL type."""
# `reports` has one row for each date that was reported, also for one without any replica: without
# it late data could not be told from a first report.
