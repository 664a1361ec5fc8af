"""AclTable: the accounts and whitelisted addresses of all files; validates requests.

A frozen value, replaced as a whole by PlainPermissionManager, and with it what it remembers; any
thread reads it. The order of the checks, the codes and the wording are those of
PlainPermissionManager.validate of RocketMQ; the remark names RocketMQ's exception, as its brokers
answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.acl.access_resources import Resources
from broker.acl.access_table import AccessRow, Who
from broker.acl.allowed_requests import AllowedRequests
from broker.acl.permission import Permission, is_group, shown, suffices
from broker.acl.plain_acl_file import Account
from broker.topic.system_topics import TRACE_TOPIC, is_internal_topic
from remoting.address_patterns import NOBODY, AddressPatterns
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY, is_signed_with

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"
_SHOWN: Final = 100
"""Characters shown of an unverified name."""


class AclError(RequestError):
    """The request is not allowed; answered SYSTEM_ERROR with RocketMQ's words."""

    def __init__(self, text: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{EXCEPTION}: {text}")


@dataclass(frozen=True, slots=True)
class AclTable:
    """The known accounts. `white_addresses`: peers that may do everything, unsigned."""

    white_addresses: AddressPatterns = NOBODY
    accounts: Mapping[str, Account] = field(default_factory=dict)
    _allowed: AllowedRequests = field(
        default_factory=AllowedRequests, init=False, repr=False, compare=False
    )

    @property
    def is_empty(self) -> bool:
        """Whether no request could ever be accepted."""
        return not self.accounts and self.white_addresses == NOBODY

    def validate(self, ip: str, request: RemotingCommand, row: AccessRow) -> None:
        """Raises AclError, and RequestError for a body that cannot be read."""
        account = self._find_account(ip, request)
        if account is None:
            return
        if not is_signed_with(account.secret_key, request):
            raise _not_signed(request)
        self._judge(account, request, row)

    def signer_of(self, request: RemotingCommand) -> str | None:
        """The account whose secret key signed the request; None: nobody's did."""
        access_key = request.ext_fields.get(ACCESS_KEY, "")
        account = self.accounts.get(access_key)
        signed = account is not None and is_signed_with(account.secret_key, request)
        return access_key if signed else None

    # -- requests that wait ----------------------------------------------------------------------

    @property
    def version(self) -> tuple[object, ...]:
        """Other objects as soon as anything has changed that `validate_held` looks at."""
        return (self,)

    def proof_of(self, ip: str, request: RemotingCommand) -> object:
        """What a request that was validated was signed with; None if its address sufficed."""
        account = self._find_account(ip, request)
        return None if account is None else account.secret_key

    def validate_held(
        self, ip: str, request: RemotingCommand, row: AccessRow, proof: object
    ) -> None:
        """As `validate`, for one that was signed with `proof` when it came. Raises AclError."""
        account = self._find_account(ip, request)
        if account is None:
            return
        if account.secret_key != proof:
            raise _not_signed(request)
        self._judge(account, request, row)

    # -- steps -----------------------------------------------------------------------------------

    def _find_account(self, ip: str, request: RemotingCommand) -> Account | None:
        """Who has to sign and to have the rights; None: nobody, by the address. Raises AclError."""
        if self.white_addresses.matches(ip):
            return None
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise AclError("No accessKey is configured")
        account = self.accounts.get(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key:.{_SHOWN}}")
        return None if account.white_addresses.matches(ip) else account

    def _judge(self, account: Account, request: RemotingCommand, row: AccessRow) -> None:
        fields = request.ext_fields
        access_key = fields[ACCESS_KEY]
        if row.who is Who.ADMIN and not account.admin:
            raise AclError(
                f"Need admin permission for request code={request.code}, but accessKey="
                f"{access_key} is not"
            )
        if row.resources_of is None:
            return
        if not row.named_by:
            _check_resources(account, row.resources_of(request))
            return
        key = (access_key, request.code, *map(fields.get, row.named_by))
        if not self._allowed.includes(key, account):
            _check_resources(account, row.resources_of(request))
            self._allowed.add(key, account)

    def check_resources(self, ip: str, request: RemotingCommand, needed: Resources) -> None:
        """Raises AclError if the request's account lacks one of these rights; the request was
        validated before, by this table or by the one before it."""
        if self.white_addresses.matches(ip):
            return
        access_key = request.ext_fields.get(ACCESS_KEY, "")
        account = self.accounts.get(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key:.{_SHOWN}}")
        if not account.white_addresses.matches(ip):
            _check_resources(account, needed)


def _not_signed(request: RemotingCommand) -> AclError:
    return AclError(f"Check signature failed for accessKey={request.ext_fields.get(ACCESS_KEY)}")


def _check_resources(account: Account, resources: Resources) -> None:
    """Every account may send traces; an admin has all permissions unless it has explicit ones. The
    broker's own topics hold everybody's messages: there no default counts, but an admin's."""
    if resources.get(TRACE_TOPIC) == Permission.PUB:
        return
    if account.admin and not account.permissions:
        return
    for resource, needed in resources.items():
        default = (
            account.default_group_permission
            if is_group(resource)
            else account.default_topic_permission
        )
        if needed == Permission.SUB and not account.admin and is_internal_topic(resource):
            default = Permission.DENY
        if not suffices(account.permissions.get(resource, default), needed):
            raise AclError(f"No default permission for {shown(resource)}")
