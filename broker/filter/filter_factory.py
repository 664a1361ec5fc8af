"""FilterFactory: compiles filter expressions by type and text, each text once.

Used by the pull processor on the loop thread and by heartbeats in pool threads, with one instance
each. Knows which filter types exist besides tags. Follows FilterFactory of RocketMQ.
"""

from __future__ import annotations

import importlib
import threading
from typing import Final

from broker.filter.selector import InvalidSelectorError, Selector

TAG: Final = "TAG"
SQL92: Final = "SQL92"
_CACHED_CHARACTERS: Final = 262_144
"""Total length of cached expressions, so that a peer that sends ever new ones cannot exhaust
memory."""


def prepare_to_compile() -> None:
    """Import what compiles an expression; the first one does it, if nobody has before."""
    importlib.import_module("broker.filter.selector_parser")


def is_tag_type(kind: str | None) -> bool:
    """Whether a subscription of this type filters by tags."""
    return not kind or kind == TAG


class FilterFactory:
    """Compiled expressions, and the errors of invalid ones, by text. `_lock` guards cache updates;
    lookups and compiling take no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Selector | InvalidSelectorError] = {}
        self._characters = 0

    def compile(self, kind: str, text: str | None) -> Selector:
        """Compile the filter of a subscription. Raises InvalidSelectorError."""
        if kind != SQL92:
            raise InvalidSelectorError(f"unknown filter type {kind}, use {TAG} or {SQL92}")
        found = self._known.get(text or "")
        if found is None:
            found = self._remember(text or "")
        if isinstance(found, InvalidSelectorError):
            # A copy, since raising the same exception twice would accumulate tracebacks.
            raise InvalidSelectorError(*found.args)
        return found

    def _remember(self, text: str) -> Selector | InvalidSelectorError:
        found: Selector | InvalidSelectorError
        try:
            found = _compile(text)
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


def _compile(text: str) -> Selector:
    from broker.filter.selector_parser import compile_selector

    return compile_selector(text)
