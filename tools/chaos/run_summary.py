"""What came of a seed, in a line; RunSummary: of many, as text for docs/durability.md and as JSON.

Pure, but for the versions, which are asked of this machine.
"""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from conf.installation import software_version
from tools.chaos.chaos_options import ChaosOptions, ChaosResult


@dataclass(slots=True)
class RunSummary:
    """Added up, seed by seed."""

    command: str
    flush: str
    replication: str
    ack_level: str
    seconds: float
    """Of load and faults, a seed."""
    first_seed: int
    seeds: int = 0
    seeds_held: int = 0
    sent: int = 0
    acknowledged: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    stored: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    """With their seeds."""
    slowest_recovery_s: float = 0.0
    slowest_rto_s: float = 0.0
    versions: dict[str, str] = field(default_factory=lambda: versions())

    @classmethod
    def of(cls, command: str, first_seed: int, options: ChaosOptions) -> RunSummary:
        """Of nothing yet."""
        return cls(
            command,
            options.flush,
            options.replication,
            options.ack_level,
            options.seconds,
            first_seed,
        )

    def add(self, result: ChaosResult) -> None:
        """Another seed."""
        self.seeds += 1
        self.seeds_held += not result.violations
        self.sent += result.sent
        self.acknowledged += result.acknowledged
        self.codes = dict(Counter(self.codes) + Counter(result.codes))
        self.stored += result.stored
        kinds = Counter(str(fault.kind) for fault in result.faults)
        self.faults = dict(Counter(self.faults) + kinds)
        self.violations += [f"seed {result.seed}: {text}" for text in result.violations]
        self.slowest_recovery_s = max(self.slowest_recovery_s, result.recovery_s)
        self.slowest_rto_s = max([self.slowest_rto_s, *result.rto_s])

    def text(self) -> list[str]:
        """Lines of Markdown."""
        faults = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.faults.items()))
        codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(self.codes.items()))
        promoted = (
            [f"- slowest promotion: SEND_OK after {self.slowest_rto_s:.1f} s"]
            if self.slowest_rto_s
            else []
        )
        return [
            f"- `{self.command}`",
            f"- {self.flush} flush, replication {self.replication}, haAckLevel={self.ack_level}: "
            f"{self.seeds_held} of {self.seeds} seeds held, from {self.first_seed} on, "
            f"{self.seconds:.0f} s of faults each",
            f"- faults: {sum(self.faults.values()):,} ({faults})",
            f"- sent {self.sent:,}, acknowledged {self.acknowledged:,} ({codes}), "
            f"stored {self.stored:,}",
            f"- violations: {len(self.violations)}",
            f"- slowest recovery: {self.slowest_recovery_s:.1f} s",
            *promoted,
            "- " + ", ".join(f"{name} {found}" for name, found in self.versions.items()),
            *(f"  - {text}" for text in self.violations),
        ]

    def as_json(self) -> dict[str, Any]:
        """The same."""
        return asdict(self)


def summary_line(result: ChaosResult) -> str:
    """One line about a seed."""
    codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(result.codes.items()))
    kinds = Counter(str(fault.kind) for fault in result.faults)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"seed {result.seed}: {result.verdict}; {result.sent:,} sent, {result.acknowledged:,} "
        f"acknowledged ({codes}), {result.stored:,} stored; {faults or 'no fault'}; {_lost(result)}"
        f"recovered in {result.recovery_s:.1f} s"
    )


def _lost(result: ChaosResult) -> str:
    """What power cuts took and might."""
    if not result.lost_to_power:
        return ""
    codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(result.lost_to_power.items()))
    return f"a power cut took, as it may, answers ({codes}); "


def versions() -> dict[str, str]:
    """Of what a run was made with."""
    return {
        "broker": software_version(),
        "Python": platform.python_version(),
        "kernel": platform.release(),
    }
