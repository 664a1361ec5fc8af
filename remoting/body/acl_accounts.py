"""A broker's accounts of 4.9 without their secrets: body of GET_BROKER_CLUSTER_ACL_CONFIG. Pure
data, any thread.

Older releases of RocketMQ answer with the secrets, 4.9.8 and 5.3.3 not at all; whoever decodes
with `msgspec.json.decode(body, type=AclAccounts)` has none in either case. Java:
GetBrokerClusterAclConfigResponseBody, PlainAccessConfig.

Tested by tests/broker/admin/test_admin_acl_processor.py.
"""

from __future__ import annotations

import msgspec


class AclAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One account; texts as an operator wrote them."""

    access_key: str
    white_remote_address: str | None = None
    """From there it needs no signature."""
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    """name=PERM."""
    group_perms: list[str] | None = None


class AclAccounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to GET_BROKER_CLUSTER_ACL_CONFIG."""

    global_white_addrs: list[str] | None = None
    """Peers that may do everything, unsigned."""
    plain_access_configs: list[AclAccount] | None = None
