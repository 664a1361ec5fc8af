"""RequestGuard: the gate of the broker's server, asked before every request but the fast ones.

On the thread of the request: loop or pool. Reads the access table of codes; with ACL the accounts
decide, without it an operator's address. Every refusal is answered and said in the log, once in a
while for each peer and reason. With ACL no fast route may be given to the server, since those do
not come here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

from broker.acl.access_table import ACCESS_TABLE, AccessRow, Who
from broker.acl.acl_table import AclTable
from remoting.address_patterns import AddressPatterns, ip_of
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import request_code_name
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.clock import Clock

log = logging.getLogger(__name__)

QUIET_MS: Final = 60_000
"""Between two lines about one refusal of one peer."""
_MAX_SAID: Final = 1024
_SHOWN: Final = 500
_LOOPBACK: Final = ("127.0.0.1", "::1")


class AclSource(Protocol):
    """What is needed of PlainPermissionManager."""

    @property
    def table(self) -> AclTable:
        """The accounts that count now."""
        ...


class RequestGuard:
    """RequestGate. Owned by: its lock, for what the log has heard."""

    def __init__(
        self,
        admin_addresses: AddressPatterns,
        admin_setting: str,
        acl: AclSource | None,
        clock: Clock,
        rows: Mapping[int, AccessRow] = ACCESS_TABLE,
    ) -> None:
        """`admin_setting`: text of adminAllowedAddresses. `acl` None: aclEnable=false."""
        self._admin_addresses = admin_addresses
        self._admin_setting = admin_setting
        self._acl = acl
        self._clock = clock
        self._rows = rows
        self._lock = threading.Lock()
        self._said: OrderedDict[tuple[str, str], int] = OrderedDict()
        """(ip, remark) to when it was last said, in ms."""

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError for what this peer may not ask."""
        try:
            self._check(connection, request)
        except RequestError as error:
            self._say(connection.remote_address, request.code, error)
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
        elif row.who is Who.ADMIN and not self._is_operator(ip, connection):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"request {request.code} ({request_code_name(request.code)}) is not taken from "
                f"{ip}: without ACL it is for operators at adminAllowedAddresses (now "
                f"{self._admin_setting or 'nobody'}); add the address to that setting of this "
                "broker and restart it, or set aclEnable=true and sign as an admin",
            )

    def _is_operator(self, ip: str, connection: ConnectionLike) -> bool:
        """By address. Whoever asks this machine by its own name does so by way of loopback."""
        matches = self._admin_addresses.matches
        return matches(ip) or (connection.is_from_this_machine and any(map(matches, _LOOPBACK)))

    def _say(self, remote: str, code: int, error: RequestError) -> None:
        """A remark may hold words of the peer: one line, and not too much of it."""
        remark = " ".join(error.remark[:_SHOWN].splitlines())
        key = (ip_of(remote), remark)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            said_ms = self._said.get(key)
            if said_ms is not None and now_ms - said_ms < QUIET_MS:
                return
            self._said[key] = now_ms
            self._said.move_to_end(key)
            if len(self._said) > _MAX_SAID:
                self._said.popitem(last=False)
        log.warning("%s: %s refused: %s", remote, request_code_name(code), remark)
