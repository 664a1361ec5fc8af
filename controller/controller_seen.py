"""ControllerSeen: a controller at one moment, for /metrics and /readyz; and why it is not ready.

Values and pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from controller.election import Liveness
from controller.group_state import GroupState

STORE_HANGS_MS: Final = 3_000
"""As long as brokers wait for an answer."""
_LEADER, _FOLLOWER, _CANDIDATE = 3, 2, 1
"""5.3.3's numbers of roles."""


class GroupRow(NamedTuple):
    """One group in numbers."""

    cluster_name: str
    broker_name: str
    master_id: int
    """0: none."""
    is_without_master: bool
    """No master, or a dead one, in a group that had one, or has a living broker."""
    master_epoch: int
    sync_state_set_epoch: int
    sync_state_set_size: int
    brokers: int
    alive: int


class StoreSeen(NamedTuple):
    """How the store does."""

    trouble: str = ""
    """Why the last write or read failed; empty: it did not."""
    busy_ms: int = 0
    """How long the call under way has lasted."""


class ControllerSeen(NamedTuple):
    """See the module."""

    is_leader: bool = False
    leader_address: str = ""
    """Of another controller that leads; empty: none is known."""
    leadership_trouble: str = ""
    """Why none can be found."""
    is_stopping: bool = False
    warm_up_ms: int = 0
    """How long nobody is taken for dead yet."""
    waiting: int = 0
    """Requests."""
    store: StoreSeen = StoreSeen()
    groups: tuple[GroupRow, ...] = ()

    @property
    def role(self) -> int:
        """As in 5.3.3."""
        if self.is_leader:
            return _LEADER
        return _FOLLOWER if self.leader_address else _CANDIDATE

    @property
    def why_not_ready(self) -> str:
        """Why this controller is of no use to brokers now; empty: it is. Another one that leads
        makes a follower ready: it says who."""
        if self.is_stopping:
            return "stopping"
        if not self.is_leader:
            reason = self.leadership_trouble or "nobody has the lease"
            return "" if self.leader_address else f"no controller is known to lead: {reason}"
        if self.store.trouble:
            return f"the store fails, nothing changes until it works: {self.store.trouble}"
        if self.store.busy_ms >= STORE_HANGS_MS:
            return f"the store has not answered for {self.store.busy_ms / 1000:.0f} s"
        if self.warm_up_ms > 0:
            return (
                f"nobody is taken for dead for another {self.warm_up_ms / 1000:.0f} s "
                "(leaderWarmUpMillis): no master is replaced"
            )
        return ""

    @property
    def detail(self) -> str:
        """What a ready controller says of itself."""
        if not self.is_leader:
            return f"{self.leader_address} leads"
        without = [one.broker_name for one in self.groups if one.is_without_master]
        text = f"leads {len(self.groups)} groups"
        return f"{text}; without a master: {', '.join(without[:10])}" if without else text


def rows_of(groups: Iterable[tuple[GroupState, Liveness]]) -> tuple[GroupRow, ...]:
    """The groups in numbers."""
    return tuple(_row(group, liveness) for group, liveness in groups)


def _row(group: GroupState, liveness: Liveness) -> GroupRow:
    alive = group.replicas.keys() & liveness.alive.keys()
    had_master = group.master_epoch > 0 and bool(group.replicas)
    return GroupRow(
        group.cluster_name,
        group.broker_name,
        group.master_broker_id or 0,
        (had_master or bool(alive)) and not liveness.master_lives(group),
        group.master_epoch,
        group.sync_state_set_epoch,
        len(group.sync_state_set),
        len(group.replicas),
        len(alive),
    )
