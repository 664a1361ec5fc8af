"""Divergence: why a slave's log is not a prefix of its master's, and what would repair it.

Pure: HAClient asks after each inspection of the master, before it connects and while a link is
open. It knows no files and no sockets; the repair is done to a closed store
(store/replica_resync.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ha.inspection import Inspection, Verdict
from ha.refusals import RefusalReason

_REASONS: Final = {
    Verdict.AHEAD: RefusalReason.AHEAD,
    Verdict.DIVERGED: RefusalReason.DIVERGED,
}


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Our log's bytes: [min_phy_offset, max_phy_offset)."""

    min_phy_offset: int
    max_phy_offset: int
    is_empty: bool
    """No byte was ever written: the log may start anywhere."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What to request of the closed store."""

    action: str
    """"start_over" (offset: the master's minimum) or "truncate" (offset: the new end)."""
    offset: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """One finding. `text` describes it."""

    reason: RefusalReason
    text: str
    repair: Repair

    @property
    def loses_data(self) -> bool:
        """Whether the repair gives up bytes that the master lacks: only with
        haTruncateDiverged."""
        return self.reason is not RefusalReason.BEHIND_MASTER_MIN


def find_divergence(found: Inspection, own: LogEnds) -> Divergence | None:
    """Why our log is not a prefix of the master's; None when it is, or when that is unknown."""
    start = find_missing_start(found, own)
    if start is not None:
        return Divergence(
            RefusalReason.BEHIND_MASTER_MIN,
            f"our log ends at {own.max_phy_offset}, the master's starts at {start}: the bytes "
            "between were deleted there",
            Repair("start_over", start),
        )
    reason = _REASONS.get(found.verdict)
    if reason is None:
        return None
    common = found.common_offset
    repair = Repair("truncate", common)
    if common <= own.min_phy_offset:
        repair = Repair("start_over", found.master_min)
    return Divergence(
        reason,
        f"our log ends at {own.max_phy_offset}, the master's at {found.master_max}; the last "
        f"common record ends at {common}" + (f" ({found.text})" if found.text else ""),
        repair,
    )


def find_missing_start(found: Inspection, own: LogEnds) -> int | None:
    """Where the master's log starts, when that is beyond our end; else None."""
    if found.verdict is Verdict.BELOW_MIN:
        return found.master_min
    if found.verdict is Verdict.START_AT and not own.is_empty:
        return found.start_offset if found.start_offset > own.max_phy_offset else None
    return None
