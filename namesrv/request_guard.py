"""RequestGuard: the name server's access check, called before each request that has a processor.

On the thread of the request: loop or pool. Operators' changes are accepted only from
adminAllowedAddresses; brokers register themselves and nobody else (registration_rules.py); what
clients read is open to everyone, as all requests are in RocketMQ's name server. A refusal is
answered and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from namesrv.holder_probe import HolderProbe
from namesrv.namesrv_config import NamesrvConfig
from namesrv.registration_rules import RegistrationRules
from namesrv.route_info_manager import RouteInfoManager
from remoting.address_patterns import ip_of, parse_patterns
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode, request_code_name
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

OPERATOR_CODES: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Requests that change state and that only mqadmin sends."""

BROKER_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    }
)
"""Requests of brokers that change state, accepted from the broker that they are about."""

READING_CODES: Final = frozenset(
    {
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)
"""Requests that change nothing: open. A code in none of the three sets is denied."""


class RequestGuard:
    """`check` is a RequestGate."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteInfoManager,
        now_ms: Callable[[], int],
        probe: HolderProbe,
        *,
        has_certificates: bool,
    ) -> None:
        """`now_ms` is monotonic. `probe`, `has_certificates`: as in RegistrationRules. Raises
        ValueError for a malformed setting."""
        admin_allowed_addresses = config.admin_allowed_addresses
        allowed = config.register_allowed_addresses
        self._operators = OperatorAddresses(
            parse_patterns(admin_allowed_addresses), admin_allowed_addresses
        )
        self._rules = RegistrationRules(
            routes,
            parse_patterns(allowed),
            allowed,
            now_ms,
            probe,
            has_certificates=has_certificates,
        )
        self._refusals = RefusalLog(log, now_ms)

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError if this peer may not send the request."""
        code = request.code
        if code in READING_CODES or (
            code in OPERATOR_CODES and self._operators.include(connection)
        ):
            return
        if code in BROKER_CODES:
            self._check_broker(connection, request)
            return
        error = RequestError(ResponseCode.NO_PERMISSION, self._remark(connection, code))
        self._refusals.record(connection.remote_address, code, error)
        raise error

    def _check_broker(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        found = self._rules.find_objection(connection, request)
        if found is None:
            return
        error = RequestError(ResponseCode.NO_PERMISSION, found.text)
        subject = f"{request.code} {found.rule}"
        self._refusals.record(connection.remote_address, request.code, error, subject)
        raise error

    def _remark(self, connection: ConnectionLike, code: int) -> str:
        if code not in OPERATOR_CODES:
            return (
                f"request code {code} is denied: no rule says who may send it "
                "(namesrv/request_guard.py)"
            )
        return (
            f"request {code} ({request_code_name(code)}) is not accepted from "
            f"{ip_of(connection.remote_address)}: it is for operators at adminAllowedAddresses "
            f"(now {self._operators}); add the address to that setting of this name server "
            "and restart it"
        )
