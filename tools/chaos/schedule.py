"""Schedule: which fault happens when, drawn from a seed. Pure; no process, no clock.

The same seed, length and kinds give the same schedule on every machine and release of Python 3.11+
(random.Random.random is stable; nothing else of it is used).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


class FaultKind(enum.StrEnum):
    """What can happen to a group; `docs/durability.md` says what each may cost."""

    KILL = "kill"
    """SIGKILL of one process of a broker; its supervisor starts it again."""
    KILL_ALL = "kill_all"
    """SIGKILL of every process of a broker, which is started again after the fault's length."""
    STOP = "stop"
    """SIGSTOP of one process of a broker, SIGCONT after the fault's length."""
    RESTART = "restart"
    """An orderly stop of a broker and a start."""
    PARTITION = "partition"
    """Nothing passes between slave and master, both believe that they are connected."""
    ONE_WAY = "one_way"
    """The slave's acknowledgements are held back, the log passes."""
    CUT = "cut"
    """The link is reset, again and again, in the middle of frames."""
    SLOW = "slow"
    """Each piece of the link waits for some milliseconds."""
    FLIP = "flip"
    """Single bits of what the master sends are inverted."""


LINK_FAULTS: Final = frozenset(
    (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.CUT, FaultKind.SLOW, FaultKind.FLIP)
)
_PROCESSES: Final = ("store", "remoting", "ha")


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them: from `at_s` (seconds after the first send) for `lasts_s`."""

    kind: FaultKind
    at_s: float
    lasts_s: float
    broker: str
    """The master, the slave, or the link for what happens between them."""
    process: str = ""
    """Of kill and stop: store, remoting, ha or supervisor."""

    def text(self) -> str:
        """One line, for the log of a run."""
        target = f"{self.process} of {self.broker}" if self.process else self.broker
        return f"{self.at_s:7.2f} s  {self.kind} {target} for {self.lasts_s:.2f} s"


def make_schedule(
    seed: int, seconds: float, kinds: Sequence[FaultKind], *, has_slave: bool
) -> list[Fault]:
    """Faults one after the other with a pause between them, the last over before `seconds`.

    Link faults need a slave and are left out without one. Raises ValueError when no kind is left.
    """
    usable = [kind for kind in kinds if has_slave or kind not in LINK_FAULTS]
    if not usable:
        raise ValueError("no kind of fault is left: those of the link need a slave (--replication)")
    draw = random.Random(seed).random
    faults: list[Fault] = []
    at_s = 0.5 + draw()
    while True:
        kind = usable[int(draw() * len(usable))]
        lasts_s = round(0.2 + 2.0 * draw() ** 2, 3)
        if at_s + lasts_s > seconds - 0.5:
            return faults
        faults.append(_fault(kind, round(at_s, 3), lasts_s, draw(), draw(), has_slave=has_slave))
        at_s += lasts_s + 0.3 + 1.5 * draw()


def _fault(
    kind: FaultKind, at_s: float, lasts_s: float, which: float, part: float, *, has_slave: bool
) -> Fault:
    if kind in LINK_FAULTS:
        return Fault(kind, at_s, lasts_s, "link")
    broker = "slave" if has_slave and which < 0.4 else "master"
    if kind is FaultKind.KILL:
        names: tuple[str, ...] = (*_PROCESSES, "supervisor")
    elif kind is FaultKind.STOP:
        names = _PROCESSES
    else:
        names = ("",)
    return Fault(kind, at_s, lasts_s, broker, names[int(part * len(names))])
