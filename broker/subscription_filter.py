"""Tag expressions: `TagA || TagB` to the set of hash codes that the consumequeue holds.

Pure; used on the loop thread of `remoting`. Consumers filter once more by the tag's text, since
two tags may share a code. Follows FilterAPI.buildSubscriptionData of the original.
"""

from __future__ import annotations

from typing import Final

from store.java_hash import string_hash

_CACHE_LIMIT: Final = 10_000


def parse_tag_expression(expression: str | None) -> frozenset[int] | None:
    """The codes of an expression; None for "everything" (empty text or `*`)."""
    text = (expression or "").strip()
    if text in ("", "*"):
        return None
    tags = [tag.strip() for tag in text.split("||")]
    return frozenset(string_hash(tag) for tag in tags if tag)


class TagExpressions:
    """Parsed expressions by their text: a consumer sends the same one with every pull."""

    def __init__(self) -> None:
        self._parsed: dict[str | None, frozenset[int] | None] = {}

    def codes(self, expression: str | None) -> frozenset[int] | None:
        """The codes of `expression`; None for everything."""
        try:
            return self._parsed[expression]
        except KeyError:
            if len(self._parsed) >= _CACHE_LIMIT:
                self._parsed.clear()
            codes = self._parsed[expression] = parse_tag_expression(expression)
            return codes
