"""The table of all metrics of this broker: name, kind, help, labels.

Plain data, used by the processes that count (each looks up its slots in ipc/metric_slots.py by
these names) and by the supervisor's collector. Metrics that RocketMQ 5.x also exports have its
names, labels and units (BrokerMetricsConstant, DefaultStoreMetricsConstant,
RemotingMetricsConstant), so that dashboards made for it work; the rest follows Prometheus' rules
(base units, `_total`). Each section names the process that counts.

Tested by tests/broker/metrics/test_pop_metrics.py.
"""

from __future__ import annotations

from typing import Final

from remoting.metrics.metric import Metric
from remoting.metrics.metric import counter as _counter
from remoting.metrics.metric import gauge as _gauge
from remoting.metrics.metric import histogram as _histogram

BASE_LABELS: Final = ("cluster", "node_type", "node_id")
"""On every metric, before its own labels: cluster name, "broker", broker name. As in 5.x."""

STORAGE_LABELS: Final = ("storage_type", "storage_medium")
STORAGE: Final = ("local", "disk")
"""Their values, as in 5.x."""
REPLICA_LABELS: Final = ("replica", "role")
"""Stable id of a slave (ha/replica_registry.py), and the role of the broker that serves it."""

HALF_LABELS: Final = ("topic", "producer_group")
"""Of half messages that wait; more groups than WaitingHalves has rows for are __overflow__."""


# -- counted by process `remoting` -------------------------------------------------------------

