"""PlainAclFile: one file of accounts (conf/plain_acl.yml, conf/acl/*.yml), read and written.

Converts between text and values; any thread. Errors name file and line. Scalars are kept as
written: secretKey: 12345678 is read as text. A file is rewritten as a whole, so comments are lost,
as in RocketMQ (Java: AclUtils, PlainAccessConfig). Format:

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import yaml

from broker.acl.permission import PERMISSIONS, Permission, parse_permission
from broker.topic.system_topics import retry_topic
from conf.errors import ConfigError
from remoting.address_patterns import AddressPatterns, parse_pattern
from remoting.body.data_version import DataVersion

log = logging.getLogger(__name__)

MIN_KEY_LENGTH: Final = 6
"""Access and secret keys must be longer than this."""

_TRUE: Final = frozenset({"true", "yes", "on", "y", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "n", "0", ""})
ValueT = TypeVar("ValueT")


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


def parse_plain_acl(text: str, name: str) -> PlainAclFile:
    """The values of a file named `name` in errors; an empty text is a file without accounts.

    Raises ConfigError: no YAML, an unknown key, a value of the wrong kind. Accounts are checked by
    `build_account`.
    """
    root = _compose(text, name)
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return PlainAclFile()
    place = _Place(name)
    values = place.members(root, _FILE_KEYS, "the file")
    return PlainAclFile(
        white_addresses=tuple(values.get("globalWhiteRemoteAddresses", ())),
        accounts=tuple(values.get("accounts", ())),
        data_version=next(iter(values.get("dataVersion", ())), None),
    )


def _compose(text: str, name: str) -> yaml.Node | None:
    """Nodes keep their line numbers; no object is constructed, so YAML tags are harmless."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([f"{name}{line}: not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{name}: not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{name}: nested too deeply"]) from error


@dataclass(frozen=True, slots=True)
class _Place:
    """Reads nodes of the file `name`; every error names the node's line."""

    name: str

    def wrong(self, node: yaml.Node, problem: str) -> ConfigError:
        return ConfigError([f"{self.source(node)}: {problem}"])

    def source(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def scalar(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(node, f"{what}: expected a single plain value")
        is_null = node.tag == "tag:yaml.org,2002:null"
        return "" if is_null else str(node.value).strip()

    def boolean(self, node: yaml.Node, what: str) -> bool:
        word = self.scalar(node, what).lower()
        if word not in _TRUE | _FALSE:
            raise self.wrong(node, f"{what} = {word}: expected true or false")
        return word in _TRUE

    def number(self, node: yaml.Node, what: str) -> int:
        word = self.scalar(node, what)
        if not (word.isascii() and word.isdigit()):
            raise self.wrong(node, f"{what} = {word}: expected a whole number")
        return int(word)

    def items(
        self, node: yaml.Node, what: str, read: Callable[[yaml.Node], ValueT]
    ) -> Iterator[ValueT]:
        """The items of a list; an empty value is an empty list."""
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield read(item)
        elif not isinstance(node, yaml.ScalarNode) or self.scalar(node, what):
            raise self.wrong(node, f"{what}: expected a list (lines starting with '- ')")

    def members(
        self, node: yaml.Node, keys: Mapping[str, Callable[[_Place, yaml.Node, str], Any]], of: str
    ) -> dict[str, Any]:
        """The members of a mapping; unknown and duplicate keys are errors."""
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(node, f"{of}: expected lines of the form 'key: value'")
        values: dict[str, Any] = {}
        for key_node, value in node.value:
            key = self.scalar(key_node, "a key")
            if key not in keys:
                known = ", ".join(keys)
                raise self.wrong(key_node, f"unknown key {key!r}; expected one of {known}")
            if key in values:
                raise self.wrong(key_node, f"{key} appears twice in {of}; keep one of the two")
            values[key] = keys[key](self, value, key)
        return values

    def texts(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        return tuple(self.items(node, what, lambda item: self.scalar(item, what)))

    def addresses(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        """Validates global addresses; those of an account are validated with the account."""

        def read(item: yaml.Node) -> str:
            text = self.scalar(item, what)
            try:
                parse_pattern(text)
            except ValueError as error:
                raise self.wrong(item, f"{what}: {error}") from error
            return text

        return tuple(self.items(node, what, read))

    def accounts(self, node: yaml.Node, what: str) -> tuple[PlainAccessConfig, ...]:
        return tuple(self.items(node, what, self.account))

    def account(self, node: yaml.Node) -> PlainAccessConfig:
        values = self.members(node, _ACCOUNT_KEYS, "an account")
        return PlainAccessConfig(
            access_key=values.get("accessKey", ""),
            secret_key=values.get("secretKey", ""),
            white_remote_address=values.get("whiteRemoteAddress", ""),
            admin=values.get("admin", False),
            default_topic_perm=values.get("defaultTopicPerm", ""),
            default_group_perm=values.get("defaultGroupPerm", ""),
            topic_perms=values.get("topicPerms", ()),
            group_perms=values.get("groupPerms", ()),
            source=self.source(node),
        )

    def versions(self, node: yaml.Node, what: str) -> tuple[DataVersion, ...]:
        return tuple(self.items(node, what, self.version))

    def version(self, node: yaml.Node) -> DataVersion:
        values = self.members(node, _VERSION_KEYS, "dataVersion")
        return DataVersion(
            counter=values.get("counter", 0),
            timestamp=values.get("timestamp", 0),
            state_version=values.get("stateVersion"),
        )


_FILE_KEYS: Final = {
    "globalWhiteRemoteAddresses": _Place.addresses,
    "accounts": _Place.accounts,
    "dataVersion": _Place.versions,
}
_ACCOUNT_KEYS: Final = {
    "accessKey": _Place.scalar,
    "secretKey": _Place.scalar,
    "whiteRemoteAddress": _Place.scalar,
    "admin": _Place.boolean,
    "defaultTopicPerm": _Place.scalar,
    "defaultGroupPerm": _Place.scalar,
    "topicPerms": _Place.texts,
    "groupPerms": _Place.texts,
}
_VERSION_KEYS: Final = {
    "counter": _Place.number,
    "timestamp": _Place.number,
    "stateVersion": _Place.number,
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
