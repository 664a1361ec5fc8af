"""AuthMigrator: users and ACLs made of the accounts in plain_acl.yml (migrateAuthFromV1Enabled).

Runs once at each start, before the broker serves. An account whose name is a user already is left
alone, so nothing is done twice. Java: AuthMigrator. The files are read as with aclEnable; white
addresses have no counterpart and are named in a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.acl.plain_acl_file import PlainAccessConfig
from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager
from broker.auth.policy import Acl, Action, Decision, Policy, PolicyEntry, PolicyType
from broker.auth.resource import (
    Resource,
    ResourcePattern,
    ResourceType,
    group_resource,
    topic_resource,
)
from broker.auth.user import User, UserType
from remoting.errors import RequestError

if TYPE_CHECKING:
    from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager

log = logging.getLogger(__name__)

_DENY: Final = "DENY"
_ACTIONS: Final = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}


def migrate(
    accounts: Iterable[PlainAccessConfig],
    users: AuthenticationMetadataManager,
    acls: AuthorizationMetadataManager,
) -> None:
    """Make a user and an ACL of each account that is no user yet; one that fails is logged."""
    for account in accounts:
        name = account.access_key
        if users.find_user(name) is not None:
            continue
        user_type = UserType.SUPER if account.admin else UserType.NORMAL
        acl = Acl(name, acl_policies(account))
        try:
            users.create_user(User(username=name, password=account.secret_key, user_type=user_type))
            if acl.policies:
                acls.update_acl(acl)
        except RequestError as error:
            log.error("account %s: not taken over from plain_acl.yml: %s", name, error.remark)
            continue
        log.info("account %s: taken over from plain_acl.yml as a %s user", name, user_type)
        for text in (*account.topic_perms, *account.group_perms):
            if _named(text, group=False) is None:
                log.warning("account %s: skipped %s, which is not a right on one name", name, text)
        if account.white_remote_address:
            log.warning("account %s: its whiteRemoteAddress no longer has an effect", name)


def acl_policies(account: PlainAccessConfig) -> tuple[Policy, ...]:
    """Rights on named topics and groups as CUSTOM, the defaults as DEFAULT policy."""
    custom = [
        *(_named(text, group=False) for text in account.topic_perms),
        *(_named(text, group=True) for text in account.group_perms),
    ]
    named = tuple(entry for entry in custom if entry is not None)
    defaults = tuple(
        _entry(Resource(kind, None, ResourcePattern.ANY), permission.strip())
        for kind, permission in (
            (ResourceType.TOPIC, account.default_topic_perm),
            (ResourceType.GROUP, account.default_group_perm),
        )
        if permission.strip()
    )
    policies = (Policy(PolicyType.CUSTOM, named), Policy(PolicyType.DEFAULT, defaults))
    return tuple(policy for policy in policies if policy.entries)


def _named(text: str, *, group: bool) -> PolicyEntry | None:
    """ "orders=PUB|SUB"; None for another form, and for a name with an asterisk: 4.9 takes it as
    the name of one topic, which no topic can have, an ACL that is read again as a prefix."""
    parts = [part for part in text.split("=") if part]
    if len(parts) != 2 or "*" in parts[0]:
        return None
    name, permission = (part.strip() for part in parts)
    return _entry(group_resource(name) if group else topic_resource(name), permission)


def _entry(resource: Resource, permission: str) -> PolicyEntry:
    decision = Decision.DENY if permission == _DENY else Decision.ALLOW
    # RocketMQ makes of an unknown word, which 4.9 takes as DENY, the right to do everything.
    if permission != _DENY and permission not in _ACTIONS:
        decision = Decision.DENY
    return PolicyEntry(
        resource=resource, actions=_ACTIONS.get(permission, (Action.ALL,)), decision=decision
    )
