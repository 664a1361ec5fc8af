"""What an objective of an sla.yaml may say: the parser of each of its keys.

Plain data for spark/config/sla_config.py, on the driver. Must not know files, dumps or Spark.

Tested by tests/spark/config/test_sla_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark.config import sla_values
from spark.config.objectives import (
    LAG_MESSAGES,
    LAG_SECONDS,
    ConsumerLag,
    GroupAvailability,
    SlowSends,
)
from spark.config.sla_values import Parser

_MONTH_S: Final = 31 * 86_400.0
_SECONDS: Final = sla_values.number(0, _MONTH_S, "seconds", open_end="low")
PATTERNS: Final[Mapping[str, Parser]] = {
    "cluster": sla_values.pattern,
    "broker": sla_values.pattern,
    "replica": sla_values.pattern,
}
OBJECTIVE: Final[Mapping[str, Parser]] = {
    "name": sla_values.text,
    **PATTERNS,
    # 100 % would leave no budget, and every burn rate would be infinite.
    "availability_percent": sla_values.number(0, 100, "percent", open_end="both"),
    "lag_seconds": _SECONDS,
    "min_coverage_percent": sla_values.number(0, 100, "percent", open_end="low"),
    "lag_p99_seconds": _SECONDS,
    "sync_ok_percent": sla_values.sync_ok,
    "rpo_bytes": sla_values.whole_bytes,
    "metadata_age_seconds": _SECONDS,
    "metadata_required": sla_values.flag,
    "first_copy_hours": sla_values.number(0, _MONTH_S / 3600, "hours"),
    "runbook_url": sla_values.web_address,
    "sends_ok_percent": sla_values.number(0, 100, "percent", open_end="low"),
    "sends_slower_than": sla_values.mapping(
        SlowSends,
        {
            "ms": sla_values.number(0, _MONTH_S * 1000, "milliseconds", open_end="low"),
            "percent": sla_values.number(0, 100, "percent", open_end="high"),
        },
        required=("ms", "percent"),
    ),
    "group_availability": sla_values.mapping(
        GroupAvailability,
        {
            "in_sync_replicas": sla_values.copies,
            "percent": sla_values.number(0, 100, "percent", open_end="both"),
        },
        required=("in_sync_replicas",),
        words={"any": GroupAvailability()},
    ),
    "consumer_lag": sla_values.entries(
        ConsumerLag,
        {
            "group": sla_values.pattern,
            "topic": sla_values.pattern,
            "seconds": sla_values.bound(LAG_SECONDS, "seconds"),
            "messages": sla_values.bound(LAG_MESSAGES, "messages"),
            "percent": sla_values.number(0, 100, "percent", open_end="low"),
        },
        required=("group",),
        one_of=("seconds", "messages"),
    ),
}
