"""LiteLifecycleManager: which lite topics there are, and how they end.

A lite topic begins with its first message. It ends with its parent, or when it has had no message
for the parent's lite.topic.expiration, consumed or not. With it go the offsets of the groups that
are bound to the parent, what is out of it, and its subscriptions. Every broker of a group ends its
own, a slave too. The table is written on the loop thread; `look` runs on the scheduled executor,
reads the time of a lite topic's last message once in its life span, and deletes through process
`store`; a send that comes at that moment keeps it. Follows LiteLifecycleManager of RocketMQ 5.5.

Tested by tests/broker/lite/test_lite_lifecycle_manager.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from broker.lite.lite_metadata_util import expiration_minutes, find_lite_group
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from broker.topic.table_protocols import FindGroup, FindTopic
from ipc.command_channel import CommandError
from remoting.lite_names import parse_lite_queue

log = logging.getLogger(__name__)

_MINUTE_MS: Final = 60_000
_GROUPS_KEPT_MS: Final = 1_000
"""The list of a parent's groups: many lite topics may end together."""
_NEW: Final = 0
"""The time of a lite topic's last message is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleParts:
    """What it asks of others."""

    find_topic: FindTopic
    find_group: FindGroup
    """Of known groups; makes none."""
    group_names: Callable[[], list[str]]
    queue_names: Callable[[], Iterable[str]]
    """Of every queue that there is, or was."""
    last_time_ms: Callable[[str], int]
    """When a light queue's last message was stored; -1: it has none any more."""
    queue_end: Callable[[str], int]
    """As the log's writer, or on a slave the queue table, knows it."""
    delete_unless: Callable[[str, Callable[[], bool]], None]
    """StoreCommands.delete_unless."""
    registry: LiteSubscriptionRegistry
    queues: LiteQueues
    wake_group: Callable[[str], None]
    """Run the group's waiting pops again."""
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread, in a later turn."""
    now_ms: Callable[[], int]
    min_ttl_ms: Callable[[], int]
    """minLiteTTl."""


class LiteLifecycleManager:
    """See the module."""

    def __init__(self, parts: LifecycleParts) -> None:
        self._parts = parts
        self._since_ms = parts.now_ms()
        self._lite_topics: dict[str, dict[str, int]] = {}
        """Light queues by parent, and when their last message was stored, as far as is known."""
        self._groups: dict[str, tuple[int, list[str]]] = {}
        """Groups of a parent, and when they were looked for."""

    # -- which there are -----------------------------------------------------------------------

    def load(self) -> None:
        """Take up those that exist."""
        for name in self._parts.queue_names():
            self.made(name)

    def made(self, name: str) -> None:
        """A light queue has its first message, or another one."""
        found = parse_lite_queue(name)
        if found is not None:
            self._lite_topics.setdefault(found.parent, {}).setdefault(name, _NEW)

    def lite_topics(self, parent: str) -> list[str]:
        """The light queues of a parent. Any thread."""
        return list(self._lite_topics.get(parent, ()))

    def count(self, parent: str) -> int:
        """How many lite topics a parent has. Any thread."""
        return len(self._lite_topics.get(parent, ()))

    def parents(self) -> list[str]:
        """Topics that have lite topics. Any thread."""
        return list(self._lite_topics)

    def groups_of(self, parent: str) -> list[str]:
        """The groups that are bound to a parent. Any thread."""
        now_ms = self._parts.now_ms()
        looked_ms, groups = self._groups.get(parent, (-_GROUPS_KEPT_MS, []))
        if not 0 <= now_ms - looked_ms < _GROUPS_KEPT_MS:
            groups = [name for name in self._parts.group_names() if self._is_bound(name, parent)]
            self._groups = {parent: (now_ms, groups)}
        return groups

    def _is_bound(self, name: str, parent: str) -> bool:
        group = find_lite_group(self._parts.find_group(name))
        return group is not None and group.topic == parent

    # -- how they end --------------------------------------------------------------------------

    def ended(self, name: str) -> None:
        """The queues of a topic were deleted: if it was a lite one, nothing of it stays. Any
        thread."""
        found = parse_lite_queue(name)
        if found is None:
            return
        groups = self.groups_of(found.parent)

        def forget() -> None:
            lite_topics = self._lite_topics.get(found.parent, {})
            lite_topics.pop(name, None)
            if not lite_topics:
                self._lite_topics.pop(found.parent, None)
            self._parts.registry.remove_lmq(found.parent, name)
            for group in groups:
                self._parts.queues.forget(group, name)

        self._parts.on_loop(forget)

    def end_group(self, group: str, parent: str) -> None:
        """A lite group was deleted: its clients, and where it stood. Any thread."""

        def forget() -> None:
            clients = self._parts.registry.find_group(parent, group)
            if clients is not None:
                for client in list(clients.clients.values()):
                    self._parts.registry.drop(client)
            for name in self.lite_topics(parent):
                self._parts.queues.forget(group, name)
            self._parts.wake_group(group)

        self._parts.on_loop(forget)

    def look(self) -> None:
        """End the lite topics that are over; the scheduled executor."""
        self.load()  # Nobody tells a slave of those that begin.
        if self._parts.now_ms() - self._since_ms < self._parts.min_ttl_ms():
            return
        for parent in self.parents():
            minutes = expiration_minutes(self._parts.find_topic(parent))
            if minutes > 0:
                self._look_at(parent, max(minutes * _MINUTE_MS, self._parts.min_ttl_ms()))

    def _look_at(self, parent: str, ttl_ms: int) -> None:
        known = self._lite_topics.get(parent, {})
        for name, last_ms in list(known.items()):
            if last_ms + ttl_ms > self._parts.now_ms():
                continue
            end = self._parts.queue_end(name)
            if not end:
                continue  # Its first message is on the way, or it has ended.
            last_ms = self._parts.last_time_ms(name)
            if last_ms + ttl_ms > self._parts.now_ms():
                known[name] = last_ms
            else:
                self._end(name, end)

    def _end(self, name: str, end: int) -> None:
        """Unless a message has come meanwhile."""
        try:
            self._parts.delete_unless(name, lambda: self._parts.queue_end(name) != end)
        except (CommandError, OSError) as error:
            log.warning("lite topic %s is over, but could not be deleted: %s", name, error)
