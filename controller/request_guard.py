"""RequestGuard: the controller's access check, called before each request that has a processor.

On the thread of the request. What only shows something is open, as all requests are in RocketMQ.
Operators' requests come from adminAllowedAddresses. A broker speaks for an address of its own: the
one in the request has to be that of the connection (remoting/peer_origin.py), unless the peer is in
registerAllowedAddresses or every peer has shown a certificate. That it speaks for its own id is
checked later, where the ids are (controller/broker_holders.py). A refusal is answered and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from controller.controller_config import ControllerConfig
from remoting.address_patterns import ip_of, parse_patterns
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.peer_origin import is_own_address
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode, request_code_name
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

READING_CODES: Final = frozenset(
    {
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    }
)
"""Requests that change nothing: open."""

OPERATOR_CODES: Final = frozenset(
    {RequestCode.UPDATE_CONTROLLER_CONFIG, RequestCode.CLEAN_BROKER_DATA}
)
"""Requests that only mqadmin sends."""

BROKER_CODES: Final = frozenset(
    {
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
    }
)
"""Requests of brokers that change state. A code in none of the three sets is denied."""

_NAMED_ADDRESS: Final = {
    RequestCode.BROKER_HEARTBEAT: "brokerAddr",
    RequestCode.CONTROLLER_REGISTER_BROKER: "brokerAddress",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "registerCheckCode",
}
"""The field that holds the sender's address; of registerCheckCode what stands before ';'."""


class RequestGuard:
    """`check` is a RequestGate."""

    def __init__(
        self, config: ControllerConfig, now_ms: Callable[[], int], *, has_certificates: bool
    ) -> None:
        """now_ms: monotonic. has_certificates: every peer has shown a certificate that was
        verified. Raises ValueError for a malformed setting."""
        text = config.admin_allowed_addresses
        self._operators = OperatorAddresses(parse_patterns(text), text)
        self._allowed_text = config.register_allowed_addresses
        self._allowed = parse_patterns(config.register_allowed_addresses)
        self._has_certificates = has_certificates
        self._refusals = RefusalLog(log, now_ms)

    def is_operator(self, connection: ConnectionLike) -> bool:
        """Whether the peer is in adminAllowedAddresses."""
        return self._operators.include(connection)

    def speaks_for_others(self, connection: ConnectionLike) -> bool:
        """Whether the peer may speak for brokers at other addresses than its own."""
        return self._has_certificates or self._allowed.matches(ip_of(connection.remote_address))

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError if this peer may not send the request."""
        objection = self._find_objection(connection, request)
        if objection is not None:
            raise self.refusal(connection, request.code, objection)

    def refusal(self, connection: ConnectionLike, code: int, text: str) -> RequestError:
        """The answer to a request that is not allowed; logs it."""
        error = RequestError(ResponseCode.NO_PERMISSION, text)
        self._refusals.record(connection.remote_address, code, error, f"{code}")
        return error

    def not_for_operators(self, connection: ConnectionLike, code: int) -> str:
        """Why a request for operators is refused."""
        return (
            f"request {code} ({request_code_name(code)}) is not accepted from "
            f"{ip_of(connection.remote_address)}: it is for operators at adminAllowedAddresses "
            f"(now {self._operators}); add the address to that setting of this controller and "
            "restart it"
        )

    def _find_objection(self, connection: ConnectionLike, request: RemotingCommand) -> str | None:
        code = request.code
        if code in READING_CODES:
            return None
        if code in OPERATOR_CODES:
            if self.is_operator(connection):
                return None
            return self.not_for_operators(connection, code)
        if code not in BROKER_CODES:
            return (
                f"request code {code} is denied: no rule says who may send it "
                "(controller/request_guard.py)"
            )
        field = _NAMED_ADDRESS.get(RequestCode(code))
        if field is None or self.speaks_for_others(connection):
            return None
        address = request.ext_fields.get(field, "").partition(";")[0]
        return (
            None if is_own_address(connection, address) else self._text(connection, code, address)
        )

    def _text(self, connection: ConnectionLike, code: int, address: str) -> str:
        ip = ip_of(connection.remote_address)
        return (
            f"request {code} ({request_code_name(code)}) names the broker address "
            f"{address!a:.100}, but comes from {ip}: a broker speaks for its own address; set "
            "brokerIP1 to the address by which it reaches this controller, or, behind NAT, with a "
            f"host name or with several addresses, add {ip} to registerAllowedAddresses (now "
            f"{self._allowed_text or 'nobody'}) of this controller and restart it"
        )
