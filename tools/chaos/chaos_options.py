"""What a run of mqchaos does, and what came of it. Plain values, any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.chaos.schedule import DISK_FAULTS, Fault, FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What a run does."""

    seconds: float
    kinds: Sequence[FaultKind]
    flush: str
    """"async" or "sync": flushDiskType."""
    replication: str
    """"none" (no slave), "async" or "sync"."""
    ack_level: str
    """haAckLevel: received, validated or flushed."""
    rate: float
    slaves: int = 1
    """With replication; each on an address of its own."""
    producers: int = 4
    message_size: int = 200
    settings: Mapping[str, object] = field(default_factory=dict)
    """Broker settings, applied over the run's."""
    in_sync: int | None = None
    """inSyncReplicas of a SYNC_MASTER; None: every broker, but two where slaves are promoted."""
    delayed_rate: float = 20.0
    """Delayed messages a second, beside the others."""

    accounts: bool | None = None
    """Whether access control is on, and rights change; None: with every second seed."""

    def has_accounts(self, seed: int) -> bool:
        """Whether this seed has."""
        return seed % 2 == 1 if self.accounts is None else self.accounts

    @property
    def has_slave(self) -> bool:
        """Whether there is one."""
        return self.replication != "none"

    @property
    def in_sync_replicas(self) -> int:
        """How many brokers have what is answered SEND_OK."""
        if self.replication != "sync":
            return 1
        return self.in_sync or (2 if self.promotes else self.slaves + 1)

    @property
    def promotes(self) -> bool:
        """Whether slaves may become masters."""
        return FaultKind.PROMOTE in self.kinds

    @property
    def breaks_disks(self) -> bool:
        """Whether disks misbehave."""
        return not DISK_FAULTS.isdisjoint(self.kinds)

    def check(self) -> None:
        """Raises ValueError: this cannot be run."""
        if self.breaks_disks and self.has_slave and self.slaves > 1:
            raise ValueError(
                "disk faults are for one slave: what a power cut may cost is judged for a pair; "
                f"leave out {', '.join(sorted(DISK_FAULTS))}"
            )
        if self.in_sync is not None and not 2 <= self.in_sync <= self.slaves + 1:
            raise ValueError(
                f"in_sync is {self.in_sync}: it counts the master, and there are "
                f"{self.slaves + 1} brokers"
            )
        if self.promotes and self.replication != "sync":
            raise ValueError("promote needs --replication sync: nothing else promises its outcome")


@dataclass(slots=True)
class ChaosResult:
    """What came of one seed; `violations` empty: every promise held."""

    seed: int
    faults: list[Fault]
    sent: int = 0
    acknowledged: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    recovery_s: float = 0.0
    flipped: int = 0
    delayed: str = ""
    """What came of the delayed messages of a soak."""
    mixed: list[str] = field(default_factory=list)
    """What came of the loads beside the producers."""
    looked_at: int = 0
    """SEND_OK answers at which it was seen which brokers had the message."""
    dishonest: int = 0
    """Those at which too few had it."""
    looked_up: int = 0
    """Messages that were looked for by keys and offset id."""
    rto_s: list[float] = field(default_factory=list)
    """Of each promotion: from the kill of the master to SEND_OK."""
    refused_promotions: int = 0
    lost_to_power: dict[int, int] = field(default_factory=dict)
    """Answers by code whose messages a power cut took, and might (docs/durability.md)."""
    gaps: int = 0
    """Queue offsets that are stepped over: damage that a cut, or a torn tail, left."""
    violations: list[str] = field(default_factory=list)
    acks_a_bin: list[int] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One word or two."""
        return "held" if not self.violations else f"{len(self.violations)} violations"

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        return {**asdict(self), "verdict": self.verdict}
