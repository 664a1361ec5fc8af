"""RequestGuard: the gate of the broker's server, asked before every request.

On the thread of the request: loop or pool. Reads the access table of codes; with ACL the accounts
decide, without it an operator's address. Every refusal is answered and said in the log, once in a
while for each peer and reason. Fast routes do not come here by themselves: with ACL each needs a
GuardedRoute, without it they are for everybody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from broker.acl.access_table import ACCESS_TABLE, AccessRow, Who
from broker.acl.acl_table import AclTable
from ipc.clock import Clock
from remoting.address_patterns import AddressPatterns, ip_of
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import request_code_name
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class AclSource(Protocol):
    """What is needed of PlainPermissionManager."""

    @property
    def table(self) -> AclTable:
        """The accounts that count now."""
        ...


class RequestGuard:
    """RequestGate."""

    def __init__(
        self,
        admin_addresses: AddressPatterns,
        admin_setting: str,
        acl: AclSource | None,
        clock: Clock,
        rows: Mapping[int, AccessRow] = ACCESS_TABLE,
    ) -> None:
        """`admin_setting`: text of adminAllowedAddresses. `acl` None: aclEnable=false."""
        self._operators = OperatorAddresses(admin_addresses, admin_setting)
        self._acl = acl
        self._rows = rows
        self._refusals = RefusalLog(log, clock.monotonic_ms)

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError for what this peer may not ask."""
        try:
            self._check(connection, request)
        except RequestError as error:
            self._refusals.say(connection.remote_address, request.code, error)
            raise

    def _check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        ip = ip_of(connection.remote_address)
        row = self._rows.get(request.code)
        if row is None:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"request code {request.code} is denied: nothing is known about who may ask for "
                "it (broker/acl/access_table.py)",
            )
        if self._acl is not None:
            self._acl.table.validate(ip, request, row)
        elif row.who is Who.ADMIN and not self._operators.include(connection):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"request {request.code} ({request_code_name(request.code)}) is not taken from "
                f"{ip}: without ACL it is for operators at adminAllowedAddresses (now "
                f"{self._operators}); add the address to that setting of this "
                "broker and restart it, or set aclEnable=true and sign as an admin",
            )
