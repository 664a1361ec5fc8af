"""MessageFilter: whether a stored message matches, by the properties in its record.

Called on the loop thread for each message that such a pull examines. Data that cannot be parsed as
a record is delivered as if there were no filter; the consumer's own checks handle it. Follows
ExpressionMessageFilter and ExpressionForRetryMessageFilter of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.filter.selector import Selector
from store.errors import RecordDamagedError
from store.message_codec import read_properties
from store.message_properties import parse_properties

RETRY_TOPIC_PROPERTY: Final = "RETRY_TOPIC"
"""The topic of a message before it was moved to its group's retry topic."""


class MessageFilter(Protocol):
    """The filter of one pull."""

    def matches(self, view: memoryview, position: int) -> bool:
        """Whether the message whose record starts at `position` of `view` matches."""


class ExpressionMessageFilter:
    """One expression for every message."""

    def __init__(self, selector: Selector) -> None:
        self.selector: Final = selector

    def matches(self, view: memoryview, position: int) -> bool:
        """MessageFilter."""
        properties = _properties(view, position)
        return properties is None or self.selector.matches(properties)


class ExpressionForRetryMessageFilter:
    """For a retry topic: applies the group's expression for the message's original topic.

    A message of a topic without such an expression matches.
    """

    def __init__(self, selectors: ConsumerFilterManager, group: str) -> None:
        self._selectors = selectors
        self._group = group

    def matches(self, view: memoryview, position: int) -> bool:
        """MessageFilter."""
        properties = _properties(view, position)
        if properties is None:
            return True
        topic = properties.get(RETRY_TOPIC_PROPERTY, "")
        selector = self._selectors.find_selector(topic, self._group)
        return selector is None or selector.matches(properties)


def _properties(view: memoryview, position: int) -> Mapping[str, str] | None:
    """The record's properties; None if it is not a valid record."""
    try:
        return parse_properties(read_properties(view, position).decode("utf-8", "replace"))
    except RecordDamagedError:
        return None
