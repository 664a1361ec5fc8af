"""What processors look up in the tables of topics and groups, and where they count what they store.

Types only, no behaviour: the composition root gives one method of the managers. Called on the
thread of the processor that was given them. Knows no request code.
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


class PutStats(Protocol):
    """What wings below `metrics` count with on the loop: HotPathStats."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """`count` messages, `size` bytes of the log, were stored in `topic`."""

    def add_scheduled_get(self, queue_id: int, size: int) -> None:
        """A message of the schedule topic's queue was delivered."""

    def add_timer_delivered(self, topic: str) -> None:
        """A timer message for `topic` was delivered, or put off within the timers."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""

    def add_timed_answer(
        self, request_code: int, code: int, came_ns: int, *, oneway: bool = False
    ) -> None:
        """A request received at `came_ns` is answered now, or dropped if it was oneway."""
