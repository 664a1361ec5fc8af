"""BrokerOuterAPI: requests to the name servers (103 to 106, 322, 901, 904) and to the other brokers
of the group (21, 43, 45, 201).

Called by the scheduled executor and admin threads. A call to the name servers goes to all of them
in parallel and returns when all have responded or the timeout expires; a failing one is logged and
does not affect the others. It makes no decisions: when to register, and how to react to a response,
is in broker_registration, slave_synchronize, group_members, returning_master, acting_master. Long
because each of these requests has a method. Follows BrokerOuterAPI of RocketMQ.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from remoting.body.broker_member_group import GetBrokerMemberGroupResponseBody
from remoting.body.data_version import DataVersion
from remoting.body.kv_table import KVTable
from remoting.body.register_broker import RegisterBrokerBody, body_crc32
from remoting.body.route import ClusterInfo, TopicRouteData
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RemotingError, RequestError
from remoting.headers.broker import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from remoting.headers.namesrv import GetRouteInfoRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseCallback

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS: Final = 3_000
LOG_END_FIELD: Final = "maxPhyOffset"
"""Ours, in an answer to 60: the end of the master's log."""
CLUSTER_INFO_TIMEOUT_MS: Final = 2_000
"""Short, since unknown peers of the HA port wait for this response."""
_GRACE_MS: Final = 500
"""Extra time for a call to report its timeout."""
_EVERY_SECOND: Final = frozenset(
    {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.QUERY_DATA_VERSION,
    }
)
"""With enableSlaveActingMaster: only the first failure is logged as a warning."""


NOTHING_THERE: Final = frozenset(
    {
        "No topic in this broker",
        "No consumer offset in this broker",
        "No delay offset in this broker",
        "Delay offset not supported in this messagetore",
        "No subscription group in this broker",
    }
)
"""Remarks of a Java master whose table is empty (SYSTEM_ERROR): nothing to copy."""


class BrokerAnswerError(Exception):
    """A broker sent an unexpected response; the message names the broker and the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """Identity of this broker in registrations. Addresses are "ip:port"."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    not_active_timeout_ms: int | None = None
    """With enableSlaveActingMaster: silence after which name servers drop this broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResult:
    """The response of one name server to a registration."""

    name_server: str
    master_addr: str | None
    """Set only for a slave whose master is known to the name server."""
    ha_server_addr: str | None
    order_topics: Mapping[str, str] | None
    """Topic to "broker:queues;..."; None if the name server has no such table."""


class TimerCheckPointAnswer(NamedTuple):
    """A master's timer check point (56 bytes), and the end of its log then; 0: it did not say."""

    body: bytes
    log_end: int


