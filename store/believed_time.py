"""BelievedTime: what may lie behind damage in the commit log was not stored before it.

Used by process `store`: by recovery (main thread) and by the scrub thread, each with one of its
own. Whole records that a Java broker cut off, and whose bytes it left behind the log's end, are
told from records of the log by their age: they are older than what was written after the cut. But
no check covers the times in a record, and one that is damaged upwards must not make all that follow
look old. So the time in a record is believed as far as something beside it says the same, the time
at which the message was born, or the record before; and not at all when it has not come yet. Where
that leaves too little, an old record comes back; too much would cost whole records.

Tested by tests/store/test_recovery.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from store.message_codec import Buffer, read_born_timestamp, read_store_timestamp

WITNESSES: Final = 16
"""So many records before damage say how old what follows may be; some may be of messages that were
born long before, delayed ones and retries."""
_CLOCKS_DIFFER_MS: Final = 86_400_000


class BelievedTime:
    """`ms`: 0 before the first record."""

    def __init__(self, now_ms: int) -> None:
        """now_ms: the wall clock."""
        self.ms = 0
        self._latest_ms = now_ms + _CLOCKS_DIFFER_MS

    def note(self, view: Buffer, positions: Iterable[int]) -> None:
        """These good records follow, the last WITNESSES of them at least."""
        for position in positions:
            stored_ms = read_store_timestamp(view, position)
            if stored_ms <= self._latest_ms:
                self.ms = min(stored_ms, max(self.ms, read_born_timestamp(view, position)))
