"""PullSettings: what PullMessageProcessor follows of the broker's settings. Data only."""

from __future__ import annotations

import msgspec


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this processor."""

    readable: bool
    long_polling_enable: bool
    short_polling_time_ms: int
    slave_read_enable: bool
    is_slave: bool
    commits_offsets: bool = True
    """Of pulls; a slave only where slaves act as master."""
    offset_check_in_slave: bool
    bytes_in_memory: int
    count_in_memory: int
    bytes_in_disk: int
    count_in_disk: int
    memory_limit: int
    """Messages further than this (bytes) behind the log's end count as "on disk"."""
    enable_property_filter: bool
    filter_support_retry: bool
