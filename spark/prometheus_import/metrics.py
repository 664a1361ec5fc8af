"""The metrics that the import from Prometheus reads, and the labels that a broker gives them.

Plain data for the queries, the targets and the lines. Says of broker/metrics/metrics_table.py,
which this room may not import, what a line needs; a test holds both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READY: Final = "rocketmq_ready"
STORE_OFFSET: Final = "rocketmq_store_offset_bytes"
SYNC_RESULT: Final = "rocketmq_ha_sync_result_total"
ACK_LATENCY: Final = "rocketmq_ha_ack_latency_seconds"
ACK_BUCKET: Final = f"{ACK_LATENCY}_bucket"
UNREPLICATED: Final = "rocketmq_ha_unreplicated_bytes"
OLDEST_UNREPLICATED: Final = "rocketmq_ha_oldest_unreplicated_seconds"
UNREPLICATED_EXACT: Final = "rocketmq_ha_unreplicated_exact"
"""0: both are bounds; not there: a broker of an earlier version."""
CONNECTED: Final = "rocketmq_ha_replica_connected"
IN_SYNC: Final = "rocketmq_ha_replica_in_sync"
ACK_OFFSET: Final = "rocketmq_ha_ack_offset_bytes"
LAG_BYTES: Final = "rocketmq_ha_replica_lag_bytes"
LAG_SECONDS: Final = "rocketmq_ha_replica_lag_seconds"
LAG_EXACT: Final = "rocketmq_ha_replica_lag_exact"
TRANSFERRED: Final = "rocketmq_ha_transferred_bytes_total"
RECONNECTS: Final = "rocketmq_ha_reconnects_total"
REJECTED_ACKS: Final = "rocketmq_ha_rejected_acks_total"
STATE_SECONDS: Final = "rocketmq_ha_state_seconds_total"
CLIENT_CONNECTED: Final = "rocketmq_ha_client_connected"
SYNC_AGE: Final = "rocketmq_slave_sync_age_seconds"
SYNC_FAILURES: Final = "rocketmq_slave_sync_failures_total"
PROCESS_UP: Final = "rocketmq_process_up"
PROCESS_RESTARTS: Final = "rocketmq_process_restarts_total"
DUMP_LINES: Final = "rocketmq_metrics_dump_lines_total"

_REPLICA: Final = ("replica", "role")
OF_BROKER: Final[Mapping[str, tuple[str, ...]]] = {
    READY: (),
    STORE_OFFSET: ("kind",),
    SYNC_RESULT: ("result",),
    ACK_BUCKET: ("le",),
    f"{ACK_LATENCY}_sum": (),
    UNREPLICATED: (),
    OLDEST_UNREPLICATED: (),
    UNREPLICATED_EXACT: (),
    CONNECTED: _REPLICA,
    IN_SYNC: _REPLICA,
    ACK_OFFSET: _REPLICA,
    LAG_BYTES: _REPLICA,
    LAG_SECONDS: _REPLICA,
    LAG_EXACT: _REPLICA,
    TRANSFERRED: _REPLICA,
    RECONNECTS: _REPLICA,
    REJECTED_ACKS: ("replica", "reason"),
    STATE_SECONDS: ("replica", "state"),
    CLIENT_CONNECTED: (),
    SYNC_AGE: ("kind",),
    SYNC_FAILURES: ("kind",),
    PROCESS_UP: ("process",),
    PROCESS_RESTARTS: ("process",),
    DUMP_LINES: (),
}
"""Series of a broker that a line is made of, with their own labels; those of topics aside."""

MESSAGES_IN: Final = "rocketmq_messages_in_total"
THROUGHPUT_IN: Final = "rocketmq_throughput_in_total"
_TOPIC: Final = ("topic", "message_type", "is_system")
PER_TOPIC: Final[Mapping[str, tuple[str, ...]]] = {MESSAGES_IN: _TOPIC, THROUGHPUT_IN: _TOPIC}

PROCESS_START: Final = "process_start_time_seconds"
SCRAPED_AT: Final = "rocketmq_scraped_at"
"""timestamp(rocketmq_ready) under a name of its own: tells a scrape from a repeated value."""
DOWN_AT: Final = "rocketmq_down_at"
"""When a scrape failed: Prometheus' own `up` was 0. Has none of our labels: only whose it is."""

BASE_LABELS: Final = ("cluster", "node_type", "node_id")
"""On each of them."""
OWN_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    **OF_BROKER,
    **PER_TOPIC,
    PROCESS_START: (),
    SCRAPED_AT: (),
}
"""All of them, each with the labels that a broker gives it besides BASE_LABELS."""
