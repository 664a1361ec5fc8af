"""A master that is lost while the link to its slaves is slow, cut or silent.

One fault at a time never shows a SYNC_MASTER that does not wait: a slave whose link works has
everything a moment later. Here the link is bad, the master dies, and a slave, started as an
operator who promotes it would, has to hold what was answered SEND_OK until then, and the tables
that it had the time to copy. Then the master comes back. Runs on the thread that leads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from tools.chaos import checks
from tools.chaos.ack_log import SEND_OK, Ack, AckLog
from tools.chaos.honesty import HonestyJudge
from tools.chaos.queue_reading import read_queues
from tools.chaos.scratch_group import ScratchBroker, ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.workload import QUEUES, TOPIC

_FRESH_S: Final = 10.0
_SOON_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LostMaster:
    """What came of it."""

    text: str
    violations: list[str]


def lose_master(
    group: ScratchGroup,
    acks: AckLog,
    honesty: HonestyJudge | None,
    *,
    is_sync: bool,
    kept_by_slave: Callable[[Sequence[Ack]], list[Ack]],
    broken_link: Callable[[], AbstractContextManager[None]],
    kills_slave: bool,
    lacks: Callable[[ScratchBroker, float], list[str]],
) -> LostMaster:
    """Break the link for a while (entering broken_link waits), kill the master, look at the slave,
    start the master again. is_sync: a SYNC_MASTER; the slave of another one promises nothing.
    kept_by_slave: the answers without those whose messages the slave may lack. kills_slave: the
    slave is killed before it is started alone, not stopped. lacks: what a slave does not know of
    tables, offsets and rights that it has had the time to copy until then. Raises ChaosError,
    OSError."""
    fresh_s = time.monotonic()
    try:
        # What it says is on the slave is there: nothing of an earlier fault is missing any more.
        wait_for(lambda: _has_fresh(acks, fresh_s), _FRESH_S, "SEND_OK before the master is lost")
    except ChaosError as error:
        return LostMaster(f"left alone: {error}", [])
    master, slave = group.master, group.slave
    assert slave is not None
    try:
        wait_for(lambda: not lacks(slave, fresh_s), _FRESH_S, "a copy of the tables")
    except ChaosError:
        return LostMaster("left alone: no copy of the tables", lacks(slave, fresh_s))
    with broken_link():
        if honesty is not None:
            for broker in group.brokers:
                honesty.excuse(broker)
        master.kill_all()
    promised = [ack for ack in kept_by_slave(list(acks.acks)) if ack.code == SEND_OK]
    promised = promised if is_sync else []
    violations = []
    if kills_slave:
        slave.kill_all()
    elif (code := slave.stop()) != 0:
        violations.append(f"{slave.name}: an orderly stop ended with {code}")
    slave.start()
    missing = _missing(slave, promised)
    violations += [f"{slave.name}, when the master was lost: {text}" for text in missing]
    violations += lacks(slave, fresh_s)
    master.start()
    return LostMaster(f"{slave.name} has all {len(promised):,} of the lost master", violations)


def _has_fresh(acks: AckLog, since_s: float) -> bool:
    newest = acks.acks[-1:]
    return any(ack.code == SEND_OK and ack.sent_s > since_s for ack in newest)


def _missing(slave: ScratchBroker, promised: Sequence[Ack]) -> list[str]:
    missing: list[str] = []

    def has_all() -> bool:
        queues, _stopped = read_queues(slave.address, TOPIC, QUEUES)
        missing[:] = checks.lost(promised, queues)
        return not missing

    try:
        wait_for(has_all, _SOON_S, "the slave's queues")
    except ChaosError:
        return checks.shortened(missing)
    return []
