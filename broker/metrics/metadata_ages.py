"""MetadataAges: how old a slave's copies of its master's metadata are, and how old they became.

Pure: times are arguments. Who copies leaves the wall clock's time of the last success in the
control page (when it asked). That is read once for each success, and is no earlier than the one
before. From then on the monotonic clock counts: a wall clock that is set makes nothing younger or
older. Owned by: the thread that takes the snapshots of the dump.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.slave.sync_kind import SyncKind


class Ages(NamedTuple):
    """Ms. `largest`: since the last line that was written, an upper bound."""

    now: int
    largest: int


@dataclass(frozen=True, slots=True)
class _Success:
    """`stamp_ms`: what the page says; `mono_ms`: the same moment, monotonic."""

    stamp_ms: int
    mono_ms: int


class MetadataAges:
    """See the module."""

    def __init__(self) -> None:
        self._seen: dict[SyncKind, _Success] = {}
        self._written: dict[SyncKind, _Success] = {}
        """The last success of each kind: as the last look saw it, and as that did whose line was
        written."""

    def written(self) -> None:
        """The line of the last look was written."""
        self._written = dict(self._seen)

    def look(self, kind: SyncKind, stamp_ms: int, now_ms: int, mono_ms: int) -> Ages | None:
        """`stamp_ms`: wall clock of the last success, 0 without one, and then None is returned;
        `now_ms` and `mono_ms`: both clocks now."""
        if not stamp_ms:
            return None
        seen = self._seen.get(kind)
        if seen is None or seen.stamp_ms != stamp_ms:
            age_ms = max(now_ms - stamp_ms, 0)
            if seen is not None:  # What was copied later was asked for later.
                most_ms = mono_ms - seen.mono_ms
                age_ms = most_ms if stamp_ms > now_ms else min(age_ms, most_ms)
            seen = self._seen[kind] = _Success(stamp_ms, mono_ms - age_ms)
        age_ms = mono_ms - seen.mono_ms
        before = self._written.get(kind)
        if before is None:
            return Ages(age_ms, age_ms)
        # Just before a success, or now. Of several the time from the first to the last is a bound.
        return Ages(age_ms, max(age_ms, seen.mono_ms - before.mono_ms))
