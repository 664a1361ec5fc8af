"""What the processors of messages need of the settings: values for their loops, worked out once.

Pure functions, any thread. Used at the start, and again when a request has changed settings.
"""

from __future__ import annotations

from broker.lite.lite_settings import LiteSettings
from broker.pull.pull_settings import PullSettings
from broker.send.send_settings import SendSettings
from broker.settings.startup_options import StartupOptions


def send_settings(options: StartupOptions) -> SendSettings:
    """Of the send processor."""
    broker, store = options.broker, options.store
    return SendSettings(
        broker_name=broker.broker_name,
        cluster_name=broker.broker_cluster_name,
        region_id=broker.region_id,
        trace_on=broker.trace_on,
        max_message_size=store.max_message_size,
        start_accept_send_request_timestamp_ms=broker.start_accept_send_request_time_stamp,
        is_slave=store.is_slave and not options.controller_mode.enable_controller_mode,
        max_delay_level=len(store.delay_level_ms),
        lmq_quota=store.enable_lmq_quota,
        recall_by_property=broker.recall_by_property_enable,
        reject_transactions=(
            f"the broker[{broker.broker_ip1}] sending transaction message is forbidden"
            if broker.reject_transaction_message
            else ""
        ),
    )


def pull_settings(options: StartupOptions, memory_limit: int) -> PullSettings:
    """Of the pull processor."""
    broker, store = options.broker, options.store
    return PullSettings(
        readable=bool(broker.broker_permission & 4),
        long_polling_enable=broker.long_polling_enable,
        short_polling_time_ms=broker.short_polling_time_mills,
        slave_read_enable=broker.slave_read_enable,
        is_slave=store.is_slave,
        commits_offsets=not store.is_slave or broker.enable_slave_acting_master,
        offset_check_in_slave=store.offset_check_in_slave,
        bytes_in_memory=store.max_transfer_bytes_on_message_in_memory,
        count_in_memory=store.max_transfer_count_on_message_in_memory,
        bytes_in_disk=store.max_transfer_bytes_on_message_in_disk,
        count_in_disk=store.max_transfer_count_on_message_in_disk,
        memory_limit=memory_limit,
        enable_property_filter=broker.enable_property_filter,
        filter_support_retry=broker.filter_support_retry,
    )


def lite_settings(options: StartupOptions) -> LiteSettings:
    """Of lite topics."""
    broker, store = options.broker, options.store
    return LiteSettings(
        most_subscriptions=broker.max_lite_subscription_count,
        most_events=broker.max_client_event_count,
        event_check_interval_ms=broker.lite_event_check_interval,
        ttl_check_interval_ms=broker.lite_ttl_check_interval,
        min_ttl_ms=broker.min_lite_ttl,
        subscription_check_interval_ms=broker.lite_subscription_check_interval,
        subscription_timeout_ms=broker.lite_subscription_check_timeout_mills,
        most_light_queues=store.max_lmq_consume_queue_num,
        collects_lag_times=broker.lite_lag_latency_collect_enable,
        lag_times=broker.lite_lag_latency_top_k,
        shows_lag_counts=broker.lite_lag_count_metrics_enable,
        shows_lag_times=broker.lite_lag_latency_metrics_enable,
    )
