"""AclTable: the accounts and white addresses of all files, and the verdict on a request.

A frozen value, replaced whole by PlainPermissionManager; any thread asks. Order of the checks,
codes and words are those of PlainPermissionManager.validate of the original; the remark names the
original's exception, as its brokers answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.acl.access_resources import Resources
from broker.acl.access_table import AccessRow, Who
from broker.acl.permission import Permission, is_group, shown, suffices
from broker.acl.plain_acl_file import Account
from broker.topic.system_topics import TRACE_TOPIC
from remoting.address_patterns import NOBODY, AddressPatterns
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY, is_signed_with

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"
_SHOWN: Final = 100
"""Characters of a name that nobody has checked."""


class AclError(RequestError):
    """The request is not allowed; answered SYSTEM_ERROR with the original's words."""

    def __init__(self, text: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{EXCEPTION}: {text}")


@dataclass(frozen=True, slots=True)
class AclTable:
    """Who is known. `white_addresses`: from there everything is allowed, unsigned."""

    white_addresses: AddressPatterns = NOBODY
    accounts: Mapping[str, Account] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nobody can be let in."""
        return not self.accounts and self.white_addresses == NOBODY

    def validate(self, ip: str, request: RemotingCommand, row: AccessRow) -> None:
        """Raises AclError, and RequestError for a body that cannot be read."""
        if self.white_addresses.matches(ip):
            return
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise AclError("No accessKey is configured")
        account = self.accounts.get(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key:.{_SHOWN}}")
        if account.white_addresses.matches(ip):
            return
        if not is_signed_with(account.secret_key, request):
            raise AclError(f"Check signature failed for accessKey={access_key}")
        if row.who is Who.ADMIN and not account.admin:
            raise AclError(
                f"Need admin permission for request code={request.code}, but accessKey="
                f"{access_key} is not"
            )
        if row.resources_of is not None:
            _check_resources(account, row.resources_of(request))


def _check_resources(account: Account, resources: Resources) -> None:
    """Traces may be sent by every account; an admin without rights of its own has all of them."""
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
        if not suffices(account.permissions.get(resource, default), needed):
            raise AclError(f"No default permission for {shown(resource)}")
