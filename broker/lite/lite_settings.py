"""LiteSettings: what the settings say about lite topics. Plain data, any thread."""

from __future__ import annotations

from typing import NamedTuple


class LiteSettings(NamedTuple):
    """By RocketMQ's names. Times in ms."""

    most_subscriptions: int = 100_000
    """maxLiteSubscriptionCount."""
    most_events: int = 100
    """maxClientEventCount."""
    event_check_interval_ms: int = 10_000
    """liteEventCheckInterval."""
    ttl_check_interval_ms: int = 120_000
    """liteTtlCheckInterval."""
    min_ttl_ms: int = 900_000
    """minLiteTTl."""
    subscription_check_interval_ms: int = 120_000
    """liteSubscriptionCheckInterval."""
    subscription_timeout_ms: int = 180_000
    """liteSubscriptionCheckTimeoutMills."""
    most_light_queues: int = 20_000
    """maxLmqConsumeQueueNum."""
    collects_lag_times: bool = False
    """liteLagLatencyCollectEnable."""
    lag_times: int = 50
    """liteLagLatencyTopK."""
