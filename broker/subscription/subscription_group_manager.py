"""SubscriptionGroupManager: the settings of consumer groups (200, 201, 207, 353).

Stored in config/subscriptionGroup.json. `find` is on the hot path: a dict lookup without a lock;
configs are frozen and replaced as a whole. Changed under `_lock` by the loop (a pull of an unknown
group) and pool threads (heartbeats, admin). Groups are not registered with name servers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import VersionedConfigManager
from broker.settings.broker_config import BrokerConfig
from broker.subscription.group_attributes import altered_of_group
from broker.topic.system_topics import SYSTEM_GROUPS, is_system_group
from ipc.clock import Clock
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.resource_names import is_legal_group

log = logging.getLogger(__name__)

_READING: Final = 1 << 2
"""The bit of a topic in the forbidden table that denies a group to read it."""


class SubscriptionGroupManager(VersionedConfigManager):
    """Group table and its DataVersion."""

    def __init__(self, path: Path, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(path, clock)
        self.config = config
        """Replaced whole when a setting changes."""
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._forbidden: Mapping[str, Mapping[str, int]] | None = None
        """group -> topic -> bits; replaced whole. None until a 5.x broker or 353 made it."""
        self._deleted: set[str] = set()
        """Groups that were deleted here since this process began."""

    # -- reads ----------------------------------------------------------------------------------

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None if it does not exist."""
        return self._table.get(group)

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; created with defaults where that is allowed, else None (as in
        5.x for a name that a group may not have)."""
        found = self._table.get(group)
        if found is not None:
            return found
        if not is_legal_group(group):
            return None
        if not (self.config.auto_create_subscription_group or is_system_group(group)):
            return None
        with self._lock:
            found = self._table.get(group)
            if found is not None:
                return found
            made = self._table[group] = SubscriptionGroupConfig(group_name=group)
            self._next_version()
        log.info("group %s: created with defaults", group)
        self.save_soon()
        return made

    def find_or_put_back(self, group: str) -> SubscriptionGroupConfig | None:
        """The group whose popped messages wait for their revival; None if it was deleted here. One
        that is missing otherwise was made after the last copy of this table, and its master was
        lost: it is made anew, as nobody else gives its messages out again."""
        if group not in self._table and group not in self._deleted and self.restore([group]):
            log.error(
                "group %s: is not in the table of this broker, but messages that were popped belong"
                " to it: put back with defaults. Lost are its own settings: set them by mqadmin "
                "updateSubGroup; if it was deleted, delete it again",
                ascii(group)[1:-1],
            )
        return self._table.get(group)

    def group_names(self) -> list[str]:
        """Every group."""
        return list(self._table.copy())

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether no operator has forbidden the group to read the topic (353)."""
        forbidden = self._forbidden
        if not forbidden:
            return True
        return not max(0, forbidden.get(group, {}).get(topic, 0)) & _READING

    def wrapper(self) -> SubscriptionGroupWrapper:
        """A consistent pair of table and data version: the body of 201."""
        with self._lock:
            return SubscriptionGroupWrapper(
                data_version=self._data_version,
                subscription_group_table=self._table.copy(),
                forbidden_table=_plain(self._forbidden),
            )

    # -- changes --------------------------------------------------------------------------------

    def update(self, *wanted: SubscriptionGroupConfig) -> bool:
        """Create or replace groups (200, 225); False if not saved yet.

        Their attributes are signed changes to those of each group (group_attributes). Raises
        RequestError, in which case no group is changed.
        """
        with self._lock:
            old = [self._table.get(config.group_name) for config in wanted]
            new = [_altered(*pair) for pair in zip(old, wanted, strict=True)]
            for config in new:
                self._table[config.group_name] = config
                self._next_version()
        for before, config in zip(old, new, strict=True):
            log.info("group %s: old %s, new %s", config.group_name, before, config)
        self.mark_changed()
        return self.save_if_changed()

    def update_readable(self, group: str, topic: str, readable: bool) -> bool:
        """Let the group read the topic, or forbid it (353); False if that is not saved yet.

        Unlike RocketMQ, which forgets all that is forbidden to the group when it may read one of
        the topics again, only this topic is changed.
        """
        with self._lock:
            table = _plain(self._forbidden) or {}
            bits = max(0, table.get(group, {}).get(topic, 0))
            bits = bits & ~_READING if readable else bits | _READING
            topics = table.setdefault(group, {})
            topics[topic] = bits
            if not bits:
                del topics[topic]
            if not topics:
                del table[group]
            self._forbidden = table
            self._next_version()
        log.info("group %s: topic %s is %s", group, topic, "readable" if readable else "forbidden")
        self.mark_changed()
        return self.save_if_changed()

    def delete(self, group: str) -> bool:
        """Delete a group (207); False if that is not saved yet. An unknown group is only logged."""
        with self._lock:
            old = self._table.pop(group, None)
            if self._forbidden and group in self._forbidden:
                self._forbidden = {k: v for k, v in self._forbidden.items() if k != group}
            if old is not None:
                self._deleted.add(group)
                self._next_version()
        if old is None:
            log.warning("group %s: not deleted, it does not exist", group)
            return True
        log.info("group %s: deleted %s", group, old)
        self.mark_changed()
        return self.save_if_changed()

    def disable_consume(self, group: str) -> None:
        """Reject the pulls of a group that reads too slowly (protectBroker)."""
        with self._lock:
            old = self._table.get(group)
            if old is None or not old.consume_enable:
                return
            self._table[group] = replace(old, consume_enable=False)
            self._next_version()
        log.warning("group %s: consumption is disabled now", group)
        self.save_soon()

    def replace_all(self, wrapper: SubscriptionGroupWrapper) -> set[str]:
        """Replace table and data version by the master's (201) if they differ; returns the removed
        groups.

        Done in one step, as for topics; groups that every broker creates at its start are kept.
        Marks the change; the caller saves (save_if_changed).
        """
        with self._lock:
            old = self._table
            new = dict(wrapper.subscription_group_table)
            for name in SYSTEM_GROUPS:
                if name in old:
                    new.setdefault(name, old[name])
            if (new, wrapper.forbidden_table, wrapper.data_version) == (
                old,
                self._forbidden,
                self._data_version,
            ):
                return set()
            self._table = new
            self._forbidden = wrapper.forbidden_table
            self._data_version = wrapper.data_version
            vanished = old.keys() - new.keys()
        log.info(
            "groups: %s copied from the master, data version %s; removed: %s",
            len(wrapper.subscription_group_table),
            wrapper.data_version.counter,
            sorted(vanished) or "none",
        )
        self.mark_changed()
        return vanished

    def restore(self, names: Iterable[str]) -> list[str]:
        """Add the groups that the table lacks, with defaults, under any name; a start does so when
        the file was lost. Returns their names."""
        with self._lock:
            made = [name for name in names if name not in self._table]
            self._table.update({name: SubscriptionGroupConfig(group_name=name) for name in made})
            self._next_version()
        self.save_soon()
        return made

    # -- file -----------------------------------------------------------------------------------

    def decode(self, value: dict[str, Any]) -> None:
        """Merge the file's groups over the built-in ones; the forbiddenTable of 5.x is kept."""
        if value.get("subscriptionGroupTable") is None:
            raise ValueError("has no subscriptionGroupTable")
        wrapper = SubscriptionGroupWrapper.from_json(value)
        with self._lock:
            self._table.update(wrapper.subscription_group_table)
            self._forbidden = wrapper.forbidden_table
            self._data_version = wrapper.data_version

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        return self.wrapper().to_json()


def _plain(
    forbidden: Mapping[str, Mapping[str, int]] | None,
) -> dict[str, dict[str, int]] | None:
    """A copy that nobody else has; None for a table that no 5.x broker and no 353 has made."""
    if forbidden is None:
        return None
    return {group: dict(topics) for group, topics in forbidden.items()}


def _altered(
    old: SubscriptionGroupConfig | None, wanted: SubscriptionGroupConfig
) -> SubscriptionGroupConfig:
    """`wanted` with its changes applied to the group's attributes."""
    if not wanted.attributes:
        return replace(wanted, attributes=old.attributes or wanted.attributes) if old else wanted
    current = None if old is None else old.attributes or {}
    return replace(wanted, attributes=altered_of_group(current, wanted.attributes))
