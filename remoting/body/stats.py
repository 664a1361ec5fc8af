"""Statistics: bodies of 202, 208, 315, 317. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue
from remoting.command_custom_header import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset(JsonBean):
    """State of one queue; timestamp in milliseconds of its newest message, 0 if none."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatsTable(JsonBean):
    """Answer to GET_TOPIC_STATS_INFO (202). topic_put_tps is 5.x only."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetWrapper(JsonBean):
    """Progress of a group in one queue. pull_offset is 5.x only."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats(JsonBean):
    """Answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsList(JsonBean):
    """Answer to GET_BROKER_CONSUME_STATS (317). total_inflight_diff is 5.x only."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsItem(JsonBean):
    """One span of time: sum, per second, average per call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsData(JsonBean):
    """Answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
