"""SearchBudget: how many bytes a search for records may read for nothing.

Bytes may look like a record's head and be none, which only the CRC of a whole body tells. A client
may have sent a body full of such heads, each within the one before: were each of them read to its
end, what follows damage would be looked for in quadratic time. So there is an allowance, and beyond
it a record is not believed. Used by process `store` (record_search.py) and by Spark's executors
(spark/sources/log_scan.py), one thread each. It reads nothing.

Tested by tests/store/test_record_search.py.
"""

from __future__ import annotations

from typing import Final

FREE: Final = 64 << 20
A_BYTE: Final = 4
"""FREE bytes may be read for nothing, and A_BYTE more for each byte that was passed."""


class SearchBudget:
    """Of one search, or of all within one scan."""

    __slots__ = ("_spent", "_start")

    def __init__(self, start: int) -> None:
        """start: where the scan begins; positions count from there."""
        self._start = start
        self._spent = 0

    def allows(self, at: int, cost: int) -> bool:
        """Whether `cost` bytes may be read to judge what is at `at`."""
        return self._spent + cost <= FREE + A_BYTE * (at - self._start)

    def spend(self, cost: int) -> None:
        """They were no record's."""
        self._spent += cost
