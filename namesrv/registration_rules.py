"""RegistrationRules: which brokers a peer may register, unregister or keep alive.

Called by RequestGuard before each request of a broker (103, 104, 217, 322, 904), on the thread of
the request. Two rules; anything else would let whoever reaches this port redirect clients and
slaves:

1. The broker address in the request is the peer's own: the IP that its connection comes from, or,
   for a peer on this machine, any address of this machine (a broker registers brokerIP1 while it
   connects through 127.0.0.1). Exempt are peers in registerAllowedAddresses (NAT, containers, hosts
   with several addresses), and all peers of a name server that takes only connections with a
   verified client certificate.
2. What a live broker holds, its id and its address, is left alone by every other host, exempt or
   not. A broker is alive while its connection is open, its last registration is not older than
   BROKER_CHANNEL_EXPIRED_MS, and it answers when it is asked (HolderProbe); so a restarted broker
   registers at once, and a promoted slave on another host does when its master's connection has
   ended, or some seconds after it tried first.

Only the IP counts, so brokers of one host are not protected from each other. It reads the route
tables and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from namesrv.holder_probe import SILENCE_MS, HolderProbe
from namesrv.registrations import BROKER_CHANNEL_EXPIRED_MS, BrokerLiveInfo
from namesrv.route_info_manager import RouteInfoManager
from namesrv.topic_route_request import read_topic_route
from remoting.address_patterns import AddressPatterns, ip_of
from remoting.command_custom_header import decode_header
from remoting.headers.broker import (
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from remoting.peer_origin import is_own_address, origin_of
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode, request_code_name
from remoting.request_processor import ConnectionLike

_BrokerHeader = (
    RegisterBrokerRequestHeader
    | UnRegisterBrokerRequestHeader
    | QueryDataVersionRequestHeader
    | BrokerHeartbeatRequestHeader
)
_HEADERS: Final[dict[int, type[_BrokerHeader]]] = {
    RequestCode.REGISTER_BROKER: RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: UnRegisterBrokerRequestHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionRequestHeader,
    RequestCode.BROKER_HEARTBEAT: BrokerHeartbeatRequestHeader,
}


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a request is refused. `rule`: which rule, without any text of the peer's."""

    rule: str
    text: str


class RegistrationRules:
    """See the module. Immutable; any thread."""

    def __init__(
        self,
        routes: RouteInfoManager,
        allowed: AddressPatterns,
        allowed_text: str,
        now_ms: Callable[[], int],
        probe: HolderProbe,
        *,
        has_certificates: bool,
    ) -> None:
        """allowed, allowed_text: registerAllowedAddresses, read and as written. now_ms: the
        monotonic clock of the registrations, and of `probe`. has_certificates: every peer has shown
        a client certificate that was verified."""
        self._routes = routes
        self._allowed = allowed
        self._allowed_text = allowed_text
        self._now_ms = now_ms
        self._probe = probe
        self._has_certificates = has_certificates

    def find_objection(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> Objection | None:
        """Why this broker's request is refused; None: it is not. Raises RequestError, ValueError
        for a request that cannot be read."""
        if request.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            return self._object_to_topic(connection, request)
        header = decode_header(_HEADERS[request.code], request.ext_fields)
        if not self._is_own_address(connection, header.broker_addr):
            return Objection("not its own address", self._text(connection, request, header))
        held = [header.broker_addr]
        if isinstance(header, RegisterBrokerRequestHeader):
            holders = self._routes.get_broker_member_group(header.broker_name)
            held.append(holders.get(header.broker_id, ""))
        for address in held:
            live = self._routes.find_live(address)
            if live is not None and self._is_held(live, connection):
                return Objection("held by another host", self._held_text(request, header, live))
        return None

    def _is_exempt(self, connection: ConnectionLike) -> bool:
        return self._has_certificates or self._allowed.matches(ip_of(connection.remote_address))

    # -- rule 1 --------------------------------------------------------------------------------

    def _is_own_address(self, connection: ConnectionLike, address: str) -> bool:
        return self._is_exempt(connection) or is_own_address(connection, address)

    def _text(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        header: _BrokerHeader,
    ) -> str:
        ip = ip_of(connection.remote_address)
        return (
            f"request {request.code} ({request_code_name(request.code)}) names the broker address "
            f"{header.broker_addr:.100}, but comes from {ip}: a broker registers an address of its "
            "own; set brokerIP1 to the address by which it reaches this name server, or, behind "
            f"NAT, with a host name or with several addresses, add {ip} to "
            f"registerAllowedAddresses (now {self._allowed_text or 'nobody'}) of this name server "
            "and restart it"
        )

    # -- rule 2 --------------------------------------------------------------------------------

    def _is_held(self, live: BrokerLiveInfo, connection: ConnectionLike) -> bool:
        timeout_ms = min(live.timeout_ms, BROKER_CHANNEL_EXPIRED_MS)
        is_alive = live.connection.is_open and live.last_update_ms + timeout_ms >= self._now_ms()
        if not is_alive or origin_of(live.connection) == origin_of(connection):
            return False
        return not self._probe.is_silent(live)

    def _held_text(
        self,
        request: RemotingCommand,
        header: _BrokerHeader,
        live: BrokerLiveInfo,
    ) -> str:
        what = f"broker {header.broker_name:.100} at {header.broker_addr:.100}"
        if isinstance(header, RegisterBrokerRequestHeader):
            what += f" with brokerId {header.broker_id}"
        age_s = (self._now_ms() - live.last_update_ms) // 1000
        return (
            f"request {request.code} ({request_code_name(request.code)}) for {what} is refused: "
            f"{live.broker_addr:.100} holds that and is alive, its host "
            f"{ip_of(live.connection.remote_address)} registered it {age_s} s ago; it was asked "
            f"whether it lives: if it does not answer within {SILENCE_MS // 1000} s, the next "
            "attempt succeeds; else stop that broker"
        )

    # -- a topic's route (217) -----------------------------------------------------------------

    def _object_to_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> Objection | None:
        """It names broker names, no addresses: a host that serves one of that name may."""
        if self._is_exempt(connection):
            return None
        route = read_topic_route(request)
        for data in route.queue_datas:
            members = self._routes.get_broker_member_group(data.broker_name)
            if members and not self._serves_one(connection, members.values()):
                ip = ip_of(connection.remote_address)
                return Objection(
                    "not its own broker name",
                    f"request {request.code} ({request_code_name(request.code)}) changes a topic "
                    f"of broker {data.broker_name:.100}, which has no live broker at {ip}; add "
                    f"{ip} to registerAllowedAddresses (now {self._allowed_text or 'nobody'}) of "
                    "this name server and restart it",
                )
        return None

    def _serves_one(self, connection: ConnectionLike, addresses: Iterable[str]) -> bool:
        found = (self._routes.find_live(address) for address in addresses)
        own = origin_of(connection)
        return any(live is not None and origin_of(live.connection) == own for live in found)
