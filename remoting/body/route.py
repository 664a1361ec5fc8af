"""Routes and the cluster: bodies of 105, 106, 217. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.command_custom_header import Int32, Int64
from remoting.remoting_serializable import dumps_standard


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData(JsonBean):
    """The brokers of one broker name: id to "ip:port". The last two fields are 5.x only."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[Int64, str] = field(default_factory=dict)
    enable_acting_master: bool | None = None
    zone_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData(JsonBean):
    """The queues that one broker name has of a topic."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteData(JsonBean):
    """Answer to GET_ROUTEINFO_BY_TOPIC (105). The last one: of a static topic, by broker name."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] | None = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    def to_standard_json_bytes(self) -> bytes:
        """The format for requesters of version 401 and up, or with acceptStandardJsonOnly."""
        return dumps_standard(self.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo(JsonBean):
    """Answer to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
