"""Which fault happens to a group with controllers, and when, drawn from a seed. Pure.

The same seed, number and kinds give the same faults on every machine and release of Python 3.11+
(random.Random.random is stable; nothing else of it is used).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final


class ElectionFault(enum.StrEnum):
    """What can happen to a group of members; docs/chaos.md says it to users."""

    KILL_MASTER = "kill_master"
    """SIGKILL of every process of the master; it is started again."""
    KILL_SLAVE = "kill_slave"
    KILL_SLAVES = "kill_slaves"
    """Both at once: nobody may be answered SEND_OK before one is back."""
    KILL_ALL = "kill_all"
    """The three brokers at once."""
    KILL_PROCESS = "kill_process"
    """SIGKILL of one process of the master."""
    KILL_SLAVE_PROCESS = "kill_slave_process"
    STOP_MASTER = "stop_master"
    """SIGSTOP of every process of the master, SIGCONT after the fault's length."""
    STOP_SLAVE = "stop_slave"
    STOP_PROCESS = "stop_process"
    """SIGSTOP of one process of the master, SIGCONT after the fault's length."""
    STOP_SLAVE_PROCESS = "stop_slave_process"
    RESTART_MASTER = "restart_master"
    """An orderly stop, and a start."""
    RESTART_SLAVE = "restart_slave"
    ELECT = "elect"
    """electMaster of a slave, as an operator does."""
    ELECT_KILL = "elect_kill"
    """electMaster, and in the middle of it a process of the old or the new master is killed."""
    TAIL_KILL = "tail_kill"
    """The master's log gets what nobody else has, as its ha stands still or its slaves are cut off;
    then it is killed."""
    CUT_MASTER = "cut_master"
    """Nothing passes between the master and all other nodes; its clients still reach it."""
    CUT_SLAVE = "cut_slave"
    CUT_CONTROLLERS = "cut_controllers"
    """Between the master and the controllers, no other link."""
    CUT_LINK = "cut_link"
    """Between the master and one slave."""
    ONE_WAY = "one_way"
    """What one of master and slave sends does not reach the other."""
    KILL_CONTROLLER = "kill_controller"
    """The leading one."""
    STOP_CONTROLLER = "stop_controller"
    CUT_CONTROLLER = "cut_controller"
    """The leading one, from all other nodes."""
    KILL_MASTER_AND_CONTROLLER = "kill_master_and_controller"
    KILL_ETCD = "kill_etcd"
    """The leading node of etcd."""
    STOP_ETCD = "stop_etcd"
    CUT_ETCD = "cut_etcd"
    """The leading node of etcd, from all others."""
    RESTART_NAMESRV = "restart_namesrv"
    FULL_DISK = "full_disk"
    """A member's disk has no room for the fault's length."""
    CLOCK_JUMP = "clock_jump"
    """The wall clock of a member is set, and set right after the fault's length."""


OF_ETCD: Final = frozenset(
    (ElectionFault.KILL_ETCD, ElectionFault.STOP_ETCD, ElectionFault.CUT_ETCD)
)
_RARE: Final = frozenset(
    (
        *(ElectionFault.CLOCK_JUMP, ElectionFault.FULL_DISK, ElectionFault.RESTART_NAMESRV),
        *(ElectionFault.KILL_SLAVE, ElectionFault.RESTART_SLAVE, ElectionFault.STOP_SLAVE),
    )
)
"""What takes no master away gets a third of the weight."""
_RARE_WEIGHT: Final = 1
_USUAL_WEIGHT: Final = 3
_LONG: Final = frozenset(
    (
        *(ElectionFault.STOP_MASTER, ElectionFault.CUT_MASTER, ElectionFault.STOP_PROCESS),
        *(ElectionFault.CUT_CONTROLLERS, ElectionFault.STOP_SLAVE_PROCESS),
        ElectionFault.FULL_DISK,
    )
)
"""Their length decides what comes of them: an election, a log that ends."""
_LONG_SHARE: Final = 0.7
CLOCK_STEPS_MS: Final = (-3_600_000, 3_600_000, 86_400_000)
_PROCESSES: Final = ("remoting", "store", "ha")
_KILLS_ONE: Final = frozenset((ElectionFault.KILL_PROCESS, ElectionFault.KILL_SLAVE_PROCESS))
_STOPS_ONE: Final = frozenset((ElectionFault.STOP_PROCESS, ElectionFault.STOP_SLAVE_PROCESS))
_WAITS_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One of them. Numbers in [0, 1) choose where the group decides from how many."""

    kind: ElectionFault
    pause_s: float
    """After the end of the one before."""
    lasts_s: float
    waits: bool
    """Whether the SyncStateSet is waited for to be whole before; without, a group may have too few
    members left, as an operator's may."""
    process: str = ""
    amount_ms: int = 0
    """Of clock_jump: what is added to the wall clock."""
    which: float = 0.0
    part: float = 0.0

    def text(self) -> str:
        """For the log of a run."""
        process = f" ({self.process})" if self.process else ""
        amount = f" {self.amount_ms:+,} ms" if self.amount_ms else ""
        return f"{self.kind}{process}{amount} for {self.lasts_s:.1f} s"


def plan_faults(
    seed: int, count: int, kinds: Sequence[ElectionFault], heartbeat_timeout_s: float
) -> list[PlannedFault]:
    """`count` faults. heartbeat_timeout_s: so long a broker is silent before it is taken for dead:
    long faults last longer. Raises ValueError: there are no kinds."""
    if not kinds:
        raise ValueError("no kind of fault is left")
    draw = random.Random(seed).random
    weighted = [kind for kind in kinds for _ in range(_weight(kind))]
    return [
        _planned(weighted[int(draw() * len(weighted))], draw, heartbeat_timeout_s)
        for _ in range(count)
    ]


def _weight(kind: ElectionFault) -> int:
    return _RARE_WEIGHT if kind in _RARE else _USUAL_WEIGHT


def _planned(
    kind: ElectionFault, draw: Callable[[], float], heartbeat_timeout_s: float
) -> PlannedFault:
    pause_s, length, waits = 0.3 + draw(), draw(), draw() < _WAITS_SHARE
    process, step, which, part = draw(), draw(), draw(), draw()
    lasts_s = 0.2 + 1.8 * length
    if kind in _LONG and length < _LONG_SHARE:
        lasts_s = heartbeat_timeout_s + 1.5 + 1.5 * length
    names = (*_PROCESSES, "supervisor") if kind in _KILLS_ONE else _PROCESSES
    return PlannedFault(
        kind,
        round(pause_s, 3),
        round(lasts_s, 3),
        waits,
        process=names[int(process * len(names))] if kind in _KILLS_ONE | _STOPS_ONE else "",
        amount_ms=CLOCK_STEPS_MS[int(step * len(CLOCK_STEPS_MS))]
        if kind is ElectionFault.CLOCK_JUMP
        else 0,
        which=which,
        part=part,
    )
