"""FilterFactory: from an expression's type and text to its compiled form, each text compiled once.

Used by the pull processor on the loop thread and by heartbeats in pool threads, an instance each.
Knows which types of filters there are besides tags. Follows FilterFactory of the original.
"""

from __future__ import annotations

import threading
from typing import Final

from broker.filter.selector_parser import InvalidSelectorError, Selector, compile_selector

TAG: Final = "TAG"
SQL92: Final = "SQL92"
_CACHED_CHARACTERS: Final = 262_144
"""Text that is kept compiled; a peer with ever new expressions must not fill the memory."""


def is_tag_type(kind: str | None) -> bool:
    """Whether a subscription of this type filters by tags."""
    return not kind or kind == TAG


class FilterFactory:
    """Compiled expressions, and what was wrong with the others, by their text. Owned by: `_lock`
    for what is kept; lookups and compiling take none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Selector | InvalidSelectorError] = {}
        self._characters = 0

    def compile(self, kind: str, text: str | None) -> Selector:
        """The filter that a subscription asks for. Raises InvalidSelectorError."""
        if kind != SQL92:
            raise InvalidSelectorError(f"filters of type {kind} are unknown, use {TAG} or {SQL92}")
        found = self._known.get(text or "")
        if found is None:
            found = self._remember(text or "")
        if isinstance(found, InvalidSelectorError):
            # A new one: an exception that is raised twice keeps both tracebacks.
            raise InvalidSelectorError(*found.args)
        return found

    def _remember(self, text: str) -> Selector | InvalidSelectorError:
        found: Selector | InvalidSelectorError
        try:
            found = compile_selector(text)
        except InvalidSelectorError as error:
            found = error.with_traceback(None)
            found.__cause__ = None
        cost = max(len(text), 64)
        if cost > _CACHED_CHARACTERS:
            return found
        with self._lock:
            if self._characters + cost > _CACHED_CHARACTERS:
                self._known.clear()
                self._characters = 0
            if text not in self._known:
                self._known[text] = found
                self._characters += cost
        return found
