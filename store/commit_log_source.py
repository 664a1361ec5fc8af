"""CommitLogSource: what a reader of the commit log needs: where it is readable, and its bytes.

A Protocol, fulfilled by CommitLogReader; any thread, each with a source of its own. It knows no
records.
"""

from __future__ import annotations

from typing import Protocol

from store.log_fences import LogFences


class CommitLogSource(Protocol):
    """The readable part of the log: [min_phy_offset, max_phy_offset)."""

    file_size: int

    @property
    def min_phy_offset(self) -> int:
        """The first byte that still exists."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """The byte after the last published one."""
        ...

    @property
    def fences(self) -> LogFences:
        """The ranges in which nothing can be read."""
        ...

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        """The whole file that holds `phy_offset`, lent; None when it was deleted. Raises
        StoreError: it cannot be opened."""
        ...
