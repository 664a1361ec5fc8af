"""Names of the metrics that pages and figures are made of; docs/monitoring.md says what each means.

Data only. POLLED is what the poller asks of our brokers every five seconds (request 28913).

Tested by tests/console/test_rates.py.
"""

from __future__ import annotations

from typing import Final

RPC_LATENCY: Final = "rocketmq_rpc_latency_milliseconds"
SYNC_RESULT: Final = "rocketmq_ha_sync_result_total"
ACK_LATENCY: Final = "rocketmq_ha_ack_latency_seconds"
UNREPLICATED_BYTES: Final = "rocketmq_ha_unreplicated_bytes"
UNREPLICATED_SECONDS: Final = "rocketmq_ha_oldest_unreplicated_seconds"
UNREPLICATED_EXACT: Final = "rocketmq_ha_unreplicated_exact"
REPLICA_IN_SYNC: Final = "rocketmq_ha_replica_in_sync"

TIMERS_WAITING: Final = "rocketmq_timer_dequeue_lag"
TIMERS_LATE_MS: Final = "rocketmq_timer_dequeue_latency_milliseconds"
TIMERS_NOT_ENTERED: Final = "rocketmq_timer_enqueue_lag"
TIMERS_NOT_ENTERED_MS: Final = "rocketmq_timer_enqueue_latency_milliseconds"
TIMERS_NEXT: Final = "rocketmq_timer_message_snapshot"
TIMERS_BY_TOPIC: Final = "rocketmq_timing_messages"

INFLIGHT: Final = "rocketmq_consumer_inflight_messages"
READY: Final = "rocketmq_consumer_ready_messages"
LAG_MS: Final = "rocketmq_consumer_lag_latency_milliseconds"
QUEUEING_MS: Final = "rocketmq_consumer_queueing_latency_milliseconds"
REVIVE_RECORDS: Final = "rocketmq_pop_revive_lag_milliseconds"
"""A number of records: the unit in the name is RocketMQ's mistake."""
REVIVE_MS: Final = "rocketmq_pop_revive_latency_milliseconds"
REVIVE_RETRY: Final = "rocketmq_pop_revive_retry_messages_total"
POP_OFFSETS: Final = "rocketmq_pop_offset_buffer_size"
POP_CHECKPOINTS: Final = "rocketmq_pop_checkpoint_buffer_size"

HALVES: Final = "rocketmq_half_messages"
WAITING_HALVES: Final = "rocketmq_transaction_waiting_halves"
OLDEST_HALF: Final = "rocketmq_transaction_oldest_half_seconds"
COMMITS: Final = "rocketmq_commit_messages_total"
ROLLBACKS: Final = "rocketmq_rollback_messages_total"
TRANSACTION_CHECKS: Final = "rocketmq_transaction_checks_total"
HALVES_GIVEN_UP: Final = "rocketmq_transaction_given_up_total"
FINISH_LATENCY: Final = "rocketmq_transaction_finish_latency_seconds"

BROKER_READY: Final = "rocketmq_ready"
PROCESS_UP: Final = "rocketmq_process_up"
PROCESS_RESTARTS: Final = "rocketmq_process_restarts_total"
DISK_USED: Final = "rocketmq_store_disk_used_ratio"

FENCED_RANGES: Final = "rocketmq_store_fenced_ranges"
FENCED_BYTES: Final = "rocketmq_store_fenced_bytes"
REPAIRED_RANGES: Final = "rocketmq_store_repaired_ranges_total"
DAMAGED_RANGES: Final = "rocketmq_store_scrub_damaged_ranges_total"
SCRUBBED_BYTES: Final = "rocketmq_store_scrubbed_bytes_total"
SCRUB_PASS_END: Final = "rocketmq_store_scrub_pass_end_timestamp_seconds"
CHANGED_CHUNKS: Final = "rocketmq_store_changed_chunks"
DIFFERING_CHUNKS: Final = "rocketmq_store_differing_chunks"
PUT_ASIDE: Final = "rocketmq_store_records_put_aside_total"

POLLED: Final = (
    RPC_LATENCY,
    SYNC_RESULT,
    ACK_LATENCY,
    UNREPLICATED_BYTES,
    UNREPLICATED_SECONDS,
    UNREPLICATED_EXACT,
    REPLICA_IN_SYNC,
    TIMERS_WAITING,
    TIMERS_LATE_MS,
    TIMERS_NOT_ENTERED,
    TIMERS_NOT_ENTERED_MS,
    TIMERS_NEXT,
    TIMERS_BY_TOPIC,
    INFLIGHT,
    READY,
    LAG_MS,
    QUEUEING_MS,
    REVIVE_RECORDS,
    REVIVE_MS,
    REVIVE_RETRY,
    POP_OFFSETS,
    POP_CHECKPOINTS,
    HALVES,
    WAITING_HALVES,
    OLDEST_HALF,
    COMMITS,
    ROLLBACKS,
    TRANSACTION_CHECKS,
    HALVES_GIVEN_UP,
    FINISH_LATENCY,
    BROKER_READY,
    PROCESS_UP,
    PROCESS_RESTARTS,
    DISK_USED,
    FENCED_RANGES,
    FENCED_BYTES,
    REPAIRED_RANGES,
    DAMAGED_RANGES,
    SCRUBBED_BYTES,
    SCRUB_PASS_END,
    CHANGED_CHUNKS,
    DIFFERING_CHUNKS,
    PUT_ASIDE,
)
