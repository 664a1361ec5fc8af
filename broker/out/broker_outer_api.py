"""BrokerOuterAPI: what this broker asks of its name servers (103, 104, 106, 322) and of the other
brokers of its group (21, 43, 45, 201).

Called by the scheduled executor and admin threads; a call to name servers goes to every one at
once and returns when all answered or the time is over. One that fails is logged and does not hold
up or spoil the others. Decides nothing: when to register, and what follows from an answer, is in
broker_registration, slave_synchronize, group_members, returning_master. Follows BrokerOuterAPI of
the original.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from remoting.body.data_version import DataVersion
from remoting.body.kv_table import KVTable
from remoting.body.register_broker import RegisterBrokerBody, body_crc32
from remoting.body.route import ClusterInfo
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.broker import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseCallback

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS: Final = 3_000
CLUSTER_INFO_TIMEOUT_MS: Final = 2_000
"""Short: unknown peers of the HA port wait for this answer."""
_GRACE_MS: Final = 500
"""How much longer than its time-out a call may take to report it."""


NOTHING_THERE: Final = frozenset(
    {
        "No topic in this broker",
        "No consumer offset in this broker",
        "No delay offset in this broker",
        "Delay offset not supported in this messagetore",
        "No subscription group in this broker",
    }
)
"""Remarks of a Java master whose table is empty text (SYSTEM_ERROR): nothing to take over."""


class BrokerAnswerError(Exception):
    """A broker answered, but not what it was asked for; the message names it and the request."""


class OutgoingClient(Protocol):
    """What is needed of RemotingClient."""

    connection_listener: Callable[[str], None] | None
    """Told the address of each connection that ended."""

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Call a peer and wait. Raises RemotingError."""
        ...

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        """Call a peer; the callback runs once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """Who registers. Addresses are "ip:port"."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResult:
    """What one name server answered to a registration."""

    name_server: str
    master_addr: str | None
    """Only for a slave whose master is known there."""
    ha_server_addr: str | None
    order_topics: Mapping[str, str] | None
    """Topic to "broker:queues;..."; None when it has no such table."""


def parse_name_servers(text: str | None) -> list[str]:
    """ "a:1;b:2" as a list, without blanks and doubles."""
    parts = (part.strip() for part in (text or "").split(";"))
    return list(dict.fromkeys(part for part in parts if part))


