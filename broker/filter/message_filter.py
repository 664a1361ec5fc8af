"""MessageFilter: whether a stored message is wanted, judged by the properties in its record.

Called on the loop thread for each message that a pull of such a subscription looks at. What cannot
be read as a record is given out as without a filter: the consumer's checks judge it. Follows
ExpressionMessageFilter and ExpressionForRetryMessageFilter of the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from broker.filter.selector_parser import Selector
from store.errors import RecordDamagedError
from store.message_codec import read_properties
from store.message_properties import parse_properties

RETRY_TOPIC_PROPERTY: Final = "RETRY_TOPIC"
"""Where a message was before it came to its group's retry topic."""


class MessageFilter(Protocol):
    """Of one pull."""

    def matches(self, view: memoryview, position: int) -> bool:
        """Whether the message whose record starts at `position` of `view` is wanted."""


class Selectors(Protocol):
    """What is needed of ConsumerFilterManager."""

    def find_selector(self, topic: str, group: str) -> Selector | None:
        """The group's compiled expression for `topic`, None without one."""


class ExpressionMessageFilter:
    """One expression for every message."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def matches(self, view: memoryview, position: int) -> bool:
        """MessageFilter."""
        properties = _properties(view, position)
        return properties is None or self._selector.matches(properties)


class ExpressionForRetryMessageFilter:
    """For a retry topic: the expression that its group has for the topic the message came from.

    A message of a topic without such an expression is wanted.
    """

    def __init__(self, selectors: Selectors, group: str) -> None:
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
    """The record's properties, None when it is none."""
    try:
        return parse_properties(read_properties(view, position).decode("utf-8", "replace"))
    except RecordDamagedError:
        return None
