"""Tag expressions: parses `TagA || TagB` into the set of hash codes stored in the consumequeue.

Pure; used on the loop thread of `remoting`. Consumers filter again by the tag's text, since two
tags may share a hash code. Follows FilterAPI.buildSubscriptionData of RocketMQ.

Tested by tests/broker/filter/test_subscription_filter.py.
"""

from __future__ import annotations

from typing import Final

from remoting.body.heartbeat import SubscriptionData
from store.java_hash import string_hash

_CACHE_LIMIT: Final = 10_000
_MOST_CHARACTERS: Final = 1 << 20
"""Of all expressions that are kept: with their codes up to 30 bytes each."""
_MOST_CODES: Final = 1 << 18
"""Of all subscriptions that are kept, some 16 MiB."""
MOST_KEPT: Final = 4_096
"""Characters of an expression that is kept beyond the pull that brings it: a longer one is not, so
that a peer cannot exhaust memory."""


def parse_tag_expression(expression: str | None) -> frozenset[int] | None:
    """The hash codes of an expression; None for "everything" (empty text or `*`).

    Raises ValueError for a text with only bars, as RocketMQ does.
    """
    if not expression or expression == "*":
        return None
    pieces = expression.split("||")
    if not any(pieces):
        raise ValueError("subString split error")
    tags = [piece.strip() for piece in pieces]
    return frozenset(string_hash(tag) for tag in tags if tag)


def tag_code(tags: int) -> int:
    """The int32 that tag filters compare (the low half of a consumequeue unit's int64)."""
    low = tags & 0xFFFFFFFF
    return low - (1 << 32) if low & 0x80000000 else low


class TagExpressions:
    """Cache of parsed expressions, since a consumer sends the same one with every pull."""

    def __init__(self) -> None:
        self._parsed: dict[str | None, frozenset[int] | None] = {}
        self._characters = 0

    def codes(self, expression: str | None) -> frozenset[int] | None:
        """The hash codes of `expression`; None for everything. Raises ValueError if it is
        invalid."""
        try:
            return self._parsed[expression]
        except KeyError:
            codes = parse_tag_expression(expression)
            size = len(expression or "")
            if size > MOST_KEPT:
                return codes
            if len(self._parsed) >= _CACHE_LIMIT or self._characters + size > _MOST_CHARACTERS:
                self._parsed.clear()
                self._characters = 0
            self._parsed[expression] = codes
            self._characters += size
            return codes


class SubscribedCodes:
    """The codes that consumers name in their heartbeats, as sets: made once of each subscription,
    as a group's pulls ask for them again and again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[SubscriptionData, frozenset[int]]] = {}
        self._count = 0
        """Codes of those."""

    def codes(self, group: str, subscription: SubscriptionData) -> frozenset[int]:
        """Those of the group's subscription."""
        key = group, subscription.topic
        kept = self._kept.get(key)
        if kept is not None:
            if kept[0] is subscription:
                return kept[1]
            self._count -= len(kept[1])
            del self._kept[key]
        codes = frozenset(subscription.code_set)
        if len(self._kept) >= _CACHE_LIMIT or self._count + len(codes) > _MOST_CODES:
            self._kept.clear()
            self._count = 0
        if len(codes) <= _MOST_CODES:
            self._kept[key] = subscription, codes
            self._count += len(codes)
        return codes