class BrokerOuterAPI:
    """Requests to name servers and brokers. Any thread; the address list is replaced as a whole."""

    def __init__(self, client: RemotingClient, name_servers: Sequence[str] = ()) -> None:
        self.client: Final = client
        self._name_servers = tuple(name_servers)
        self._failing: set[tuple[int, str]] = set()
        self._refused: set[tuple[int, str]] = set()
        """Codes and name servers whose last answer was an error."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers that this broker registers with."""
        return self._name_servers

    def watch_connections(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the address of every connection that closes, on the client's loop
        thread. Call before the client starts."""
        self.client.connection_listener = listener

    def registration_refused_by(self) -> list[str]:
        """The name servers that answered the last registration with an error. Any thread."""
        code = RequestCode.REGISTER_BROKER
        return [name for name in self._name_servers if (code, name) in self._refused]

    def update_name_server_addresses(self, name_servers: Sequence[str]) -> None:
        """Replace the list of name servers."""
        if tuple(name_servers) != self._name_servers:
            log.info("name servers: %s, were %s", list(name_servers), list(self._name_servers))
            self._name_servers = tuple(name_servers)

    def register_broker_all(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        *,
        timeout_ms: int,
        compressed: bool,
        wait_for_failing: bool = True,
    ) -> list[RegisterBrokerResult]:
        """103 to every name server; returns the successful responses, in order of arrival.

        wait_for_failing=False: also sent to name servers whose last call failed, but without
        waiting for them. A body with static topics is never compressed.
        """
        compressed = compressed and not topics.topic_queue_mapping_info_map
        body = RegisterBrokerBody(topic_config_serialize_wrapper=topics).encode(compressed)
        ext_fields = encode_header(
            RegisterBrokerRequestHeader(
                broker_name=identity.broker_name,
                broker_addr=identity.broker_addr,
                cluster_name=identity.cluster_name,
                ha_server_addr=identity.ha_server_addr,
                broker_id=identity.broker_id,
                compressed=compressed,
                body_crc32=body_crc32(body),
                heartbeat_timeout_millis=identity.not_active_timeout_ms,
                enable_acting_master=None if identity.not_active_timeout_ms is None else True,
            )
        )
        code = RequestCode.REGISTER_BROKER
        asked = self._name_servers
        if not wait_for_failing:
            asked = tuple(name for name in asked if (code, name) not in self._failing)
            for name_server in set(self._name_servers).difference(asked):
                command = RemotingCommand.request(code, ext_fields, body)
                self.client.invoke_async(name_server, command, timeout_ms, _forget)
        results: list[RegisterBrokerResult] = []
        for name_server, response in self._ask_all(code, ext_fields, body, timeout_ms, asked):
            try:
                results.append(_register_result(name_server, response))
            except RequestError as error:
                self._note(code, name_server, error)
        return results

    def need_register(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> bool:
        """322 to every name server: whether any of them has a different data version or does not
        respond."""
        answers = self._compare_data_versions(identity, data_version, timeout_ms)
        return answers.count(False) < len(self._name_servers)

    def is_different(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> bool:
        """322 to every name server: whether any that responded has a different data version."""
        return any(self._compare_data_versions(identity, data_version, timeout_ms))

    def _compare_data_versions(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> list[bool]:
        """Of each name server that responded: whether its data version is another one."""
        ext_fields = encode_header(
            QueryDataVersionRequestHeader(
                broker_name=identity.broker_name,
                broker_addr=identity.broker_addr,
                cluster_name=identity.cluster_name,
                broker_id=identity.broker_id,
            )
        )
        code = RequestCode.QUERY_DATA_VERSION
        answers: list[bool] = []
        for name_server, response in self._ask_all(
            code, ext_fields, data_version.to_json_bytes(), timeout_ms
        ):
            try:
                answers.append(_is_changed(response, data_version))
            except RequestError as error:
                self._note(code, name_server, error)
        return answers

    def unregister_broker_all(
        self, identity: BrokerIdentity, timeout_ms: int = UNREGISTER_TIMEOUT_MS
    ) -> int:
        """104 to every name server; returns how many accepted it."""
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        return len(
            self._ask_all(RequestCode.UNREGISTER_BROKER, encode_header(header), b"", timeout_ms)
        )

    def get_broker_cluster_info(
        self, timeout_ms: int = CLUSTER_INFO_TIMEOUT_MS
    ) -> list[ClusterInfo]:
        """106 to every name server; returns the responses, none if no name server responded."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        infos: list[ClusterInfo] = []
        for name_server, response in self._ask_all(code, {}, b"", timeout_ms):
            try:
                infos.append(ClusterInfo.from_json_bytes(response.body))
            except RequestError as error:
                self._note(code, name_server, error)
        return infos

    def send_heartbeat(self, identity: BrokerIdentity, timeout_ms: int) -> None:
        """904 to every name server, oneway."""
        header = BrokerHeartbeatRequestHeader(
            cluster_name=identity.cluster_name,
            broker_addr=identity.broker_addr,
            broker_name=identity.broker_name,
            broker_id=identity.broker_id,
        )
        code = RequestCode.BROKER_HEARTBEAT
        for name_server in self._name_servers:
            command = RemotingCommand.request(code, encode_header(header))
            try:
                self.client.invoke_oneway(name_server, command, timeout_ms)
            except RemotingError as error:
                self._note(code, name_server, error)

    def get_broker_member_groups(
        self, identity: BrokerIdentity, timeout_ms: int
    ) -> list[Mapping[int, str]]:
        """901 to every name server: broker id to address in this broker's group, as each one that
        responded says."""
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=identity.cluster_name, broker_name=identity.broker_name
        )
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        groups: list[Mapping[int, str]] = []
        for name_server, response in self._ask_all(code, encode_header(header), b"", timeout_ms):
            try:
                body = GetBrokerMemberGroupResponseBody.from_json_bytes(response.body)
                groups.append(body.broker_member_group.broker_addrs)
            except RequestError as error:
                self._note(code, name_server, error)
        return groups

    def get_topic_route(self, topic: str, timeout_ms: int) -> TopicRouteData | None:
        """105 to the name servers, one after the other until one knows the topic; None: none."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        ext_fields = encode_header(GetRouteInfoRequestHeader(topic=topic))
        for name_server in self._name_servers:
            command = RemotingCommand.request(code, ext_fields)
            try:
                response = self.client.invoke_sync(name_server, command, timeout_ms)
                if response.code == ResponseCode.SUCCESS:
                    self._note(code, name_server, None)
                    return TopicRouteData.from_json_bytes(response.body)
                if response.code != ResponseCode.TOPIC_NOT_EXIST:
                    self._note(code, name_server, f"code {response.code}, {response.remark}")
            except (RemotingError, RequestError) as error:
                self._note(code, name_server, error)
        return None

    def get_topic_routes(self, topic: str, timeout_ms: int) -> list[TopicRouteData | None]:
        """105 to every name server: what those that respond say; None: of an unknown topic."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        ext_fields = encode_header(GetRouteInfoRequestHeader(topic=topic))
        routes: list[TopicRouteData | None] = []
        for name_server, response in self._ask_all(
            code, ext_fields, b"", timeout_ms, also=ResponseCode.TOPIC_NOT_EXIST
        ):
            try:
                is_known = response.code == ResponseCode.SUCCESS
                routes.append(TopicRouteData.from_json_bytes(response.body) if is_known else None)
            except RequestError as error:
                self._note(code, name_server, error)
        return routes

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        """The body of an answer to 43, 45 or 402; see get_page."""
        answer = self.get_page(broker, code, {}, timeout_ms)
        return None if answer is None else answer.body

    def get_page(
        self, broker: str, code: RequestCode, fields: Mapping[str, str], timeout_ms: int
    ) -> RemotingCommand | None:
        """A table of the broker at "ip:port", or the page that `fields` ask for (21, 201); None if
        it has no such table. Raises RemotingError, and BrokerAnswerError for other answers."""
        request = RemotingCommand.request(code, dict(fields))
        response = self.client.invoke_sync(broker, request, timeout_ms)
        if response.code == ResponseCode.SYSTEM_ERROR and response.remark in NOTHING_THERE:
            return None
        if response.code != ResponseCode.SUCCESS or not response.body:
            raise refusal_of(broker, code, response)
        return response

    def get_timer_check_point(self, broker: str, timeout_ms: int) -> TimerCheckPointAnswer:
        """60 to the broker at "ip:port". Raises RemotingError, BrokerAnswerError."""
        code = RequestCode.GET_TIMER_CHECK_POINT
        response = self.client.invoke_sync(broker, RemotingCommand.request(code, {}), timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise refusal_of(broker, code, response)
        end = response.ext_fields.get(LOG_END_FIELD, "0")
        is_offset = len(end) < 20 and end.isascii() and end.isdecimal()
        return TimerCheckPointAnswer(response.body, int(end) if is_offset else 0)

    # -- one request to all name servers ---------------------------------------------------------

    def _ask_all(
        self,
        code: RequestCode,
        ext_fields: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        name_servers: Sequence[str] | None = None,
        also: ResponseCode = ResponseCode.SUCCESS,
    ) -> list[tuple[str, RemotingCommand]]:
        """Returns the successes in order of arrival, when all have completed or the time is over.

        name_servers: the targets; None for all. also: a code that is a success, too.
        """
        asked = self._name_servers if name_servers is None else name_servers
        round_ = _Round(asked)
        for name_server in asked:
            command = RemotingCommand.request(code, ext_fields, body)
            callback = round_.callback_of(name_server)
            self.client.invoke_async(name_server, command, timeout_ms, callback)
        successes: list[tuple[str, RemotingCommand]] = []
        for name_server, response, error in round_.wait(timeout_ms + _GRACE_MS):
            if response is None:
                self._note(code, name_server, error or "no response")
            elif response.code not in (ResponseCode.SUCCESS, also):
                self._note(code, name_server, f"response code {response.code}, {response.remark}")
                self._refused.add((code, name_server))
            else:
                self._note(code, name_server, None)
                self._refused.discard((code, name_server))
                successes.append((name_server, response))
        return successes

    def _note(self, code: RequestCode, name_server: str, error: object | None) -> None:
        again = (code, name_server) in self._failing
        if error is not None:
            self._failing.add((code, name_server))
            level = logging.DEBUG if again and code in _EVERY_SECOND else logging.WARNING
            log.log(level, "name server %s: %s failed: %s", name_server, code.name, error)
        elif again:
            self._failing.discard((code, name_server))
            log.info("name server %s: %s works again", name_server, code.name)


def refusal_of(broker: str, code: RequestCode, response: RemotingCommand) -> BrokerAnswerError:
    """What a response of the broker at "ip:port" that is no success says, to be raised."""
    return BrokerAnswerError(
        f"{broker}: {code.name} answered with code {response.code}, {len(response.body)} bytes, "
        f"remark {response.remark}"
    )


def _forget(_response: RemotingCommand | None, _error: Exception | None) -> None:
    """Ignore the result; the next regular call shows whether the name server has recovered."""


_Outcome = tuple[str, RemotingCommand | None, Exception | None]


class _Round:
    """The parallel calls of one round to all name servers. Guarded by: its condition."""

    def __init__(self, name_servers: Sequence[str]) -> None:
        self._condition = threading.Condition()
        self._open = dict.fromkeys(name_servers)
        self._outcomes: list[_Outcome] = []

    def callback_of(self, name_server: str) -> ResponseCallback:
        """The completion callback of one call."""

        def on_answer(response: RemotingCommand | None, error: Exception | None) -> None:
            with self._condition:
                if name_server in self._open:
                    del self._open[name_server]
                    self._outcomes.append((name_server, response, error))
                    self._condition.notify_all()

        return on_answer

    def wait(self, timeout_ms: int) -> list[_Outcome]:
        """Wait for the outcomes, in order of arrival; a call that is pending has failed."""
        with self._condition:
            # registerBrokerTimeoutMills has no upper bound; the wait does.
            timeout_s = min(timeout_ms / 1000, threading.TIMEOUT_MAX)
            self._condition.wait_for(lambda: not self._open, timeout_s)
            stuck = [(name_server, None, TimeoutError("no response")) for name_server in self._open]
            self._open.clear()
            return [*self._outcomes, *stuck]


def _register_result(name_server: str, response: RemotingCommand) -> RegisterBrokerResult:
    """Raises RequestError for a header or body that cannot be read."""
    header = decode_header(RegisterBrokerResponseHeader, response.ext_fields)
    table = KVTable.from_json_bytes(response.body).table if response.body else None
    return RegisterBrokerResult(
        name_server=name_server,
        master_addr=header.master_addr or None,
        ha_server_addr=header.ha_server_addr or None,
        order_topics=table,
    )


def _is_changed(response: RemotingCommand, data_version: DataVersion) -> bool:
    """Whether the name server reports a change, or its data version differs from ours. Raises
    RequestError."""
    if decode_header(QueryDataVersionResponseHeader, response.ext_fields).changed:
        return True
    held = DataVersion.from_json_bytes(response.body) if response.body else None
    return held is not None and _version_fields(held) != _version_fields(data_version)


def _version_fields(version: DataVersion) -> tuple[int, int, int]:
    """The fields that make two data versions equal; the stateVersion, which 4.x does not send,
    defaults to 0."""
    return version.counter, version.timestamp, version.state_version or 0
