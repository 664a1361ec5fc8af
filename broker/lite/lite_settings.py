"""LiteSettings: what the settings say about lite topics. Plain data, any thread."""

from __future__ import annotations

from typing import NamedTuple


class LiteSettings(NamedTuple):
    """By RocketMQ's names. Times in ms."""

    most_subscriptions: int
    """maxLiteSubscriptionCount."""
    most_events: int
    """maxClientEventCount."""
    event_check_interval_ms: int
    """liteEventCheckInterval."""
    ttl_check_interval_ms: int
    """liteTtlCheckInterval."""
    min_ttl_ms: int
    """minLiteTTl."""
    subscription_check_interval_ms: int
    """liteSubscriptionCheckInterval."""
    subscription_timeout_ms: int
    """liteSubscriptionCheckTimeoutMills."""
    most_light_queues: int
    """maxLmqConsumeQueueNum."""
    collects_lag_times: bool
    """liteLagLatencyCollectEnable."""
    lag_times: int
    """liteLagLatencyTopK."""
    shows_lag_counts: bool
    """liteLagCountMetricsEnable."""
    shows_lag_times: bool
    """liteLagLatencyMetricsEnable."""