class BrokerOuterAPI:
    """Calls to name servers. Owned by: whoever calls; the address list is replaced whole."""

    def __init__(self, client: OutgoingClient, name_servers: Sequence[str] = ()) -> None:
        self._client = client
        self._name_servers = tuple(name_servers)
        self._failing: set[tuple[int, str]] = set()

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Where this broker registers."""
        return self._name_servers

    def watch_connections(self, listener: Callable[[str], None]) -> None:
        """Tell `listener` the address of every connection that ends; on the client's loop thread.
        Before the client's start."""
        self._client.connection_listener = listener

    def update_name_server_addresses(self, name_servers: Sequence[str]) -> None:
        """From now on use these."""
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
        """103 to every name server; the answers of those that took it, in order of arrival.

        wait_for_failing=False: those whose last call failed are told, too, and not waited for.
        """
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
            )
        )
        code = RequestCode.REGISTER_BROKER
        asked = self._name_servers
        if not wait_for_failing:
            asked = tuple(name for name in asked if (code, name) not in self._failing)
            for name_server in set(self._name_servers).difference(asked):
                command = RemotingCommand.request(code, ext_fields, body)
                self._client.invoke_async(name_server, command, timeout_ms, _forget)
        results: list[RegisterBrokerResult] = []
        for name_server, response in self._ask_all(code, ext_fields, body, timeout_ms, asked):
            try:
                results.append(_register_result(name_server, response))
            except RequestError as error:
                self._failed(code, name_server, error)
        return results

    def need_register(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> bool:
        """322 to every name server: whether any of them has another edition, or gives no answer."""
        ext_fields = encode_header(
            QueryDataVersionRequestHeader(
                broker_name=identity.broker_name,
                broker_addr=identity.broker_addr,
                cluster_name=identity.cluster_name,
                broker_id=identity.broker_id,
            )
        )
        code = RequestCode.QUERY_DATA_VERSION
        unchanged = 0
        for name_server, response in self._ask_all(
            code, ext_fields, data_version.to_json_bytes(), timeout_ms
        ):
            try:
                unchanged += not _is_changed(response, data_version)
            except RequestError as error:
                self._failed(code, name_server, error)
        return unchanged < len(self._name_servers)

    def unregister_broker_all(
        self, identity: BrokerIdentity, timeout_ms: int = UNREGISTER_TIMEOUT_MS
    ) -> int:
        """104 to every name server; how many took it."""
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
        """106 to every name server: what those know that answered; empty when none did."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        infos: list[ClusterInfo] = []
        for name_server, response in self._ask_all(code, {}, b"", timeout_ms):
            try:
                infos.append(ClusterInfo.from_json_bytes(response.body))
            except RequestError as error:
                self._failed(code, name_server, error)
        return infos

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        """21, 43, 45 or 201 to the broker at "ip:port": the body; None: it has no such table.

        Raises RemotingError, and BrokerAnswerError for any answer that holds no table.
        """
        response = self._client.invoke_sync(broker, RemotingCommand.request(code, {}), timeout_ms)
        if response.code == ResponseCode.SYSTEM_ERROR and response.remark in NOTHING_THERE:
            return None
        if response.code != ResponseCode.SUCCESS or not response.body:
            raise BrokerAnswerError(
                f"{broker}: {code.name} answered with code {response.code}, "
                f"{len(response.body)} bytes, remark {response.remark}"
            )
        return response.body

    # -- one request to all name servers ---------------------------------------------------------

    def _ask_all(
        self,
        code: RequestCode,
        ext_fields: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        name_servers: Sequence[str] | None = None,
    ) -> list[tuple[str, RemotingCommand]]:
        """Successes in order of arrival; returns when all answered or failed, or time is over.

        name_servers: whom to ask; None: every one.
        """
        asked = self._name_servers if name_servers is None else name_servers
        round_ = _Round(asked)
        for name_server in asked:
            command = RemotingCommand.request(code, ext_fields, body)
            callback = round_.callback_of(name_server)
            self._client.invoke_async(name_server, command, timeout_ms, callback)
        successes: list[tuple[str, RemotingCommand]] = []
        for name_server, response, error in round_.wait(timeout_ms + _GRACE_MS):
            if response is None:
                self._failed(code, name_server, error)
            elif response.code != ResponseCode.SUCCESS:
                self._failed(code, name_server, f"answer {response.code}, {response.remark}")
            else:
                self._succeeded(code, name_server)
                successes.append((name_server, response))
        return successes

    def _failed(self, code: RequestCode, name_server: str, error: object) -> None:
        self._failing.add((code, name_server))
        log.warning("name server %s: %s failed: %s", name_server, code.name, error)

    def _succeeded(self, code: RequestCode, name_server: str) -> None:
        if (code, name_server) in self._failing:
            self._failing.discard((code, name_server))
            log.info("name server %s: %s works again", name_server, code.name)


def _forget(_response: RemotingCommand | None, _error: Exception | None) -> None:
    """Nobody waits: the next regular call tells whether the name server works again."""


_Outcome = tuple[str, RemotingCommand | None, Exception | None]


class _Round:
    """The calls of one round to all name servers. Owned by: its condition."""

    def __init__(self, name_servers: Sequence[str]) -> None:
        self._condition = threading.Condition()
        self._open = dict.fromkeys(name_servers)
        self._outcomes: list[_Outcome] = []

    def callback_of(self, name_server: str) -> ResponseCallback:
        """What the client tells about one call."""

        def on_answer(response: RemotingCommand | None, error: Exception | None) -> None:
            with self._condition:
                if name_server in self._open:
                    del self._open[name_server]
                    self._outcomes.append((name_server, response, error))
                    self._condition.notify_all()

        return on_answer

    def wait(self, timeout_ms: int) -> list[_Outcome]:
        """What happened, in order of arrival; a call that is still open counts as failed."""
        with self._condition:
            self._condition.wait_for(lambda: not self._open, timeout_ms / 1000)
            stuck = [(name_server, None, TimeoutError("no answer")) for name_server in self._open]
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
    """The name server's own word, and its edition beside ours. Raises RequestError."""
    if decode_header(QueryDataVersionResponseHeader, response.ext_fields).changed:
        return True
    held = DataVersion.from_json_bytes(response.body) if response.body else None
    return held is not None and _edition(held) != _edition(data_version)


def _edition(version: DataVersion) -> tuple[int, int, int]:
    """What makes two editions equal; a stateVersion that 4.x does not send counts as 0."""
    return version.counter, version.timestamp, version.state_version or 0
