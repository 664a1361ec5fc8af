"""RequestGuard: checks every request to the broker's server before it is served.

Runs on the thread that serves the request: the loop or a pool thread. Looks the code up in the
access table; with ACL the accounts decide, with access control of 5.x its users (AuthChecks),
without both the peer's address. Every denial is answered,
and logged at a limited rate per peer and reason. Fast routes bypass this guard: with ACL each is
wrapped in a GuardedRoute, without it they are open to everyone.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.acl.access_resources import Resources
from broker.acl.access_table import ACCESS_TABLE, AccessRow, Who
from broker.acl.acl_table import AclTable
from broker.acl.plain_permission_manager import PlainPermissionManager
from ipc.clock import Clock
from remoting.address_patterns import AddressPatterns, ip_of, parse_patterns
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import request_code_name
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY

log = logging.getLogger(__name__)

_FROM_EVERYWHERE: Final = OperatorAddresses(parse_patterns("*"), "*")


class AuthChecks(Protocol):
    """Access control of 5.x (AuthGuard)."""

    def knows_sender(self, request: RemotingCommand) -> bool:
        """Whether the sender of a request that passed is who it says."""
        ...

    def check(self, ip: str, request: RemotingCommand, row: AccessRow) -> None:
        """Raises RequestError if the sender may not send this request."""

    def account_of(self, request: RemotingCommand) -> str:
        """The sender of a request that passed; empty where its word was not checked."""
        ...

    def signer_of(self, request: RemotingCommand) -> str | None:
        """The user whose password signed the request; None: nobody's did."""
        ...

    def check_resources(self, ip: str, request: RemotingCommand, resources: Resources) -> None:
        """Raises RequestError if it lacks one of these rights."""

    @property
    def version(self) -> tuple[object, ...]:
        """Other objects as soon as anything has changed that `validate_held` looks at."""
        ...

    def proof_of(self, ip: str, request: RemotingCommand) -> object:
        """What a request that passed was signed with."""
        ...

    def validate_held(
        self, ip: str, request: RemotingCommand, row: AccessRow, proof: object
    ) -> None:
        """Raises RequestError if its sender may not be answered any more."""


Judge = AclTable | AuthChecks
OnRefused = Callable[[ConnectionLike, RemotingCommand, RequestError], None]


