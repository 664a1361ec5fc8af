"""ElectionSummary: what came of many seeds on groups with controllers, as text and JSON. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tools.chaos.election_options import ElectionResult, FaultOutcome
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.member_group import HEARTBEAT_TIMEOUT_S
from tools.chaos.run_summary import versions

_SILENT_S: Final = HEARTBEAT_TIMEOUT_S + 2.0
AIMS_S: Final[Mapping[ElectionFault, float]] = {
    ElectionFault.KILL_MASTER: 1.0,
    ElectionFault.TAIL_KILL: 1.0,
    ElectionFault.KILL_PROCESS: 1.0,
    ElectionFault.STOP_MASTER: _SILENT_S,
    ElectionFault.STOP_PROCESS: _SILENT_S,
    ElectionFault.CUT_MASTER: _SILENT_S,
    ElectionFault.CUT_CONTROLLERS: _SILENT_S,
    ElectionFault.ELECT: 0.5,
}
"""What p99 of the time without a SEND_OK should be, where the fault took the master away and
everybody had been in the SyncStateSet: seconds."""


@dataclass(frozen=True, slots=True)
class GapRow:
    """Of one kind of fault, over all seeds."""

    kind: str
    faults: int
    elections: int
    """Faults that took the master away: another one was elected."""
    p50_s: float | None
    """Of the time without a SEND_OK at those; None: there was none."""
    p99_s: float | None
    most_s: float | None
    aim_s: float | None

    @property
    def meets_aim(self) -> bool:
        """Whether it does, or there is nothing to say."""
        return self.aim_s is None or self.p99_s is None or self.p99_s <= self.aim_s


@dataclass(slots=True)
class ElectionSummary:
    """Added up, seed by seed."""

    command: str
    first_seed: int
    seeds: int = 0
    seeds_held: int = 0
    sent: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    read: int = 0
    stored: int = 0
    lost: int = 0
    doubled: int = 0
    looked_at: int = 0
    violations: list[str] = field(default_factory=list)
    """With their seeds."""
    faults: list[FaultOutcome] = field(default_factory=list)
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=versions)

    def add(self, result: ElectionResult) -> None:
        """Another seed."""
        self.seeds += 1
        self.seeds_held += not result.violations
        self.sent += result.sent
        self.codes = dict(Counter(self.codes) + Counter(result.codes))
        self.read += result.read
        self.stored += result.stored
        self.lost += result.lost
        self.doubled += result.doubled
        self.looked_at += result.looked_at
        self.faults += result.faults
        self.seconds += result.seconds
        self.violations += [f"seed {result.seed}: {text}" for text in result.violations]

    def rows(self) -> list[GapRow]:
        """One a kind of fault that happened."""
        kinds = sorted({fault.kind for fault in self.faults})
        return [gap_row(kind, [f for f in self.faults if f.kind is kind]) for kind in kinds]

    def text(self) -> list[str]:
        """Lines of Markdown."""
        codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(self.codes.items()))
        return [
            f"- `{self.command}`",
            f"- {self.seeds_held} of {self.seeds} seeds held, from {self.first_seed} on; "
            f"{len(self.faults):,} faults in {self.seconds:,.0f} s",
            f"- sent {self.sent:,}, answers by code ({codes}; -1: none came), stored "
            f"{self.stored:,}, lost {self.lost:,}, stored twice {self.doubled:,}, read meanwhile "
            f"{self.read:,}; at {self.looked_at:,} SEND_OK the logs were looked at",
            f"- violations: {len(self.violations)}",
            "- " + ", ".join(f"{name} {found}" for name, found in self.versions.items()),
            *(f"  - {text}" for text in self.violations),
            "",
            *gap_table(self.rows()),
        ]

    def as_json(self) -> dict[str, Any]:
        """The same."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows()]}


def gap_row(kind: ElectionFault, faults: Sequence[FaultOutcome]) -> GapRow:
    """faults: all of that kind."""
    elections = [fault for fault in faults if fault.has_elected]
    clean = sorted(fault.gap_s for fault in elections if fault.was_whole)
    return GapRow(
        kind,
        len(faults),
        len(elections),
        percentile(clean, 0.5),
        percentile(clean, 0.99),
        clean[-1] if clean else None,
        AIMS_S.get(kind),
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest figure that so large a share of all does not exceed; None: there are none."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def gap_table(rows: Sequence[GapRow]) -> list[str]:
    """Lines of a table of Markdown."""
    head = "| fault | times | elections | p50 s | p99 s | most s | aim for p99 s |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for row in rows:
        aim = "" if row.aim_s is None else f"{row.aim_s:g}{'' if row.meets_aim else ', missed'}"
        figures = " | ".join(
            "" if figure is None else f"{figure:.2f}"
            for figure in (row.p50_s, row.p99_s, row.most_s)
        )
        lines.append(f"| {row.kind} | {row.faults} | {row.elections} | {figures} | {aim} |")
    return lines


def result_line(result: ElectionResult) -> str:
    """One line about a seed."""
    codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(result.codes.items()))
    faults = ", ".join(f"{fault.kind} {fault.gap_s:.2f} s" for fault in result.faults)
    return (
        f"seed {result.seed}: {result.verdict}; {result.flush}; {result.sent:,} sent ({codes}), "
        f"{result.stored:,} stored, {result.rate:,.0f}/s; {faults}; {result.epochs} epochs; "
        f"{result.seconds:.0f} s"
    )
