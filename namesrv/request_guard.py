"""RequestGuard: the gate of the name server, asked before every request that has a processor.

On the thread of the request: loop or pool. What an operator changes is taken from the addresses of
adminAllowedAddresses only; what brokers and clients ask is open, as with a name server of the
original, which lets everybody do everything. A refusal is answered, and said in the log.
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
"""What changes state and only mqadmin asks."""

BROKER_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    }
)
"""What changes state and brokers ask, from wherever they are: open."""

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
"""What changes nothing: open. A code in none of the three sets is denied."""

_OPEN: Final = BROKER_CODES | READING_CODES


class RequestGuard:
    """RequestGate."""

    def __init__(self, admin_allowed_addresses: str, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic. Raises ValueError for the setting's text."""
        self._operators = OperatorAddresses(
            parse_patterns(admin_allowed_addresses), admin_allowed_addresses
        )
        self._refusals = RefusalLog(log, now_ms)

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError for what this peer may not ask."""
        code = request.code
        if code in _OPEN or (code in OPERATOR_CODES and self._operators.include(connection)):
            return
        error = RequestError(ResponseCode.NO_PERMISSION, self._remark(connection, code))
        self._refusals.record(connection.remote_address, code, error)
        raise error

    def _remark(self, connection: ConnectionLike, code: int) -> str:
        if code not in OPERATOR_CODES:
            return (
                f"request code {code} is denied: nothing is known about who may ask for it "
                "(namesrv/request_guard.py)"
            )
        return (
            f"request {code} ({request_code_name(code)}) is not taken from "
            f"{ip_of(connection.remote_address)}: it is for operators at adminAllowedAddresses "
            f"(now {self._operators}); add the address to that setting of this name server and "
            "restart it"
        )
