"""Schedule: which fault happens when, drawn from a seed. Pure; no process, no clock.

The same seed, length and kinds give the same schedule on every machine and release of Python 3.11+
(random.Random.random is stable; nothing else of it is used).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    ONE_WAY_LOG = "one_way_log"
    """The log is held back, the slave's acknowledgements pass."""
    LOSSY = "lossy"
    """One piece in a hundred is lost and comes again after a retransmission's time-out."""
    DELAY = "delay"
    """Every byte takes half a round trip."""
    CLOCK_JUMP = "clock_jump"
    """The wall clock of a broker is set, and set right after the fault's length."""
    FD_EXHAUSTION = "fd_exhaustion"
    """A process has no descriptor left for new connections."""
    PROMOTE = "promote"
    """The master is killed, also while its link is slow or cut, a slave is promoted, the old master
    comes back as a slave."""
    MASTER_LOST = "master_lost"
    """The link is slow, cut or silent, meanwhile the master is killed; its slave has to have what
    was promised, and the master comes back."""
    POWER_CUT = "power_cut"
    """Every process of a broker, or of both, is killed, and what was not synced is lost but for the
    first pages of each file, as many as the seed says."""
    SCATTERED_CUT = "scattered_cut"
    """The same, and any of the pages are kept: holes with whole records behind them."""
    FSYNC_ERROR = "fsync_error"
    """One sync of a file fails with EIO, and the disk does not have what it should have written."""
    SLOW_FSYNC = "slow_fsync"
    """Each sync of a broker takes seconds."""
    FULL_DISK = "full_disk"
    """There is no room for another byte, or none for another file."""
    TORN_TAIL = "torn_tail"
    """SIGKILL of every process; what nobody was promised at the log's end is cut or garbled."""
    ROT = "rot"
    """SIGKILL of every process; a bit of a stored message is inverted before the next start."""


LINK_FAULTS: Final = frozenset(
    (
        *(FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.CUT, FaultKind.SLOW, FaultKind.FLIP),
        *(FaultKind.ONE_WAY_LOG, FaultKind.LOSSY, FaultKind.DELAY),
    )
)
ON_REQUEST: Final = frozenset((FaultKind.PROMOTE, FaultKind.SCATTERED_CUT))
"""Not among the faults of a run that names none. A promotion weakens what can be checked; a
scattered cut of a master breaks a promise today (docs/chaos.md)."""
ROUND_TRIPS_MS: Final = (2, 20)
CLOCK_STEPS_MS: Final = (-3_600_000, 3_600_000, 86_400_000)
DISK_FAULTS: Final = frozenset(
    (
        *(FaultKind.POWER_CUT, FaultKind.SCATTERED_CUT, FaultKind.FSYNC_ERROR),
        *(FaultKind.SLOW_FSYNC, FaultKind.FULL_DISK, FaultKind.TORN_TAIL, FaultKind.ROT),
    )
)
POWER_CUTS: Final = frozenset((FaultKind.POWER_CUT, FaultKind.SCATTERED_CUT))
TAKES_BYTES: Final = POWER_CUTS | {FaultKind.TORN_TAIL, FaultKind.FSYNC_ERROR}
"""What a master may lack afterwards is judged by the producers' answers; delayed messages, which
have others, are not sent in a run with one of these."""
BOTH: Final = "both"
"""A power cut of master and slave at once."""
_NEEDS_SLAVE: Final = LINK_FAULTS | {*(FaultKind.ROT, FaultKind.PROMOTE, FaultKind.MASTER_LOST)}
_LONG_RUN_S: Final = 60.0
_DETAILS: Final = {
    FaultKind.FSYNC_ERROR: ("/commitlog/", "/commitlog/", "/consumequeue/", "/checkpoint"),
    FaultKind.FULL_DISK: ("full_disk", "short_space"),
    FaultKind.TORN_TAIL: ("cut", "garble"),
    FaultKind.MASTER_LOST: ("slow", "partition", "one_way_log", "one_way", "cut"),
    FaultKind.PROMOTE: ("", "slow", "", "partition", "", "cut", "", "one_way"),
}
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
    """Of kill, stop and fd_exhaustion: store, remoting, ha or supervisor."""
    amount_ms: int = 0
    """Of lossy and delay: the round trip. Of clock_jump: what is added to the wall clock."""
    detail: str = ""
    """Of fsync_error: which file; of slow_fsync: seconds; of full_disk and torn_tail: the kind; of
    promote and master_lost: what is wrong with the link before."""

    def text(self) -> str:
        """One line, for the log of a run."""
        target = f"{self.process} of {self.broker}" if self.process else self.broker
        target += f" ({self.detail})" if self.detail else ""
        kind = f"{self.kind} {self.amount_ms:+,} ms" if self.amount_ms else str(self.kind)
        return f"{self.at_s:7.2f} s  {kind} {target} for {self.lasts_s:.2f} s"


