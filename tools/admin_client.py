"""AdminClient: the requests of the operator's commands to name servers and brokers.

Runs in the command's main thread over one RemotingClient. Speaks the protocol and knows where to
send what: route lookups, the master of a broker name, sums over brokers. It must not know how a
result is shown. Every refusal of a peer is an AdminError that names the peer.
(Java: DefaultMQAdminExtImpl.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Final

from remoting.body.client_connection import ConsumerConnection, GroupList, ProducerConnection
from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.body.kv_table import KVTable
from remoting.body.route import BrokerData, ClusterInfo, TopicRouteData
from remoting.body.stats import BrokerStatsData, ConsumeStats, TopicStatsTable
from remoting.body.topic_config import TopicList
from remoting.command_custom_header import CommandCustomHeader, encode_header
from remoting.errors import RemotingError, RequestError
from remoting.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from remoting.headers.namesrv import GetRouteInfoRequestHeader
from remoting.headers.topic import (
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from remoting.language_code import LanguageCode
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tools.errors import AdminError, BrokerAnswerError
from tools.nearest_names import nearest_names

if TYPE_CHECKING:
    from remoting.client_tls import ClientTls


DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
TIMEOUT_MS: Final = 5_000
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

MASTER_ID: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2

MAX_ADDRESS: Final = 300
_ADDRESS: Final = re.compile(r"[^\s,;]+:[0-9]{1,5}")


def is_address(text: str) -> bool:
    """Whether it is host:port, as far as its letters tell."""
    return len(text) <= MAX_ADDRESS and _ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NameServers:
    """Addresses of name servers, whether they are the default, how long each is waited for."""

    addresses: tuple[str, ...]
    is_default: bool = False
    timeout_ms: int = TIMEOUT_MS

    @classmethod
    def parse(cls, text: str | None) -> NameServers:
        """Read "host:port;host:port"; an empty text means the default. Raises AdminError."""
        addresses = tuple(part.strip() for part in (text or "").split(";") if part.strip())
        for address in addresses:
            if not is_address(address):
                raise AdminError(f"name server {address!r} is not host:port")
        return cls(addresses) if addresses else cls((DEFAULT_NAME_SERVER,), is_default=True)


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """One running broker of a cluster."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class AdminClient:
    """Calls to name servers and brokers. Owned by: the command's thread."""

    def __init__(
        self,
        name_servers: NameServers,
        now_ms: Callable[[], int],
        signer: RequestSigner | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.name_servers = name_servers
        self.now_ms = now_ms
        self._remoting = RemotingClient(
            RemotingClientConfig(), name="mqadmin", signer=signer, tls=tls
        )

    def __enter__(self) -> AdminClient:
        self._remoting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remoting.shutdown()

    # -- calls ---------------------------------------------------------------------------------

    def call(
        self,
        address: str,
        code: RequestCode,
        header: CommandCustomHeader | None = None,
        body: bytes = b"",
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
        extra: dict[str, str] | None = None,
        language: LanguageCode = LanguageCode.PYTHON,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        """Ask one peer; BrokerAnswerError when its answer's code is not in `accept`."""
        fields = ({} if header is None else encode_header(header)) | (extra or {})
        request = RemotingCommand.request(code, fields, body)
        request.language = language
        response = self._remoting.invoke_sync(address, request, timeout_ms)
        if response.code not in accept:
            raise BrokerAnswerError(address, response.code, response.remark)
        return response

    def ask_name_server(
        self,
        code: RequestCode,
        header: CommandCustomHeader | None = None,
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the first name server that can be reached."""
        failures = []
        for address in self.name_servers.addresses:
            try:
                timeout_ms = self.name_servers.timeout_ms
                return self.call(address, code, header, accept=accept, timeout_ms=timeout_ms)
            except BrokerAnswerError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    remark = f"{error.remark}; is it a name server? Brokers answer this"
                    raise BrokerAnswerError(address, error.code, remark) from None
                raise
            except RemotingError as error:
                failures.append(str(error))
        reason = "; ".join(failures)
        if self.name_servers.is_default:
            reason += " (the default, as neither -n nor NAMESRV_ADDR is given)"
        raise AdminError(f"no name server reachable: {reason}")

    def ask_every_name_server(
        self, code: RequestCode, header: CommandCustomHeader | None, body: bytes = b""
    ) -> list[tuple[str, RemotingCommand]]:
        """Ask each name server; AdminError naming those that failed, after all were asked."""
        answers, failures = [], []
        for address in self.name_servers.addresses:
            try:
                answers.append((address, self.call(address, code, header, body)))
            except (RemotingError, BrokerAnswerError) as error:
                failures.append(str(error))
        if failures:
            done = ", ".join(address for address, _ in answers) or "none"
            reason = "; ".join(failures)
            if self.name_servers.is_default:
                reason += " (the default, as neither -n nor NAMESRV_ADDR is given)"
            raise AdminError(f"succeeded at name servers: {done}; failed: {reason}")
        return answers

    # -- the cluster ---------------------------------------------------------------------------

    def cluster_info(self) -> ClusterInfo:
        """Every cluster with its brokers."""
        response = self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.from_json_bytes(response.body)

    def brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """The brokers of one cluster, or of all; sorted. AdminError for an unknown cluster."""
        info = self.cluster_info()
        clusters = info.cluster_addr_table
        if cluster is not None and cluster not in clusters:
            raise AdminError(unknown("cluster", cluster, clusters))
        return sorted(
            BrokerAddress(name, broker_name, broker_id, address)
            for name in (clusters if cluster is None else [cluster])
            for broker_name in clusters[name]
            if (data := info.broker_addr_table.get(broker_name)) is not None
            for broker_id, address in data.broker_addrs.items()
        )

    def masters(self, cluster: str) -> list[BrokerAddress]:
        """The masters of a cluster. AdminError when it has none or is unknown."""
        masters = [broker for broker in self.brokers(cluster) if broker.broker_id == MASTER_ID]
        if not masters:
            raise AdminError(f"cluster {cluster} has no running master")
        return masters

    def targets(self, address: str | None, cluster: str | None) -> list[str]:
        """The one broker address given, or all brokers of the cluster, or of every cluster."""
        if address is not None:
            return [address]
        return [broker.address for broker in self.brokers(cluster)]

    # -- topics --------------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """All topics the name server knows, sorted."""
        response = self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.from_json_bytes(response.body).topic_list)

    def find_route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None when the name server knows none."""
        response = self.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=topic),
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if response.code != ResponseCode.SUCCESS:
            return None
        return TopicRouteData.from_json_bytes(response.body)

    def route(self, topic: str) -> TopicRouteData:
        """The route of a topic; AdminError naming the nearest topic when there is none."""
        route = self.find_route(topic)
        if route is None:
            raise AdminError(unknown("topic", topic, self.topic_names()))
        return route

    def broker_of(self, route: TopicRouteData, broker_name: str) -> str:
        """The address of a broker name in a route: its master, else its lowest id."""
        for data in route.broker_datas:
            if data.broker_name == broker_name and (address := broker_address(data)) is not None:
                return address
        names = [data.broker_name for data in route.broker_datas]
        raise AdminError(unknown("broker name", broker_name, names))

    def topic_stats(self, topic: str, route_of: str | None = None) -> TopicStatsTable:
        """The offsets of every queue, from each broker that has the topic, or `route_of`."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        merged = TopicStatsTable()
        for address in addresses(self.route(route_of or topic)):
            response = self.call(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            merged.offset_table.update(TopicStatsTable.from_json_bytes(response.body).offset_table)
        return merged

    def groups_of_topic(self, topic: str, route: TopicRouteData) -> list[str]:
        """The groups that consume a topic, asked of the first broker that has it; sorted."""
        for address in addresses(route):
            header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
            response = self.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            return sorted(GroupList.from_json_bytes(response.body).group_list)
        return []

    # -- groups --------------------------------------------------------------------------------

    def group_brokers(self, group: str) -> list[str]:
        """Brokers that may know a group: those with its retry topic, else every master."""
        route = self.find_route(RETRY_PREFIX + group)
        if route is not None:
            return addresses(route)
        return [broker.address for broker in self.brokers() if broker.broker_id == MASTER_ID]

    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress of a group over all its brokers; its table is empty for an unknown group."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        code, timeout_ms = RequestCode.GET_CONSUME_STATS, 3 * TIMEOUT_MS
        responses = (
            self.call(address, code, header, timeout_ms=timeout_ms)
            for address in self.group_brokers(group)
        )
        return merged_stats(ConsumeStats.from_json_bytes(response.body) for response in responses)

    def find_consumer_connection(
        self, group: str, address: str | None = None
    ) -> ConsumerConnection | None:
        """The live members of a group; None when no member is online."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        for target in [address] if address is not None else self.group_brokers(group):
            response = self.call(
                target,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                header,
                accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
            )
            if response.code == ResponseCode.SUCCESS:
                connection = ConsumerConnection.from_json_bytes(response.body)
                if connection.connection_set:
                    return connection
        return None

    def consumer_running_info(
        self, group: str, client_id: str, *, with_jstack: bool = False
    ) -> ConsumerRunningInfo:
        """The running info of one live member, relayed by the first broker that can reach it."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_jstack
        )
        failures = []
        for target in self.group_brokers(group):
            try:
                response = self.call(
                    target,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    header,
                    timeout_ms=3 * TIMEOUT_MS,
                )
                return ConsumerRunningInfo.from_json_bytes(response.body)
            except (BrokerAnswerError, RemotingError, RequestError) as error:
                failures.append(str(error))
        raise AdminError(f"client {client_id}: {'; '.join(failures) or 'no broker is running'}")

    def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """The live producers of a group at the first broker of the topic that has any."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        refusal: AdminError = AdminError(f"no producer of group {group} is online")
        for address in addresses(self.route(topic)):
            try:
                response = self.call(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except BrokerAnswerError as error:
                refusal = error
                continue
            connection = ProducerConnection.from_json_bytes(response.body)
            if connection.connection_set:
                return connection
        raise refusal

    # -- numbers -------------------------------------------------------------------------------

    def runtime_info(self, address: str) -> dict[str, str]:
        """The runtime table of a broker."""
        response = self.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.from_json_bytes(response.body).table

    def find_stats(self, address: str, name: str, key: str) -> BrokerStatsData | None:
        """One statistics item; None while the broker has none under this key."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        response = self.call(
            address,
            RequestCode.VIEW_BROKER_STATS_DATA,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
        )
        if response.code != ResponseCode.SUCCESS:
            return None
        return BrokerStatsData.from_json_bytes(response.body)


def merged_stats(of_brokers: Iterable[ConsumeStats]) -> ConsumeStats:
    """A group's progress at all its brokers."""
    merged = ConsumeStats()
    for stats in of_brokers:
        merged.offset_table.update(stats.offset_table)
        merged = replace(merged, consume_tps=merged.consume_tps + stats.consume_tps)
    return merged


def member_addresses(data: BrokerData) -> list[str]:
    """The members of a broker name, its master first, then by id."""
    return [data.broker_addrs[broker_id] for broker_id in sorted(data.broker_addrs)]


def broker_address(data: BrokerData) -> str | None:
    """The master of a broker name, else the member with the lowest id; None without members."""
    return data.broker_addrs[min(data.broker_addrs)] if data.broker_addrs else None


def addresses(route: TopicRouteData) -> list[str]:
    """One address for each broker name of a route."""
    found = (broker_address(data) for data in route.broker_datas)
    return [address for address in found if address is not None]


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One line that a name does not exist, with the nearest existing one."""
    nearest = nearest_names(name, known, 1)
    return f"{kind} {name} does not exist" + (f"; the nearest is {nearest[0]}" if nearest else "")
