"""Headers of consumer and client management: 14, 15, 35, 38, 40.

Pure data, any thread. The bodies of 34, 41, 42 and 46 need no header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(RpcRequestHeader):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader(CommandCustomHeader):
    """Answer to 14 with code 0."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(RpcRequestHeader):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientRequestHeader(CommandCustomHeader):
    """UNREGISTER_CLIENT (35)."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(CommandCustomHeader):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(CommandCustomHeader):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to client, oneway."""

    consumer_group: str
