"""File config/consumerFilter.json: property filters of groups. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterData(JsonBean):
    """The bits of one filter."""

    bit_pos: list[Int32] = field(default_factory=list)
    bit_num: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilterData(JsonBean):
    """The expression of one group for one topic; times in milliseconds. dead is written only:
    deadTime >= bornTime.
    """

    consumer_group: str
    topic: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: Int64 = 0
    dead: bool = False
    dead_time: Int64 = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterDataMapByTopic(JsonBean):
    """The filters of one topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilterWrapper(JsonBean):
    """The whole file."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)
