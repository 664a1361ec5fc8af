"""Headers of topic administration at a broker: 17, 21, 202, 215, 300, 303, 351.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequestHeader(CommandCustomHeader):
    """UPDATE_AND_CREATE_TOPIC (17). attributes and force are 5.x; 4.9.8 ignores `order`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(CommandCustomHeader):
    """GET_ALL_TOPIC_CONFIG (21). Peers of 5.5 ask for a page of the table (broker/processor/
    table_pages.py); data_version: JSON text, empty at the first page."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(CommandCustomHeader):
    """Answer to 21, to a peer that asked for a page: how many topics there are."""

    total_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequestHeader(CommandCustomHeader):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfigRequestHeader(CommandCustomHeader):
    """GET_TOPIC_CONFIG (351, 5.x)."""

    topic: str
    lo: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(CommandCustomHeader):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(CommandCustomHeader):
    """QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(CommandCustomHeader):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str
