"""What a run on a group with controllers does, and what came of it. Plain values, any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tools.chaos.election_schedule import OF_ETCD, ElectionFault, plan_faults
from tools.chaos.judged_loads import SETTINGS
from tools.chaos.member_group import HEARTBEAT_TIMEOUT_S, GroupShape

SEEDS_A_GROUP: Final = 5
"""So many seeds, from one that this divides on, are run on one group; alone, a seed has its own."""
_FLUSHES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionOptions:
    """What a run does."""

    kinds: Sequence[ElectionFault]
    faults: int = 3
    """A seed."""
    rate: float = 2_400.0
    """Messages a second, of all producers."""
    producers: int = 5
    message_size: int = 200
    controllers: int = 1
    etcd_nodes: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    """Broker settings, applied over the group's."""

    def usable_kinds(self) -> list[ElectionFault]:
        """Those that this group can have."""
        return [kind for kind in self.kinds if self.etcd_nodes or kind not in OF_ETCD]

    def shape(self, seed: int) -> GroupShape:
        """Of the group of a seed; all seeds of a group have the same one."""
        flush = _FLUSHES[seed // SEEDS_A_GROUP % len(_FLUSHES)]
        return GroupShape(
            controllers=self.controllers,
            etcd_nodes=self.etcd_nodes,
            settings={"flushDiskType": flush, **SETTINGS, **self.settings},
            fills_disks=self._fills_disks(seed),
        )

    def _fills_disks(self, seed: int) -> bool:
        """Whether a seed of this one's group does."""
        first, kinds = seed // SEEDS_A_GROUP * SEEDS_A_GROUP, self.usable_kinds()
        return any(
            fault.kind is ElectionFault.FULL_DISK
            for each in range(first, first + SEEDS_A_GROUP)
            for fault in plan_faults(each, self.faults, kinds, HEARTBEAT_TIMEOUT_S)
        )


@dataclass(slots=True)
class FaultOutcome:
    """What came of a fault."""

    kind: ElectionFault
    planned: str
    """In words."""
    hit: str
    """Who was."""
    was_whole: bool
    """Whether all three brokers were in the SyncStateSet before."""
    begun_s: float
    """Since the run began, as all times here."""
    undone_s: float = 0.0
    """When what was hit began to be started and healed."""
    over_s: float = 0.0
    """When the next fault begins."""
    gap_s: float = 0.0
    """The longest time without a SEND_OK that began or lasted from the fault to its undoing."""
    later_gap_s: float = 0.0
    """The longest one after that, until the next fault."""
    has_elected: bool = False
    """Whether what was answered after the gap is of a later epoch."""


@dataclass(slots=True)
class ElectionResult:
    """What came of one seed; `violations` empty: every promise held."""

    seed: int
    flush: str
    faults: list[FaultOutcome] = field(default_factory=list)
    sent: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    """Answers by code; -1: none came."""
    rate: float = 0.0
    """SEND_OK a second, outside of the gaps of faults."""
    read: int = 0
    """Messages that consumers saw meanwhile."""
    stored: int = 0
    lost: int = 0
    """Of those answered SEND_OK: not at the place that the answer named."""
    doubled: int = 0
    """Messages that are stored more than once."""
    looked_at: int = 0
    """SEND_OK answers at which it was seen which brokers had the message."""
    epochs: int = 0
    """In which messages were answered."""
    mixed: list[str] = field(default_factory=list)
    """What came of the loads beside the producers."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One word or two."""
        return "held" if not self.violations else f"{len(self.violations)} violations"

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        return {**asdict(self), "verdict": self.verdict}
