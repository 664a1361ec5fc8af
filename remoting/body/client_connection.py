"""Connected clients: bodies of 38, 203, 204, 328. Pure data, any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from remoting.body.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(JsonBean):
    """One client of a group; client_addr as "ip:port", version an MQVersion ordinal."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection(JsonBean):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConnection(JsonBean):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInfo(JsonBean):
    """One producer of GET_ALL_PRODUCER_INFO; remote_ip keeps the leading slash of Java."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"remote_ip": "remoteIP"}

    client_id: str
    remote_ip: str
    language: str = "JAVA"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTableInfo(JsonBean):
    """Answer to GET_ALL_PRODUCER_INFO (328): producers by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupResponseBody(JsonBean):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList(JsonBean):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = field(default_factory=list)
