"""UnitMarks: rewrites consumequeue units so that a pull by properties can run as one by tags.

Runs on the loop thread, before the pull's own loop, and only for subscriptions that filter by
properties. A unit keeps its position and size; its tags code becomes 1 for a matching message and 0
otherwise, so that the loop for tags also serves these pulls. It stops when the requested number of
matches is found, or after SCAN_LIMIT_MS; the pull response then tells the client how far it got.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.filter.message_filter import MessageFilter
from broker.filter.subscription_filter import tag_code
from store.commit_log_reader import CommitLogReader
from store.put_aside import ReadBy, RecordGuard
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

SCAN_LIMIT_MS: Final = 5
"""Bounded, because the loop serves nothing else meanwhile."""
MARKED_CODES: Final = frozenset({1})
"""The tag codes for the pull's loop over rewritten units."""


class UnitMarks:
    """See the module. Owned by: the loop thread."""

    def __init__(self, log: CommitLogReader, monotonic_ms: Callable[[], int]) -> None:
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._guard = RecordGuard(ReadBy.FILTER)

    def mark(
        self,
        raw: bytes,
        codes: frozenset[int] | None,
        wanted: MessageFilter,
        count: int,
        is_right: Callable[[int, int, int], bool],
    ) -> bytes:
        """Rewrite the first units of `raw`, at least one. `codes`: tags that must also match.

        A unit without a record is marked as matching: the pull's loop handles it. Those whose
        record is read are checked by is_right(number in raw, phy_offset, size) before; the units
        end before a wrong one.
        """
        file_size = self._log.file_size
        stop_at = self._monotonic_ms() + SCAN_LIMIT_MS
        found = 0
        marked = bytearray()
        for number, (phy, length, tags) in enumerate(CQ_UNIT.iter_unpack(raw)):
            is_wanted = codes is None or tag_code(tags) in codes
            if is_wanted:
                if not is_right(number, phy, length):
                    break
                view = None if length == PRE_BLANK_SIZE else self._log.view_of_file(phy)
                is_wanted = view is None or self._matches(wanted, view, phy, phy % file_size)
                found += is_wanted
            marked += CQ_UNIT.pack(phy, length, is_wanted)
            if found >= count or self._monotonic_ms() >= stop_at:
                break
        return bytes(marked)

    def _matches(self, wanted: MessageFilter, view: memoryview, phy: int, position: int) -> bool:
        """A record that raises is delivered: what cannot be judged is not withheld."""
        with self._guard.of(phy):
            return wanted.matches(view, position)
        return True
