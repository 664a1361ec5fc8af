"""Heartbeats: bodies of 34 and CHECK_CLIENT_CONFIG (46), and their parts.

Pure data, any thread. The enums have Java's order, since C++ clients send ordinals.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


class ConsumeType(StrEnum):
    """How a group consumes: by pull clients (ACTIVELY) or push clients (PASSIVELY)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(StrEnum):
    """Whether each message goes to one member of the group or to all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a new group starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData(JsonBean):
    """A group's subscription to a topic. code_set holds the Java hash codes of the tags.

    sub_version is the time of the subscription in milliseconds. If a client omits it, it is the
    time of parsing, as in Java, so that the latest heartbeat wins.
    """

    topic: str
    sub_string: str | None = None
    tags_set: list[str] = field(default_factory=list)
    code_set: list[Int32] = field(default_factory=list)
    sub_version: Int64 = field(default_factory=_now_ms)
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerData(JsonBean):
    """One producer group of a client."""

    group_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData(JsonBean):
    """One consumer group of a client. None: missing, or a value unknown to Java as well; such a
    group does not count as broadcasting."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData(JsonBean):
    """Body of HEART_BEAT (34). The last two members are 5.x only."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int32 | None = None
    without_sub: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientRequestBody(JsonBean):
    """Body of CHECK_CLIENT_CONFIG (46). namespace is 5.x only."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionResponseBody(JsonBean):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345, 5.x)."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None
