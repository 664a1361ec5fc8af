"""PlainAclFile: one file of accounts (conf/plain_acl.yml, conf/acl/*.yml), and how it is written.

Values; any thread. plain_acl_text.py reads them. A file is rewritten as a whole, so comments are
lost, as in RocketMQ (Java: AclUtils, PlainAccessConfig). Format:

    globalWhiteRemoteAddresses:      peers that may do everything, unsigned
      - 10.10.103.*
    accounts:
      - accessKey: RocketMQ          more than 6 characters, both keys
        secretKey: 12345678
        whiteRemoteAddress:          from there this account may do everything, unsigned
        admin: false
        defaultTopicPerm: DENY       DENY, PUB, SUB, PUB|SUB
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY]    a list of name=PERM
        groupPerms: [groupA=SUB]
    dataVersion:                     raised by requests 50, 51 and 53
      - counter: 1
        timestamp: 1700000000000     milliseconds
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker.acl.permission import PERMISSIONS, Permission, parse_permission
from broker.topic.system_topics import retry_topic
from conf.errors import ConfigError
from remoting.address_patterns import AddressPatterns, parse_pattern
from remoting.body.data_version import DataVersion

log = logging.getLogger(__name__)

MIN_KEY_LENGTH: Final = 6
"""Access and secret keys must be longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAccessConfig:
    """One account as written (Java: PlainAccessConfig). `source`: "file:line", or who sent the
    request."""

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: str = ""
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One validated account (Java: PlainAccessResource). `permissions` is keyed by topic, and by
    retry topic for groups."""

    access_key: str
    secret_key: bytes = field(repr=False)
    white_addresses: AddressPatterns
    admin: bool
    default_topic_permission: Permission
    default_group_permission: Permission
    permissions: Mapping[str, Permission]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAclFile:
    """The contents of one file. `data_version` is None if the file has none."""

    white_addresses: tuple[str, ...] = ()
    accounts: tuple[PlainAccessConfig, ...] = ()
    data_version: DataVersion | None = None

    def dump(self) -> str:
        """Serialize these values."""
        # Here: few brokers have such files, and what is imported stays.
        import yaml

        tree: dict[str, Any] = {"globalWhiteRemoteAddresses": list(self.white_addresses)}
        tree["accounts"] = [_account_tree(account) for account in self.accounts]
        if self.data_version is not None:
            version = self.data_version
            tree["dataVersion"] = [{"counter": version.counter, "timestamp": version.timestamp}]
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _account_tree(account: PlainAccessConfig) -> dict[str, Any]:
    return {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": list(account.topic_perms),
        "groupPerms": list(account.group_perms),
    }


def build_account(config: PlainAccessConfig) -> Account:
    """Validate an account. An unknown permission word means DENY and is logged. Raises ConfigError
    naming the source and the fix."""
    wrong = functools.partial(_wrong_account, config)
    if min(len(config.access_key), len(config.secret_key)) <= MIN_KEY_LENGTH:
        raise wrong(
            f"accessKey and secretKey are required and must be longer than {MIN_KEY_LENGTH} "
            "characters"
        )
    try:
        white = parse_pattern(config.white_remote_address)
    except ValueError as error:
        raise wrong(f"whiteRemoteAddress: {error}") from error
    permissions: dict[str, Permission] = {}
    for entry in config.group_perms:
        name, permission = _permission_entry(entry, "groupPerms", wrong)
        permissions[retry_topic(name)] = permission
    for entry in config.topic_perms:
        name, permission = _permission_entry(entry, "topicPerms", wrong)
        permissions[name] = permission
    _warn_of_words(config)
    return Account(
        access_key=config.access_key,
        secret_key=config.secret_key.encode(),
        white_addresses=white,
        admin=config.admin,
        default_topic_permission=parse_permission(config.default_topic_perm),
        default_group_permission=parse_permission(config.default_group_perm),
        permissions=permissions,
    )


def _wrong_account(config: PlainAccessConfig, problem: str) -> ConfigError:
    return ConfigError([f"{config.source}: account {config.access_key or '?'}: {problem}"])


def split_permission(entry: str) -> tuple[str, str] | None:
    """Name and permission word of "name=PERM"; None for any other form."""
    parts = [part.strip() for part in entry.split("=") if part]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _permission_entry(
    entry: str, key: str, wrong: Callable[[str], ConfigError]
) -> tuple[str, Permission]:
    parts = split_permission(entry)
    if parts is None:
        raise wrong(f"{key}: {entry!r}: expected name=PERM, for example topicA=PUB|SUB")
    return parts[0], parse_permission(parts[1])


def _warn_of_words(config: PlainAccessConfig) -> None:
    entries = (split_permission(entry) for entry in (*config.topic_perms, *config.group_perms))
    words = [parts[1] for parts in entries if parts is not None]
    for word in (config.default_topic_perm, config.default_group_perm, *words):
        if word and word not in PERMISSIONS:
            log.warning(
                "%s: account %s: unknown permission %r treated as DENY (expected one of %s)",
                config.source,
                config.access_key,
                word,
                ", ".join(PERMISSIONS),
            )