def make_schedule(
    seed: int, seconds: float, kinds: Sequence[FaultKind], *, has_slave: bool
) -> list[Fault]:
    """Faults one after the other with a pause between them, the last over before `seconds`.

    Link faults need a slave and are left out without one. Raises ValueError when no kind is left.
    """
    usable = [kind for kind in kinds if has_slave or kind not in _NEEDS_SLAVE]
    if not usable:
        raise ValueError(
            "no kind of fault is left: those of the link and rot need a slave (--replication)"
        )
    draw = random.Random(seed).random
    faults: list[Fault] = []
    at_s = 0.5 + draw()
    while True:
        kind = usable[int(draw() * len(usable))]
        lasts_s = round(0.2 + 2.0 * draw() ** 2, 3)
        if kind is FaultKind.SLOW_FSYNC:
            lasts_s += _sync_s(seconds)
        if at_s + lasts_s > seconds - 0.5:
            return faults
        fault = _fault(kind, round(at_s, 3), lasts_s, draw(), draw(), has_slave=has_slave)
        if kind is FaultKind.SLOW_FSYNC:
            fault = replace(fault, detail=f"{_sync_s(seconds):.0f}")
        faults.append(fault)
        at_s += lasts_s + 0.3 + 1.5 * draw()


def _sync_s(seconds: float) -> float:
    """What a slow sync takes: more than the broker waits for one (5 s) where there is time."""
    return 10.0 if seconds >= _LONG_RUN_S else 2.0


def _fault(
    kind: FaultKind, at_s: float, lasts_s: float, which: float, part: float, *, has_slave: bool
) -> Fault:
    if kind in LINK_FAULTS:
        has_round_trip = kind in (FaultKind.LOSSY, FaultKind.DELAY)
        amount_ms = ROUND_TRIPS_MS[int(part * len(ROUND_TRIPS_MS))] if has_round_trip else 0
        return Fault(kind, at_s, lasts_s, "link", amount_ms=amount_ms)
    if kind in (FaultKind.PROMOTE, FaultKind.MASTER_LOST):
        links = _DETAILS[kind]
        return Fault(kind, at_s, lasts_s, "master", detail=links[int(part * len(links))])
    broker = "slave" if has_slave and which < 0.4 else "master"
    if kind is FaultKind.CLOCK_JUMP:
        amount_ms = CLOCK_STEPS_MS[int(part * len(CLOCK_STEPS_MS))]
        return Fault(kind, at_s, lasts_s, broker, amount_ms=amount_ms)
    if kind in POWER_CUTS and has_slave and which > 0.8:
        broker = BOTH
    if kind is FaultKind.KILL:
        names: tuple[str, ...] = (*_PROCESSES, "supervisor")
    elif kind is FaultKind.STOP:
        names = _PROCESSES
    elif kind is FaultKind.FD_EXHAUSTION:
        names = ("remoting", "ha") if broker == "master" else ("remoting",)
    else:
        names = ("",)
    details = _DETAILS.get(kind, ("",))
    detail = details[int(part * len(details))]
    return Fault(kind, at_s, lasts_s, broker, names[int(part * len(names))], detail=detail)