_IN: Final = ("topic", "message_type", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")

# fmt: off
MESSAGES_IN: Final = _counter("rocketmq_messages_in_total", "messages stored for producers", _IN)
THROUGHPUT_IN: Final = _counter("rocketmq_throughput_in_total",
    "bytes of records stored for producers", _IN)
MESSAGES_OUT: Final = _counter("rocketmq_messages_out_total",
    "messages delivered to consumers", _OUT)
THROUGHPUT_OUT: Final = _counter("rocketmq_throughput_out_total",
    "bytes of records delivered to consumers", _OUT)
RPC_LATENCY: Final = _histogram("rocketmq_rpc_latency_milliseconds",
    "time from a request to its response, including queueing; result oneway: no response",
    ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    (1, 3, 5, 7, 10, 100, 1000, 2000, 3000))
BROKER_PERMISSION: Final = _gauge("rocketmq_broker_permission",
    "brokerPermission: 2 write, 4 read, 6 both")
TOPIC_NUMBER: Final = _gauge("rocketmq_topic_number", "number of topics, including system topics")
CONSUMER_GROUP_NUMBER: Final = _gauge("rocketmq_consumer_group_number", "number of consumer groups")
PROCESSOR_WATERMARK: Final = _gauge("rocketmq_processor_watermark",
    "queued requests, by pool", ("processor",))
PRODUCER_CONNECTIONS: Final = _gauge("rocketmq_producer_connections",
    "connected producers", ("language", "version", "protocol_type"))
CONSUMER_CONNECTIONS: Final = _gauge("rocketmq_consumer_connections",
    "connected consumers",
    ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"))
CONSUMER_LAG_MESSAGES: Final = _gauge("rocketmq_consumer_lag_messages",
    "messages not yet consumed by a group", _LAG)
CONSUMER_LAG_LATENCY: Final = _gauge("rocketmq_consumer_lag_latency_milliseconds",
    "age of the oldest message not yet consumed", _LAG)
CONSUMER_INFLIGHT_MESSAGES: Final = _gauge("rocketmq_consumer_inflight_messages",
    "messages that a group has got and not yet acknowledged or committed", _LAG)
CONSUMER_QUEUEING_LATENCY: Final = _gauge("rocketmq_consumer_queueing_latency_milliseconds",
    "age of the oldest message that a group has not got yet", _LAG)
CONSUMER_READY_MESSAGES: Final = _gauge("rocketmq_consumer_ready_messages",
    "messages that a group has not got yet", _LAG)
TIMER_ENQUEUE_LAG: Final = _gauge("rocketmq_timer_enqueue_lag",
    "timer messages not yet entered into the wheel", STORAGE_LABELS)
TIMER_ENQUEUE_LATENCY: Final = _gauge("rocketmq_timer_enqueue_latency_milliseconds",
    "age of the oldest timer message not yet entered into the wheel", STORAGE_LABELS)
TIMER_DEQUEUE: Final = _counter("rocketmq_timer_dequeue_total",
    "timer messages delivered, or postponed because they are due later than the wheel reaches",
    (*STORAGE_LABELS, "topic"))
POP_BUFFER_SCAN_TIME: Final = _histogram("rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "duration of a scan of the buffered check points", (), (1, 10, 100, 1000, 2000, 3000))
POP_REVIVE_IN: Final = _counter("rocketmq_pop_revive_in_message_total",
    "check points (CK) and acknowledgements (ACK) stored for the revive topic, by result",
    ("consumer_group", "topic", "revive_message_type", "put_status"))
POP_REVIVE_OUT: Final = _counter("rocketmq_pop_revive_out_message_total",
    "check points (CK) and acknowledgements (ACK) read from the revive topic",
    ("consumer_group", "topic", "queue_id", "revive_message_type"))
POP_REVIVE_RETRY: Final = _counter("rocketmq_pop_revive_retry_messages_total",
    "messages copied to a retry topic because they were not acknowledged in time, by result",
    ("consumer_group", "topic", "put_status"))
POP_REVIVE_LAG: Final = _gauge("rocketmq_pop_revive_lag_milliseconds",
    "records of a queue of the revive topic that are not handled yet: a number of records, "
    "despite the name, which is RocketMQ's", ("queue_id",))
POP_REVIVE_LATENCY: Final = _gauge("rocketmq_pop_revive_latency_milliseconds",
    "age of the oldest record of a queue of the revive topic that is not handled yet",
    ("queue_id",))
POP_OFFSET_BUFFER_SIZE: Final = _gauge("rocketmq_pop_offset_buffer_size",
    "pops that the consumer offset has not passed yet")
POP_CHECKPOINT_BUFFER_SIZE: Final = _gauge("rocketmq_pop_checkpoint_buffer_size",
    "check points of pops that are buffered")
HA_SYNC_RESULT: Final = _counter("rocketmq_ha_sync_result_total",
    "sends that waited for flush or replicas, by result", ("result",))
HA_ACK_LATENCY: Final = _histogram("rocketmq_ha_ack_latency_seconds",
    "time from append to acknowledgement by enough replicas, for sends that waited for it; "
    "excludes disk flush, and sends whose replicas were late or missing",
    (), (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5))
HALF_MESSAGES: Final = _gauge("rocketmq_half_messages",
    "half messages of transactions that wait for their end, by topic", ("topic",))
WAITING_HALVES: Final = _gauge("rocketmq_transaction_waiting_halves",
    "the same by topic and producer group", HALF_LABELS)
OLDEST_HALF: Final = _gauge("rocketmq_transaction_oldest_half_seconds",
    "age of the oldest half message that waits for its end", HALF_LABELS)
COMMIT_MESSAGES: Final = _counter("rocketmq_commit_messages_total",
    "half messages that were committed", ("topic",))
ROLLBACK_MESSAGES: Final = _counter("rocketmq_rollback_messages_total",
    "half messages that were rolled back", ("topic",))
TRANSACTION_CHECKS: Final = _counter("rocketmq_transaction_checks_total",
    "times that a producer was asked about a half message", ("topic",))
HALVES_GIVEN_UP: Final = _counter("rocketmq_transaction_given_up_total",
    "half messages that were checked too often, or are too old, and were put aside for good",
    ("topic",))
FINISH_MESSAGE_LATENCY: Final = _histogram("rocketmq_finish_message_latency_milliseconds",
    "time from a half message to its commit: whole seconds, despite the name, which is RocketMQ's",
    ("topic",), (5, 60, 600, 3600, 43200, 86400))
TRANSACTION_FINISH: Final = _histogram("rocketmq_transaction_finish_latency_seconds",
    "time from a half message to its end, by result (commit, rollback)", ("result",),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600,
    86400))
REFUSED_SENDS: Final = _counter("rocketmq_store_refused_sends_total",
    "sends that were refused because the store accepts no writes")
FAILED_ACCEPTS: Final = _counter("rocketmq_remoting_failed_accepts_total",
    "new connections that could not be accepted, for lack of descriptors or memory")
LONGEST_TURN: Final = _gauge("rocketmq_broker_loop_longest_turn_seconds",
    "longest turn of the loop since its process began, by the codes of the requests it served; "
    "none: it served none", ("request_code",))

# -- counted by process `store` ----------------------------------------------------------------

TIMER_ENQUEUE: Final = _counter("rocketmq_timer_enqueue_total",
    "timer messages entered into the wheel", (*STORAGE_LABELS, "topic"))

# -- counted by process `ha` -------------------------------------------------------------------

HA_REPLICA_LAG_BYTES: Final = _gauge("rocketmq_ha_replica_lag_bytes",
    "log bytes not yet acknowledged by a replica", REPLICA_LABELS)
HA_REPLICA_LAG_SECONDS: Final = _gauge("rocketmq_ha_replica_lag_seconds",
    "age of the oldest record not yet acknowledged by a replica; 0 if there is none",
    REPLICA_LABELS)
HA_REPLICA_LAG_EXACT: Final = _gauge("rocketmq_ha_replica_lag_exact",
    "1: the lag is exact; 0: it is an upper bound, since acknowledgements of a disconnected "
    "replica were lost with a killed process, or in seconds a lower bound, since the record was "
    "deleted or not found", REPLICA_LABELS)
HA_REPLICA_CONNECTED: Final = _gauge("rocketmq_ha_replica_connected",
    "1 while a replica is connected; 0 for haReplicaRememberHours after it disconnected",
    REPLICA_LABELS)
HA_REPLICA_LEFT: Final = _gauge("rocketmq_ha_replica_left_timestamp_seconds",
    "Unix time at which a replica disconnected; 0 while it is connected", REPLICA_LABELS)
HA_REPLICA_IN_SYNC: Final = _gauge("rocketmq_ha_replica_in_sync",
    "1 while a replica is in sync", REPLICA_LABELS)
HA_ACK_OFFSET: Final = _gauge("rocketmq_ha_ack_offset_bytes",
    "log offset acknowledged by a replica", REPLICA_LABELS)
HA_MASTER_MAX_OFFSET: Final = _gauge("rocketmq_ha_master_max_offset_bytes",
    "end of the log that replicas follow")
HA_TRANSFERRED: Final = _counter("rocketmq_ha_transferred_bytes_total",
    "log bytes sent to a replica", REPLICA_LABELS)
HA_STATE_SECONDS: Final = _counter("rocketmq_ha_state_seconds_total",
    "time that a replica has spent in each state, measured by the broker", ("replica", "state"))
HA_RECONNECTS: Final = _counter("rocketmq_ha_reconnects_total",
    "connections of a replica after its first", REPLICA_LABELS)
HA_REJECTED_ACKS: Final = _counter("rocketmq_ha_rejected_acks_total",
    "implausible reports of a replica, by reason", ("replica", "reason"))
HA_REJECTED_HANDSHAKES: Final = _counter("rocketmq_ha_rejected_handshakes_total",
    "replication links rejected at the handshake, by reason", ("reason",))
HA_UNREPLICATED_BYTES: Final = _gauge("rocketmq_ha_unreplicated_bytes",
    "log bytes that no replica has: lost if this broker failed now")
HA_OLDEST_UNREPLICATED: Final = _gauge("rocketmq_ha_oldest_unreplicated_seconds",
    "age of the oldest record that no replica has")
HA_UNREPLICATED_EXACT: Final = _gauge("rocketmq_ha_unreplicated_exact",
    "1: unreplicated bytes and seconds are exact; 0: they are upper bounds, since acknowledgements "
    "of a disconnected replica were lost with a killed process")
HA_OBSERVED_MS: Final = _gauge("rocketmq_ha_observed_monotonic_ms",
    "when process ha last observed its replicas; not exported")
HA_CLIENT_CONNECTED: Final = _gauge("rocketmq_ha_client_connected",
    "slave: 1 while the link to the master is open")
HA_CLIENT_RECEIVED: Final = _counter("rocketmq_ha_client_received_bytes_total",
    "slave: log bytes received from the master")

# -- known to the supervisor: control page, files, children ------------------------------------

STORE_OFFSET: Final = _gauge("rocketmq_store_offset_bytes",
    "positions in the commit log", ("kind",))
STORE_FENCED_RANGES: Final = _gauge("rocketmq_store_fenced_ranges",
    "damaged ranges of the commit log that cannot be read")
STORE_FENCED_BYTES: Final = _gauge("rocketmq_store_fenced_bytes",
    "bytes of the commit log inside damaged ranges")
STORE_SCRUBBED: Final = _counter("rocketmq_store_scrubbed_bytes_total",
    "bytes of closed commit log files that were read again in search of damage")
STORE_SCRUB_PASS: Final = _gauge("rocketmq_store_scrub_pass_end_timestamp_seconds",
    "when all closed commit log files had last been read again")
STORE_SCRUB_DAMAGE: Final = _counter("rocketmq_store_scrub_damaged_ranges_total",
    "damaged ranges of the commit log that reading it again has found since the broker started")
COMPACTION_LOGS: Final = _gauge("rocketmq_compaction_logs",
    "queues of compaction topics that have a compaction log")
COMPACTIONS: Final = _counter("rocketmq_compactions_total",
    "compactions that ended since the broker started, by result (ok, failed)", ("result",))
COMPACTION_END: Final = _gauge("rocketmq_compaction_end_timestamp_seconds",
    "when the last compaction ended")
COMPACTION_READ: Final = _counter("rocketmq_compaction_read_bytes_total",
    "bytes of messages that compactions have read since the broker started")
COMPACTION_KEPT: Final = _counter("rocketmq_compaction_kept_bytes_total",
    "bytes of messages that compactions have kept since the broker started")
COMPACTION_BEHIND: Final = _gauge("rocketmq_compaction_behind_messages",
    "messages of compaction topics that are not in their compaction log yet")
COMPACTION_KEYLESS: Final = _counter("rocketmq_compaction_messages_without_key_total",
    "messages that are in no compaction log for lack of a key, since the broker started")
STORE_REPAIRED: Final = _counter("rocketmq_store_repaired_ranges_total",
    "ranges of the commit log that were repaired from a replica since the broker started")
STORE_CHANGED_CHUNKS: Final = _gauge("rocketmq_store_changed_chunks",
    "chunks of the commit log whose bytes are not those that were read first")
STORE_DIFFERING_CHUNKS: Final = _gauge("rocketmq_store_differing_chunks",
    "chunks of the commit log that differ from another broker's of the group")
STORE_WRITABLE: Final = _gauge("rocketmq_store_writable", "1 while the store accepts writes")
STORE_DISK_FULL: Final = _gauge("rocketmq_store_disk_full",
    "1 while writes are refused because the disk is full")
STORE_DISK_USED: Final = _gauge("rocketmq_store_disk_used_ratio",
    "used share (0 to 1) of the partition of the store, and of its commit log, in whole percent",
    ("directory",))
STORE_EMERGENCY_SPACE: Final = _gauge("rocketmq_store_emergency_space_bytes",
    "space that is reserved for a full disk (emergencyReservedBytes); 0: none, or in use")
QUEUES_REBUILDING: Final = _gauge("rocketmq_store_queues_rebuilding",
    "consume queues with damaged units that are being rebuilt from the commit log")
QUEUE_UNITS_REBUILT: Final = _counter("rocketmq_store_queue_units_rebuilt_total",
    "damaged consume queue units that were rebuilt from the commit log since the broker started")
QUEUE_UNITS_LOST: Final = _counter("rocketmq_store_queue_units_lost_total",
    "damaged consume queue units for which the commit log has no record, since the broker started")
LIGHT_QUEUES_UNWRITABLE: Final = _gauge("rocketmq_store_light_queues_unwritable",
    "light queues whose files cannot be written; the newest messages of these wait")
STORAGE_SIZE: Final = _gauge("rocketmq_storage_size_bytes",
    "used space of the partition of the store", STORAGE_LABELS)
STORAGE_FLUSH_BEHIND: Final = _gauge("rocketmq_storage_flush_behind_bytes",
    "log bytes not yet flushed to disk", STORAGE_LABELS)
STORAGE_DISPATCH_BEHIND: Final = _gauge("rocketmq_storage_dispatch_behind_bytes",
    "log bytes not yet dispatched to the consume queues", STORAGE_LABELS)
STORAGE_MESSAGE_RESERVE_TIME: Final = _gauge("rocketmq_storage_message_reserve_time_milliseconds",
    "age of the oldest message", STORAGE_LABELS)
TIMER_DEQUEUE_LAG: Final = _gauge("rocketmq_timer_dequeue_lag",
    "timer messages waiting in the wheel", STORAGE_LABELS)
TIMER_DEQUEUE_LATENCY: Final = _gauge("rocketmq_timer_dequeue_latency_milliseconds",
    "how far the delivery of timer messages is behind the clock; about a second is usual",
    STORAGE_LABELS)
TIMING_MESSAGES: Final = _gauge("rocketmq_timing_messages",
    "waiting timer messages, by topic", (*STORAGE_LABELS, "topic"))
TIMER_MESSAGE_SNAPSHOT: Final = _gauge("rocketmq_timer_message_snapshot",
    "timer messages due within timer_bound_s from now, and not within the bound before it",
    (*STORAGE_LABELS, "timer_bound_s"))
RECORDS_LEFT_OUT: Final = _counter("rocketmq_store_records_left_out_total",
    "records that got no consume queue unit because their queue offset is implausible")
RECORDS_PUT_ASIDE: Final = _counter("rocketmq_store_records_put_aside_total",
    "stored records that could not be read back and were left out, by what read them", ("reader",))
MESSAGES_PUT_OFF: Final = _counter("rocketmq_messages_put_off_total",
    "times that a due message was stored again to wait for room in the queue table, by what "
    "postponed it", ("reader",))
HA_REPLICAS: Final = _gauge("rocketmq_ha_replicas",
    "distinct slaves that are connected and at most haSlaveFallbehindMax behind")
HA_LINKS_REFUSED: Final = _counter("rocketmq_ha_links_refused_total",
    "replication links rejected or closed, by either side, by reason", ("reason",))
HA_LEADS: Final = _gauge("rocketmq_ha_leads",
    "1 while a member of a group with a controller is its group's master")
HA_TAKES_MESSAGES: Final = _gauge("rocketmq_ha_takes_messages",
    "1 while it leads, its SyncStateSet has minInSyncReplicas members, and its lease is not out")
HA_BROKER_ID: Final = _gauge("rocketmq_ha_broker_id",
    "member: its broker id now: 0 while it leads, else the id that the controller gave")
HA_EPOCH: Final = _gauge("rocketmq_ha_epoch",
    "member: epoch of the role that it has")
HA_SET_SIZE: Final = _gauge("rocketmq_ha_sync_state_set_size",
    "leader: members of the SyncStateSet, itself included")
HA_SET_MINIMUM: Final = _gauge("rocketmq_ha_sync_state_set_minimum",
    "leader: members that the SyncStateSet needs for sends to be taken (minInSyncReplicas)")
HA_CONFIRM_OFFSET: Final = _gauge("rocketmq_ha_confirm_offset_bytes",
    "member: log offset up to which consumers read")
HA_LEASE: Final = _gauge("rocketmq_ha_lease_seconds",
    "leader with selfFenceEnable: time left in which it takes messages without an answer of its "
    "controller")
HA_MASTER_ABSENT: Final = _gauge("rocketmq_ha_master_absent_seconds",
    "member: time since it last led, or was linked with its master; 0 while it has one")
HA_WITHOUT_MASTER_TOTAL: Final = _counter("rocketmq_ha_without_master_seconds_total",
    "member: time in which it neither led nor was linked with a master, since it was started")
HA_TWO_MASTERS: Final = _counter("rocketmq_ha_two_masters_total",
    "leader: answers of a controller that named another master of its own epoch")
HA_ROLES_TAKEN: Final = _counter("rocketmq_ha_roles_taken_total",
    "member: roles that it has taken (lead, follow, fenced), over restarts")
HA_LAST_ELECTION: Final = _gauge("rocketmq_ha_last_election_timestamp_seconds",
    "member: Unix time at which it took its last role, by what made it do so", ("cause",))
SLAVE_SYNC_AGE: Final = _gauge("rocketmq_slave_sync_age_seconds",
    "time since the copy of a kind of metadata that is now in use was requested", ("kind",))
SLAVE_SYNC_FAILURES: Final = _counter("rocketmq_slave_sync_failures_total",
    "failed copies of metadata from the master", ("kind",))
PROCESS_UP: Final = _gauge("rocketmq_process_up", "1 while a process runs", ("process",))
PROCESS_RESTARTS: Final = _counter("rocketmq_process_restarts_total",
    "restarts by the supervisor", ("process",))
PROCESS_START: Final = _gauge("process_start_time_seconds",
    "Unix time at which the broker (its supervisor) was started")
READY: Final = _gauge("rocketmq_ready", "1 while the broker is ready (see /readyz)")
DUMP_LINES: Final = _counter("rocketmq_metrics_dump_lines_total",
    "lines written to the metrics dump")
DUMP_FAILURES: Final = _counter("rocketmq_metrics_dump_failures_total",
    "lines that failed to be written to the metrics dump")
DUMP_INTERVAL: Final = _gauge("rocketmq_metrics_dump_interval_seconds",
    "interval between lines of the metrics dump")
SERIES_CAPPED: Final = _counter("rocketmq_metrics_series_capped_total",
    "lookups of series beyond the slot limit, counted under __overflow__ instead", ("metric",))
# fmt: on


def flag(value: bool) -> str:
    """A boolean label value, as in 5.x."""
    return "true" if value else "false"


METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics."""
NOT_SHOWN: Final = frozenset({HA_OBSERVED_MS})
"""Of METRICS those that are only for our own processes."""
