"""parse_plain_acl: the text of a file of accounts as values (plain_acl_file.py has the format).

Any thread. Errors name file and line. Scalars are kept as written: secretKey: 12345678 is read as
text. Imported by the first file that there is to read: few brokers have one.

Tested by tests/broker/acl/test_plain_acl_file.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml

from broker.acl.plain_acl_file import PlainAccessConfig, PlainAclFile
from conf.errors import ConfigError
from conf.yaml_nodes import compose_yaml, scalar_text
from remoting.address_patterns import parse_pattern
from remoting.body.data_version import DataVersion

_TRUE: Final = frozenset({"true", "yes", "on", "y", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "n", "0", ""})
ValueT = TypeVar("ValueT")


def parse_plain_acl(text: str, name: str) -> PlainAclFile:
    """The values of a file named `name` in errors; an empty text is a file without accounts.

    Raises ConfigError: no YAML, an unknown key, a value of the wrong kind. Accounts are checked by
    `build_account`.
    """
    root = compose_yaml(text, name)
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return PlainAclFile()
    place = _Place(name)
    values = place.members(root, _FILE_KEYS, "the file")
    return PlainAclFile(
        white_addresses=tuple(values.get("globalWhiteRemoteAddresses", ())),
        accounts=tuple(values.get("accounts", ())),
        data_version=next(iter(values.get("dataVersion", ())), None),
    )


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
        return scalar_text(node)

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
