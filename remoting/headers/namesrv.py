"""Headers of what anyone asks of a name server: 100-102, 105, 205, 216, 219, 224, 327.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRouteInfoRequestHeader(CommandCustomHeader):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKVConfigRequestHeader(CommandCustomHeader):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigRequestHeader(CommandCustomHeader):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigResponseHeader(CommandCustomHeader):
    """Answer to 101."""

    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKVConfigRequestHeader(CommandCustomHeader):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader(CommandCustomHeader):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 205."""

    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 327."""

    add_topic_count: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(CommandCustomHeader):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader(CommandCustomHeader):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTopicRequestHeader(CommandCustomHeader):
    """REGISTER_TOPIC_IN_NAMESRV (217, 5.x)."""

    topic: str
