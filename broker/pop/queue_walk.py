"""QueueWalk: in which order a pop looks into the queues of its topics.

Pure, any thread. A pop draws a number from 0 to 99. In the ordinary case it says whether the retry
topic comes first, and where the walk over the queues begins, so that each queue has its turn. Of a
topic of PRIORITY messages, as many percent of a group's pops as its priority.factor says begin at
the end where the most urgent ones are instead; the others as ever, so that a factor below 100 lets
no queue starve. The walk goes down in all topics, since 5.4: from a place that is drawn that makes
no difference.

Follows PopMessageProcessor of RocketMQ 5.5. Knows no message.

Tested by tests/broker/pop/test_queue_walk.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, Self

from broker.settings.broker_config import BrokerConfig


class QueueWalk(NamedTuple):
    """Of one pop."""

    start: int
    """What was drawn, or 0 for a pop that begins where the most urgent messages are."""
    retry_first: bool
    """The retry topic comes before the topic."""
    goes_down: bool
    """From the highest queue down, instead of from the lowest up."""

    @classmethod
    def of(cls, drawn: int, priority_factor: int, settings: BrokerConfig) -> Self:
        """drawn: 0 to 99. priority_factor: of the group, if the pop may go by priority; else 0."""
        by_priority = drawn < priority_factor
        retries = (
            settings.pop_from_retry_probability_for_priority
            if by_priority
            else settings.pop_from_retry_probability
        )
        start = 0 if by_priority else drawn
        return cls(start, drawn < retries, settings.priority_order_asc)

    def queues(self, count: int) -> Iterable[int]:
        """The ids of all queues of a topic, each once."""
        if count < 1:
            return ()
        if self.goes_down:
            first = (self.start - 1) % count
            return chain(range(first, -1, -1), range(count - 1, first, -1))
        first = self.start % count
        return chain(range(first, count), range(first))
