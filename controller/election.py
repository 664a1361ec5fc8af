"""Who becomes master (Java: DefaultElectPolicy). Pure; any thread.

Other than RocketMQ 5.3.3: only ids that were given are elected, the log's epoch and end count as
integers of any size and as last reported, and the master itself may ask for a new epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.group_state import GroupState
from controller.requests import CONTROLLER_ITSELF, ElectMaster


class LogReport(NamedTuple):
    """What a broker's last heartbeat (904) said about its log."""

    epoch: int
    """The newest epoch that its log has reached."""
    max_offset: int
    """The end of its last whole record (bytes)."""
    election_priority: int = 2**31 - 1
    """Smaller is preferred."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Who of one group is alive, as this controller sees it."""

    alive: Mapping[int, LogReport]
    """By broker id."""
    master_presumed_alive: bool = False
    """The controller has listened for less than one heartbeat timeout: it has not heard from the
    master, and that means nothing."""

    def master_lives(self, group: GroupState) -> bool:
        """Whether the recorded master, if there is one, is alive or has to be taken for it."""
        master = group.master_broker_id
        return master is not None and (master in self.alive or self.master_presumed_alive)


class Choice(NamedTuple):
    """Exactly one of: the old master stays, `elected` becomes it, nobody can."""

    stays: bool = False
    elected: int | None = None


def choose_master(
    group: GroupState, request: ElectMaster, liveness: Liveness, *, unclean: bool
) -> Choice:
    """unclean: as the last resort one who may lack messages (enableElectUncleanMaster)."""
    if not group.sync_state_set and group.master_broker_id is None:
        asker = request.broker_id
        return Choice(elected=asker if asker in group.replicas else None)
    candidates = [one for one in sorted(group.sync_state_set) if one in liveness.alive]
    if request.designate_elect:
        return Choice(elected=request.broker_id if request.broker_id in candidates else None)
    if liveness.master_lives(group):
        return Choice(stays=True)
    if not candidates and unclean:
        candidates = [one for one in sorted(group.replicas) if one in liveness.alive]
    return Choice(elected=_best(candidates, liveness.alive))


def _best(candidates: Iterable[int], alive: Mapping[int, LogReport]) -> int | None:
    def rank(broker_id: int) -> tuple[int, int, int, int]:
        report = alive[broker_id]
        return report.epoch, report.max_offset, -report.election_priority, -broker_id

    return max(candidates, key=rank, default=None)


def asked_by_controller(group: GroupState) -> ElectMaster:
    """The request of a controller that found the group's master dead."""
    return ElectMaster(group.cluster_name, group.broker_name, CONTROLLER_ITSELF)
