"""Selector: a compiled filter expression, and the error of a text that is none.

Any thread. Apart from selector_parser.py, since every broker asks selectors, while few ever compile
one: the grammar and the library that reads it are imported by the first text.

Tested by tests/broker/filter/test_selector_parser.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.filter.selector_values import NotComparable

if TYPE_CHECKING:
    from broker.filter.selector_nodes import Evaluate


class InvalidSelectorError(ValueError):
    """The text is not a valid expression; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression."""

    evaluate: Evaluate
    ignored: str
    """The start of ignored text after the expression, or empty."""
    names: tuple[str, ...]
    """The properties that it names: nothing else of a message matters."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties matches. Never raises: an unknown result or
        values that cannot be compared do not match."""
        try:
            return self.evaluate(properties.get) is True
        except NotComparable:
            return False
