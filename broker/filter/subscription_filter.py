"""Tag expressions: `TagA || TagB` to the set of hash codes that the consumequeue holds.

Pure; used on the loop thread of `remoting`. Consumers filter once more by the tag's text, since
two tags may share a code. Follows FilterAPI.buildSubscriptionData of the original.
"""

from __future__ import annotations

from typing import Final

from store.java_hash import string_hash

_CACHE_LIMIT: Final = 10_000
_CACHED_LENGTH: Final = 4_096


def parse_tag_expression(expression: str | None) -> frozenset[int] | None:
    """The codes of an expression; None for "everything" (empty text or `*`).

    Raises ValueError for a text of bars only, as the original does.
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
    """Parsed expressions by their text: a consumer sends the same one with every pull. Very long
    texts are parsed each time, so that a peer cannot fill the memory with them."""

    def __init__(self) -> None:
        self._parsed: dict[str | None, frozenset[int] | None] = {}

    def codes(self, expression: str | None) -> frozenset[int] | None:
        """The codes of `expression`; None for everything. ValueError: it cannot be parsed."""
        try:
            return self._parsed[expression]
        except KeyError:
            codes = parse_tag_expression(expression)
            if expression is not None and len(expression) > _CACHED_LENGTH:
                return codes
            if len(self._parsed) >= _CACHE_LIMIT:
                self._parsed.clear()
            self._parsed[expression] = codes
            return codes
