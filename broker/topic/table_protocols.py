"""What processors need of the tables of topics and groups, and where they count what they store.

Types only, no behaviour: the composition root gives the managers or one method of theirs. Called
on the thread of the processor that was given them. Knows no request code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig

FindTopic = Callable[[str], TopicConfig | None]
"""The topic's configuration, None when it does not exist (TopicConfigManager.find)."""

FindGroup = Callable[[str], SubscriptionGroupConfig | None]
"""The group's configuration; created with defaults where that is allowed, else None
(SubscriptionGroupManager.find_or_create)."""


class OwnTopics(Protocol):
    """What is needed of TopicConfigManager for topics of the broker's own."""

    def create(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create or find a topic for the broker itself; None if that takes too long."""


class SentTopics(Protocol):
    """What is needed of TopicConfigManager for topics that clients send to."""

    def prepare_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit_mode: bool, remote: str
    ) -> TopicConfig:
        """Validate, and create where that is allowed. Raises RequestError."""


class PutStats(Protocol):
    """Where stored messages and the answers about them are counted (loop thread)."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """`count` messages, `size` bytes of the log, were stored in `topic`."""

    def add_timed_answer(
        self, request_code: int, code: int, came_ns: int, *, oneway: bool = False
    ) -> None:
        """A request received at `came_ns` is answered now, or dropped if it was oneway."""
