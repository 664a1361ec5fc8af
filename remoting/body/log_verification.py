"""How whole a broker's commit log is: bodies of VERIFY_LOG and of GET_LOG_DIGESTS with pieces,
requests of this broker's own. Pure data, any thread. Offsets in bytes, times in wall clock ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaComparison(JsonBean):
    """The log compared with one other broker's: [begin_offset, end_offset), chunk by chunk."""

    broker_id: Int64
    broker_addr: str
    begin_offset: Int64 = 0
    end_offset: Int64 = 0
    compared_bytes: Int64 = 0
    equal_chunks: Int64 = 0
    different_chunks: Int64 = 0
    """With other bytes on both sides when the comparison had ended: not the repaired ones."""
    damaged_chunks: Int64 = 0
    """In which either side has records that do not pass their own checks."""
    repaired_chunks: Int64 = 0
    """Of this broker, from that one."""
    missing_chunks: Int64 = 0
    """Of which the other one has no digest: not read there yet, or deleted."""
    first_difference: Int64 | None = None
    """Where the first of the different chunks starts."""
    error: str | None = None
    """Why the rest was not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerification(JsonBean):
    """Numbers count passes and comparisons since the process that makes them started."""

    begin_offset: Int64 = 0
    closed_end: Int64 = 0
    """Files that end here or before are closed: they are what is read."""
    position: Int64 = 0
    """Of the pass that is under way."""
    pass_number: Int64 = 0
    passes_ended: Int64 = 0
    """Number of the last one."""
    pass_ended_timestamp: Int64 = 0
    unread_repairs: Int64 = 0
    """Repaired files that have to be read again."""
    damaged_ranges: Int64 = 0
    """Found by the scrub since the broker started."""
    repaired_ranges: Int64 = 0
    """Since the broker started."""
    fenced_ranges: Int64 = 0
    """Which cannot be read now."""
    changed_chunks: Int64 = 0
    """Whose bytes are not those that were read first, though each record passes its checks."""
    comparison_number: Int64 = 0
    comparisons_ended: Int64 = 0
    comparison_seconds: float = 0.0
    comparison_error: str | None = None
    replicas: list[ReplicaComparison] = field(default_factory=list)
    """By the last comparison that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceDigests(JsonBean):
    """Digests of the pieces of one chunk, in order."""

    piece_size: Int64
    digests: list[str] = field(default_factory=list)
