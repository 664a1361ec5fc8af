"""RequestGuard: the name server's access check, called before each request that has a processor.

On the thread of the request: loop or pool. Operators' changes are accepted only from
adminAllowedAddresses; requests of brokers and clients are open to everyone, as in RocketMQ's name
server, where all requests are. A refusal is answered and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

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
"""Requests of brokers that change state, accepted from any address."""

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

_OPEN: Final = BROKER_CODES | READING_CODES


class RequestGuard:
    """`check` is a RequestGate."""

    def __init__(self, admin_allowed_addresses: str, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic. Raises ValueError for a malformed setting."""
        self._operators = OperatorAddresses(
            parse_patterns(admin_allowed_addresses), admin_allowed_addresses
        )
        self._refusals = RefusalLog(log, now_ms)

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError if this peer may not send the request."""
        code = request.code
        if code in _OPEN or (code in OPERATOR_CODES and self._operators.include(connection)):
            return
        error = RequestError(ResponseCode.NO_PERMISSION, self._remark(connection, code))
        self._refusals.record(connection.remote_address, code, error)
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
