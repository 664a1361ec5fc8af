"""The end of every run, whatever its seed: under load `remoting` dies while the queues are behind,
and every broker is lost at once when the load has been over for seconds.

What a run's faults show depends on its seed; this is part of each. The brokers are killed, or,
where disks misbehave, lose power: what was answered is older than what such a loss may cost.
Then the master is started alone, since a slave could give it back what it has lost, and killed;
then the slaves, as if their master was lost for good; and the master again. Each has to have every
message, table, offset and right. Runs on the thread that leads.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tools.chaos import checks
from tools.chaos.ack_log import Ack
from tools.chaos.power_cut import Draw, cut_power
from tools.chaos.promotion import OFFSETS_S, log_end
from tools.chaos.queue_reading import read_queues
from tools.chaos.scratch_group import ScratchBroker, ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.workload import QUEUES, TOPIC
from tools.chaos.world_faults import serves

QUIET_S: Final = max(OFFSETS_S, 5.0)
"""So long ago is the last answer: tables are copied and saved by then, and ASYNC_FLUSH has
flushed."""
_BEHIND_S: Final = 0.5
_STARTS_S: Final = 5.0
_SOON_S: Final = 20.0
_REJOIN_S: Final = 60.0


def kill_behind(master: ScratchBroker) -> None:
    """Under load: `remoting` dies while its log is far ahead of its queues, and has to find in the
    log which queue offsets it has given."""
    before = master.processes().get("remoting")
    master.signal("store", signal.SIGSTOP)
    threading.Event().wait(_BEHIND_S)
    master.signal("remoting", signal.SIGKILL)
    with contextlib.suppress(ChaosError):
        wait_for(
            lambda: master.processes().get("remoting") not in (None, before) and serves(master),
            _STARTS_S,
            "remoting",
        )
    master.signal("store", signal.SIGCONT)


def lose_everything(
    group: ScratchGroup,
    promised: Sequence[Ack],
    over_s: float,
    draw: Draw,
    *,
    lacks: Callable[[ScratchBroker], list[str]],
) -> tuple[str, list[str]]:
    """A line, and violations. promised: what each broker has to have. over_s: when the load was
    over (monotonic seconds). lacks: what a broker does not know of tables, offsets and rights.
    Raises ChaosError, OSError."""
    threading.Event().wait(max(over_s + QUIET_S - time.monotonic(), 0.0))
    for broker in group.brokers:
        broker.kill_all()
    losses = []
    for broker in group.brokers:
        if broker.disk is not None:
            loss = cut_power(broker.store, broker.disk.durable, draw, is_scattered=False)
            losses.append(f"{broker.name}: {loss.text()}")
    violations: list[str] = []
    for broker in group.brokers:
        broker.start()
        found = [*_lost(broker, promised), *lacks(broker)]
        violations += [f"{broker.name}, after everything was lost: {text}" for text in found]
        if broker is group.master:
            broker.kill_all()  # A slave that runs could give it back what it has lost.
    group.master.start()
    if losses:
        violations += _let_the_master_be_right(group)
    names = " and ".join(broker.name for broker in group.brokers)
    what = f"a power cut of {names} ({'; '.join(losses)})" if losses else f"a kill of {names}"
    return f"at the end {what}, {len(promised):,} messages are looked for", violations


def _let_the_master_be_right(group: ScratchGroup) -> list[str]:
    """What brokers wrote by themselves in the last moment, the master may have lost alone."""
    violations = []
    for slave in group.slaves:
        slave.configure(haTruncateDiverged="true")
        if (code := slave.stop()) != 0:
            violations.append(f"{slave.name}: an orderly stop ended with {code}")
        slave.start()
    try:
        wait_for(lambda: _have_equal_logs(group), _REJOIN_S, "slaves with logs as the master's")
    except ChaosError as error:
        violations.append(f"after everything was lost: {error}")
    return violations


def _have_equal_logs(group: ScratchGroup) -> bool:
    with contextlib.suppress(OSError):
        end = log_end(group.master)
        return all(log_end(slave) == end for slave in group.slaves)
    return False


def _lost(broker: ScratchBroker, promised: Sequence[Ack]) -> list[str]:
    """What is not in its queues, once they are dispatched."""
    missing: list[str] = []

    def has_all() -> bool:
        queues, _stopped = read_queues(broker.address, TOPIC, QUEUES)
        missing[:] = checks.lost(promised, queues)
        return not missing

    try:
        wait_for(has_all, _SOON_S, "the queues")
    except ChaosError:
        return checks.shortened(missing)
    return []
