"""LmqSubscriptionGroupManager: the group table of a broker with light message queues (enableLmq).

Threads as SubscriptionGroupManager. A group named %LMQ%… always exists, with default settings; it
is in no table and no file, and cannot be changed. Corresponds to RocketMQ's
LmqSubscriptionGroupManager.
"""

from __future__ import annotations

from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from store.lmq_places import is_lmq


class LmqSubscriptionGroupManager(SubscriptionGroupManager):
    """See the module."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None if it does not exist."""
        found = super().find(group)
        if found is None and is_lmq(group):
            return SubscriptionGroupConfig(group_name=group)
        return found

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """A light group is not created: it exists."""
        return self.find(group) if is_lmq(group) else super().find_or_create(group)

    def update(self, *wanted: SubscriptionGroupConfig) -> bool:
        """Light groups stay as they are, which is no error (as in RocketMQ)."""
        return super().update(*(config for config in wanted if not is_lmq(config.group_name)))
