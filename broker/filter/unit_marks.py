"""UnitMarks: consumequeue units rewritten so that a pull by properties reads like one by tags.

Runs on the loop thread, before the pull's own loop, and only for subscriptions that filter by
properties. A unit keeps its place and size; its tags code becomes 1 for a message that is wanted
and 0 for one that is not, so that the loop that serves tags serves these, too. It stops when as
many as asked for are found, or after SCAN_LIMIT_MS: the pull is then answered with how far it got.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.filter.message_filter import MessageFilter
from broker.filter.subscription_filter import tag_code
from store.consume_queue import CQ_UNIT, PRE_BLANK_SIZE

SCAN_LIMIT_MS: Final = 5
"""Nobody else is served by the loop meanwhile."""
MARKED_CODES: Final = frozenset({1})
"""The tag codes to give the pull's loop for rewritten units."""


class LogViews(Protocol):
    """What is needed of the mapped commit log."""

    file_size: int

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        """The whole file that holds `phy_offset`; None when it is gone."""


class UnitMarks:
    """See the module. Owned by: the loop thread."""

    def __init__(self, log: LogViews, monotonic_ms: Callable[[], int]) -> None:
        self._log = log
        self._monotonic_ms = monotonic_ms

    def mark(
        self, raw: bytes, codes: frozenset[int] | None, wanted: MessageFilter, count: int
    ) -> bytes:
        """The first units of `raw`, at least one, rewritten. `codes`: tags that must match, too.

        What has no record (any more) stays marked as wanted: the pull's loop finds out.
        """
        file_size = self._log.file_size
        stop_at = self._monotonic_ms() + SCAN_LIMIT_MS
        found = 0
        marked = bytearray()
        for phy, length, tags in CQ_UNIT.iter_unpack(raw):
            is_wanted = codes is None or tag_code(tags) in codes
            if is_wanted:
                view = None if length == PRE_BLANK_SIZE else self._log.view_of_file(phy)
                is_wanted = view is None or wanted.matches(view, phy % file_size)
                found += is_wanted
            marked += CQ_UNIT.pack(phy, length, is_wanted)
            if found >= count or self._monotonic_ms() >= stop_at:
                break
        return bytes(marked)
