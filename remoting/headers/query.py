"""Headers of looking things up in the store: 12, 29, 30, 31, 32, 33.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Ext field of 12: "true" asks for a unique key, and sets maxNum to the broker's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageRequestHeader(CommandCustomHeader):
    """QUERY_MESSAGE (12); UNIQUE_KEY_QUERY may go beside it. index_type (5.5): K, U or T, whether
    `key` is a key, a unique key or tags. (lastKey, beside it, is of RocksDB's index.)"""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageResponseHeader(CommandCustomHeader):
    """Answer to 12."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageRequestHeader(CommandCustomHeader):
    """VIEW_MESSAGE_BY_ID (33). `offset` is the physical offset in the commit log."""

    offset: Int64
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetRequestHeader(RpcRequestHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). boundary_type (5.x): lower or upper. lite_topic (5.5): of
    the topic; its light queue is searched."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetResponseHeader(CommandCustomHeader):
    """Answer to 29."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(RpcRequestHeader):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetResponseHeader(CommandCustomHeader):
    """Answer to 30; 0 for an unknown queue."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetRequestHeader(RpcRequestHeader):
    """GET_MIN_OFFSET (31)."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetResponseHeader(CommandCustomHeader):
    """Answer to 31; 0 for an unknown queue."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(RpcRequestHeader):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(CommandCustomHeader):
    """Answer to 32 in milliseconds; -1 when there is no message."""

    timestamp: Int64