class RequestGuard:
    """`check` is a RequestGate."""

    def __init__(
        self,
        admin_addresses: AddressPatterns,
        admin_setting: str,
        acl: PlainPermissionManager | None,
        clock: Clock,
        rows: Mapping[int, AccessRow] = ACCESS_TABLE,
        acl_admins: OperatorAddresses = _FROM_EVERYWHERE,
        auth: AuthChecks | None = None,
    ) -> None:
        """`admin_setting`: text of adminAllowedAddresses. `acl` None: aclEnable=false.
        `acl_admins`: aclAdminAllowedAddresses. `auth` None: access control of 5.x is off."""
        self._auth = auth
        self._acl_admins = acl_admins
        self._operators = OperatorAddresses(admin_addresses, admin_setting)
        self._acl = acl
        self._rows = rows
        self._refusals = RefusalLog(log, clock.monotonic_ms)
        self.on_refused: OnRefused = lambda _connection, _request, _error: None
        """Hears of each request that `check` has refused."""

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError if this peer may not send this request."""
        try:
            self._check(connection, request)
        except RequestError as error:
            self._refusals.record(connection.remote_address, request.code, error)
            self.on_refused(connection, request, error)
            raise

    def check_held(
        self, judge: Judge, connection: ConnectionLike, request: RemotingCommand, proof: object
    ) -> None:
        """Raises RequestError if the sender of a request that waits may not be answered any
        more."""
        ip = ip_of(connection.remote_address)
        try:
            judge.validate_held(ip, request, self._rows[request.code], proof)
        except RequestError as error:
            self._refusals.record(connection.remote_address, request.code, error)
            raise

    def check_resources(
        self, connection: ConnectionLike, request: RemotingCommand, needed: Resources
    ) -> None:
        """Raises RequestError if the account of a request that `check` let pass lacks a right which
        was known only once a message was read. Any thread; nothing is asked for without access
        control."""
        table = self.judge()
        if table is None:
            return
        try:
            table.check_resources(ip_of(connection.remote_address), request, needed)
        except RequestError as error:
            self._refusals.record(connection.remote_address, request.code, error)
            raise

    def account_of(self, request: RemotingCommand) -> str:
        """The account of a request that `check` let pass; empty without access control. Of an
        address that needs none it is what the request says."""
        if self._acl is not None:
            return request.ext_fields.get(ACCESS_KEY, "")
        return "" if self._auth is None else self._auth.account_of(request)

    def signer_of(self, request: RemotingCommand) -> str | None:
        """The account or user that this request is signed by, whatever it may do; None without
        access control, and where the signature proves nothing."""
        judge = self.judge()
        return None if judge is None else judge.signer_of(request)

    def hold(
        self, connection: ConnectionLike, code: int, access_key: str | None, group: str, topic: str
    ) -> Callable[[], None] | None:
        """HoldRights: of a request for `topic` that `check` has let pass in this turn."""
        if self.judge() is None:
            return None
        fields = {"consumerGroup": group, "topic": topic}
        if access_key is not None:
            fields[ACCESS_KEY] = access_key
        return _HeldRequest(self, connection, RemotingCommand(code, ext_fields=fields)).check

    def judge(self) -> Judge | None:
        """Who decides; None without access control."""
        return self._auth if self._acl is None else self._acl.table

    def _check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        ip = ip_of(connection.remote_address)
        row = self._rows.get(request.code)
        if row is None:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"request code {request.code} is denied: it has no row in the access table "
                "(broker/acl/access_table.py)",
            )
        if row.who is Who.EVERYBODY:
            return
        if self._acl is not None:
            self._acl.table.validate(ip, request, row)
        elif self._auth is not None:
            self._auth.check(ip, request, row)
        if row.who is Who.ADMIN:
            self._check_address(connection, request, ip)

    def _check_address(self, connection: ConnectionLike, request: RemotingCommand, ip: str) -> None:
        """Where an operator's request may come from."""
        named = f"request {request.code} ({request_code_name(request.code)})"
        if self._acl is not None or (self._auth is not None and self._auth.knows_sender(request)):
            if not self._acl_admins.include(connection):
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"{named} is not accepted from {ip}: it is for operators at "
                    f"aclAdminAllowedAddresses (now {self._acl_admins}); add the address to that "
                    "setting of this broker and restart it",
                )
        elif not self._operators.include(connection):
            without, instead = (
                ("without ACL", "set aclEnable=true and sign as an admin")
                if self._auth is None
                else ("without authentication", "set authenticationEnabled=true and sign")
            )
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"{named} is not accepted from {ip}: {without} it is for operators at "
                f"adminAllowedAddresses (now {self._operators}); add the address to that setting "
                f"of this broker and restart it, or {instead}",
            )


class _HeldRequest:
    """A request that waits: what it asks for, what it was signed with, and what has judged it."""

    __slots__ = ("_connection", "_guard", "_proof", "_request", "_version")

    def __init__(
        self, guard: RequestGuard, connection: ConnectionLike, request: RemotingCommand
    ) -> None:
        """Judges it once more: the tables may be newer than those that let it pass. Raises
        RequestError."""
        self._guard = guard
        self._connection = connection
        self._request = request
        self._version: tuple[object, ...] = ()
        judge = guard.judge()
        ip = ip_of(connection.remote_address)
        self._proof = None if judge is None else judge.proof_of(ip, request)
        self.check()

    def check(self) -> None:
        """Raises RequestError if its sender may not be answered any more."""
        judge = self._guard.judge()
        if judge is None:
            return
        version = judge.version
        if len(version) == len(self._version) and all(map(operator.is_, version, self._version)):
            return
        self._guard.check_held(judge, self._connection, self._request, self._proof)
        self._version = version
