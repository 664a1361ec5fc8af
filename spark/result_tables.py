"""The columns of the result tables: what a Parquet partition holds, in this order and type.

Read by the stages that write or read results, on the driver. What each figure is stands in
docs/sla_report.md. `dt` (text, YYYY-MM-DD) is the name of a partition and not in its files.
"""

from __future__ import annotations

from typing import Final

from spark.schema import GROUP, REPLICA

LAG_FIGURES: Final = ("p50", "p90", "p95", "p99", "p999", "max")
WINDOW_LAG_FIGURES: Final = ("p50", "p99", "p999", "max")
STATES: Final = ("in_sync", "catching_up", "disconnected", "down", "unknown")
SPANS_S: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "3d": 259_200}
"""Spans of the burn rates, seconds."""
METADATA_TYPE: Final = (
    "array<struct<kind:string,max_age_ms:bigint,p99_age_ms:bigint,failures:bigint,"
    "covered_s:double>>"
)


def _columns(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


_GROUP_COLUMNS = _columns("string", *GROUP)
_KEY_COLUMNS = _columns("string", *REPLICA)

TABLES: Final[dict[str, dict[str, str]]] = {
    "replica_days": _KEY_COLUMNS
    | _columns("string", "objective", "verdict")
    | _columns("array<string>", "reasons")
    | _columns("double", "window_s", "interval_s")
    | _columns("bigint", "expected", "received", "duplicates", "conflicts", "late", "out_of_order")
    | _columns("double", "longest_gap_s")
    | _columns("bigint", "clock_skew_ms")
    | _columns("double", "coverage", "good_s", "bad_s", "unknown_s", "availability")
    | _columns("bigint", *(f"lag_ms_{name}" for name in LAG_FIGURES))
    | _columns("bigint", *(f"lag_bytes_{name}" for name in LAG_FIGURES))
    | _columns("double", *(f"state_{name}_s" for name in STATES))
    | _columns("bigint", "minutes_good", "minutes_bad", "minutes_unknown")
    | _columns("bigint", "minutes_written", "minutes_written_good")
    | _columns("bigint", "incidents", "incidents_ended")
    | _columns("double", "incident_s", "incident_ended_s", "longest_incident_s")
    | _columns("double", "mttr_s", "mtbf_s")
    | _columns("bigint", "transferred_bytes", "reconnects", "rejected_acks")
    | _columns("double", "catch_up_s", "catch_up_longest_s")
    | _columns("bigint", "catch_up_bytes")
    | _columns("double", "catch_up_mb_s")
    | _columns(METADATA_TYPE, "metadata")
    | _columns("double", "budget_s", "budget_left_s", "budget_used_ratio")
    | _columns("double", *(f"burn_{name}" for name in SPANS_S))
    | _columns("map<int,bigint>", "lag_ms_hist", "lag_bytes_hist")
    | _columns("bigint", "revision", "first_received")
    | _columns("string", "input_digest"),
    "group_days": _GROUP_COLUMNS
    | _columns("string", "role", "verdict")
    | _columns("bigint", "samples", "unreplicated_bytes_max", "unreplicated_bytes_p99")
    | _columns("bigint", "oldest_unreplicated_ms_max", "oldest_unreplicated_ms_p99")
    | _columns("double", "exposure_byte_s")
    | _columns("bigint", "sync_ok", "sync_flush_slave_timeout")
    | _columns("bigint", "sync_slave_not_available", "sync_flush_disk_timeout")
    | _columns("double", "sync_ok_ratio", "ack_p50_s", "ack_p99_s", "ack_p999_s")
    | _columns("array<double>", "ack_le")
    | _columns("array<bigint>", "ack_counts")
    | _columns("double", "ack_sum_s")
    | _columns("bigint", "msgs_in", "bytes_in", "restarts", "revision"),
    "windows": _KEY_COLUMNS
    | _columns("int", "days", "days_with_data")
    | _columns("string", "verdict")
    | _columns("double", "good_s", "bad_s", "unknown_s", "coverage", "availability")
    | _columns("double", *(f"lag_ms_{name}" for name in WINDOW_LAG_FIGURES))
    | _columns("double", *(f"lag_bytes_{name}" for name in WINDOW_LAG_FIGURES))
    | _columns("bigint", "incidents")
    | _columns("double", "mttr_s", "mtbf_s", "budget_s", "budget_left_s", "budget_used_ratio")
    | _columns("string", "forecast"),
    "incidents": _KEY_COLUMNS
    | _columns("int", "number")
    | _columns("bigint", "start_ms", "end_ms")
    | _columns("double", "duration_s", "bad_s", "unknown_s")
    | _columns("string", "cause")
    | _columns("boolean", "open")
    | _columns("bigint", "max_lag_ms", "max_lag_bytes"),
    "events": _GROUP_COLUMNS
    | _columns("int", "broker_id")
    | _columns("bigint", "ts")
    | _columns("string", "kind", "text"),
    "minutes": _KEY_COLUMNS
    | _columns("bigint", "minute", "good_ms", "bad_ms", "unknown_ms")
    | _columns("bigint", "lag_ms_max", "lag_bytes_max", "lag_weighted_ms")
    | _columns("bigint", "transferred_bytes", "msgs_in")
    | _columns("boolean", "written"),
    "hours": _KEY_COLUMNS
    | _columns("bigint", "hour", "good_ms", "bad_ms", "unknown_ms", "lag_ms_max"),
    "bad_lines": _columns("string", "file", "reason", "text"),
    "reports": _columns("bigint", "w0_ms", "w1_ms", "replicas", "bad_lines")
    | _columns("string", "verdict"),
}
"""Table -> column -> Spark SQL type."""
# `reports` has one row for each date that was reported, also for one without any replica: without
# it nobody could tell late data from a first report.


def ddl(table: str, *, with_date: bool = True) -> str:
    """The schema of a table as DDL, `dt` last."""
    columns = TABLES[table] | ({"dt": "string"} if with_date else {})
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
