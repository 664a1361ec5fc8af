"""A broker's disk: what a kill leaves, and what a loss of power may take away."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from broker.failover.identity import decode_identity
from broker.failover.member import Found
from ha.epoch_file import encode_epochs, read_epochs
from ha.epochs import CutStep, EpochList, TruncationPlan, recovered_bounds, resumed_truncation
from tests.simulation.judge import Record

TORN = (-1, -1)
"""Half a record: bytes that a recovery stops at."""


@dataclass
class Disk:
    """The files. Everything but the log is written durably or not at all."""

    cells: list[Record] = field(default_factory=list)
    """What recovery would walk over: may reach beyond the log's end."""
    synced: int = 0
    """Cells that a loss of power leaves alone."""
    epoch_file: bytes | None = None
    marker: int | None = None
    identity: bytes | None = None
    temporary: bytes | None = None
    confirm_offset: int = 0

    def lose_power(self, rng: random.Random) -> None:
        """What was not synced goes, or a part of it; its end may be torn."""
        kept = rng.randint(self.synced, max(self.synced, len(self.cells)))
        lost = kept < len(self.cells)
        del self.cells[kept:]
        if lost and rng.random() < 0.5:
            self.cells.append(TORN)

    def tear(self) -> None:
        """A kill in the middle of a record's copy."""
        self.cells.append(TORN)

    def take(self, at: int, record: Record) -> None:
        """A record's bytes at the log's end `at`."""
        self.cells[at : at + 1] = [record]

    def do_cut(self, step: CutStep, cut_to: int, epochs: EpochList) -> None:
        """One step of a cut."""
        if step is CutStep.WRITE_MARKER:
            self.marker = cut_to
        elif step is CutStep.WRITE_EPOCHS:
            self.epoch_file = encode_epochs(epochs)
        elif step is CutStep.ZERO_TAIL:
            del self.cells[cut_to:]
            self.synced = min(self.synced, cut_to)
        elif step is CutStep.REMOVE_MARKER:
            self.marker = None

    def cut_half_record(self) -> None:
        """The tail behind the last whole record is zeroed."""
        while self.cells and self.cells[-1] == TORN:
            self.cells.pop()

    def recover(self) -> list[Record]:
        """The whole records, from the beginning."""
        log = self.cells
        return list(log[: log.index(TORN)]) if TORN in log else list(log)

    def epochs(self) -> EpochList:
        """As the file says."""
        found = read_epochs(self.epoch_file, None)
        return EpochList() if found is None else found


@dataclass
class Recovered:
    """What a start makes of a disk."""

    log: list[Record]
    found: Found
    next_queue_offset: int


def recovered(disk: Disk, cluster_name: str, broker_name: str) -> Recovered:
    """Read everything, end a cut that was under way."""
    if disk.marker is not None:
        plan = resumed_truncation(disk.marker, disk.epochs())
        for step in plan.steps:
            disk.do_cut(step, plan.cut_to, plan.epochs)
    log = disk.recover()
    bounds = recovered_bounds(disk.confirm_offset, 0, len(log))

    def read(data: bytes | None) -> object:
        return None if data is None else decode_identity(data, cluster_name, broker_name)

    found = Found(
        read(disk.temporary),  # type: ignore[arg-type]
        read(disk.identity),  # type: ignore[arg-type]
        disk.epochs(),
        bounds.confirm_offset,
    )
    return Recovered(log, found, bounds.queue_offsets_to)


__all__ = ["TORN", "Disk", "Recovered", "TruncationPlan", "recovered"]
