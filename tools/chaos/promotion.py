"""Promotion: the operator's procedure of docs/replication.md when the master is lost.

The slave with the longest log becomes the master by its settings and a restart; the old master
comes back as its slave and gives up what the new one never got (haTruncateDiverged). The other
slaves stay as they are: their links lead to the new master. Runs on the caller's thread.
"""

from __future__ import annotations

import bisect
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from remoting.request_code import RequestCode
from tools.chaos.ack_log import SEND_OK, Ack
from tools.chaos.frame_client import FrameClient
from tools.chaos.scratch_group import SLAVE_SAVES_MS, SLAVE_SYNC_MS, ScratchBroker, ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.workload import TOPIC, Where

_TIMEOUT_S: Final = 10.0
_SERVES_S: Final = 60.0
_STANDS_S: Final = 0.3
_COMMIT_S: Final = 0.05
_SLACK_S: Final = 2.0
"""A sync and its answer take their time on a busy machine."""
OFFSETS_S: Final = SLAVE_SYNC_MS / 1000 + _SLACK_S
"""So old may a committed offset be that a slave, or the file of a killed master, does not have:
slaveSyncInterval, and flushConsumerOffsetInterval, which mqchaos sets alike."""
_REFUSED: Final = "haPromoteUnclean"
_GROUP: Final = "mqchaos-offsets"
_ROUND: Final = 64
"""SEND_OK that may still be on their way from the old master."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """What came of one; rto_s None: it was refused, and the old master was started again."""

    new_master: str
    rto_s: float | None
    """From the kill of the master to the first SEND_OK of the new one."""
    violations: list[str]

    def text(self) -> str:
        """One line."""
        if self.rto_s is None:
            return f"{self.new_master} refused to become the master; the old one was started again"
        return f"{self.new_master} is the master, SEND_OK after {self.rto_s:.1f} s"


class CommittedOffsets:
    """A consumer's offset, committed again and again, with the time of each answer. A thread."""

    def __init__(self, where: Where, position: Callable[[], int], topic: str = TOPIC) -> None:
        """position: what to commit, of queue 0 of the topic."""
        self._where = where
        self._topic = topic
        self._position = position
        self._commits: list[tuple[float, int]] = []
        """Monotonic seconds of the answer, offset."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._thread.join(2 * _TIMEOUT_S)

    def as_of(self, time_s: float) -> int:
        """The last one that was answered by then; 0 for none."""
        at = self._count_until(time_s)
        return self._commits[at - 1][1] if at else 0

    def forget_since(self, time_s: float) -> None:
        """The master that took them is lost, and nobody promised those that were committed since:
        a later master is not judged by them."""
        del self._commits[self._count_until(time_s) :]

    def _count_until(self, time_s: float) -> int:
        return bisect.bisect_right(self._commits, time_s, key=lambda each: each[0])

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    while not self._end.wait(_COMMIT_S) and self._where() == client.peer:
                        offset = self._position()
                        fields = {"consumerGroup": _GROUP, "topic": self._topic, "queueId": 0}
                        code = RequestCode.UPDATE_CONSUMER_OFFSET
                        if client.call(code, {**fields, "commitOffset": offset}).code == 0:
                            self._commits.append((time.monotonic(), offset))
            except OSError:
                self._end.wait(_COMMIT_S)


def promote(
    group: ScratchGroup,
    send_oks: Callable[[], int],
    broken_s: float,
    *,
    lacks: Callable[[ScratchBroker, float], list[str]],
    forget_since: Callable[[float], None],
) -> Promotion:
    """Kill the master and put its most advanced slave in its place. Raises ChaosError, OSError.

    send_oks: how many SEND_OK the producers got up to now. broken_s: until then (monotonic seconds)
    nothing was wrong with the links: a slave whose link is lost copies no tables. lacks: what a
    broker does not know of the tables that had been changed by then. forget_since: what the master
    was told from then on may be lost, which has to be known before another one serves.
    """
    old, killed_s = group.master, time.monotonic()
    old.kill_all()
    promised_s = min(killed_s, broken_s) - OFFSETS_S
    for relay in group.relays:
        relay.drop()
    new = _most_advanced(group)
    place = group.slaves.index(new)
    violations = []
    if (code := new.stop()) != 0:
        violations.append(f"{new.name}: an orderly stop ended with {code}")
    before = send_oks()
    new_id = new.setting("brokerId")
    link = new.setting("haMasterAddress")
    saves = "flushConsumerOffsetInterval"
    interval_ms = old.setting(saves)
    new.configure(brokerRole=group.role, brokerId=0, haMasterAddress=None, haTruncateDiverged=None)
    new.configure(**{saves: interval_ms})
    try:
        new.start()
    except ChaosError as error:
        if _REFUSED not in str(error):
            raise
        new.configure(brokerRole="SLAVE", brokerId=new_id, haMasterAddress=link)
        new.configure(**{saves: SLAVE_SAVES_MS})
        for relay in group.relays:
            relay.set_mode(None)
        old.start()
        new.start()
        return Promotion(new.name, None, violations)
    old.configure(**{saves: SLAVE_SAVES_MS})
    forget_since(promised_s)
    group.master, group.slaves[place] = new, old
    for relay in group.relays:
        relay.lead_to((new.host, new.ports["ha"]))
        relay.set_mode(None)
    old.configure(
        brokerRole="SLAVE", brokerId=new_id, haMasterAddress=link, haTruncateDiverged="true"
    )
    violations += lacks(new, promised_s)
    if len(group.slaves) == 1:
        old.start()  # Without another slave there is no SEND_OK before it is back.
    wait_for(lambda: send_oks() > before + _ROUND, _SERVES_S, "SEND_OK of the new master")
    rto_s = time.monotonic() - killed_s
    if len(group.slaves) > 1:
        old.start()
    return Promotion(new.name, rto_s, violations)


def _most_advanced(group: ScratchGroup) -> ScratchBroker:
    """The slave with the longest log, once none grows any more: what one receives after another was
    chosen would keep it from following that. Raises OSError."""
    ends: list[int] = []
    while (now := [log_end(slave) for slave in group.slaves]) != ends:
        ends = now
        threading.Event().wait(_STANDS_S)
    return group.slaves[ends.index(max(ends))]


def cut_seen(
    seen: Mapping[int, list[bytes]], acks: Iterable[Ack], now: Mapping[int, list[bytes]]
) -> dict[int, list[bytes]]:
    """What a follower of the lost master has seen and the new one, which holds `now`, must have.

    A consumer reads what no slave has yet. From the first message on that nobody was told SEND_OK
    for and that the new master does not hold there, a queue may go on otherwise. A message that was
    acknowledged is never cut off: if another one is in its place, that is to be seen.
    """
    promised = {(ack.queue_id, ack.queue_offset) for ack in acks if ack.code == SEND_OK}
    kept = {}
    for queue, bodies in seen.items():
        held = now.get(queue, [])
        end = next(
            (
                at
                for at, body in enumerate(bodies)
                if (queue, at) not in promised and held[at : at + 1] != [body]
            ),
            len(bodies),
        )
        kept[queue] = bodies[:end]
    return kept


def log_end(broker: ScratchBroker) -> int:
    """What `mqadmin brokerStatus` prints as commitLogMaxOffset. Raises OSError."""
    with FrameClient(broker.address, _TIMEOUT_S) as client:
        answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    table = json.loads(answer.body)["table"]
    return int(table["commitLogMaxOffset"])


def offset_violations(
    broker: ScratchBroker, committed: int, who: str, topic: str = TOPIC
) -> list[str]:
    """Whether the broker has an offset that was committed in time. who: how it is called. Raises
    OSError."""
    with FrameClient(broker.address, _TIMEOUT_S) as client:
        end = client.max_offset(topic, 0)
        fields = {"consumerGroup": _GROUP, "topic": topic, "queueId": 0}
        answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    has = int(answer.ext_fields.get("offset", 0)) if answer.code == 0 else 0
    if has >= min(committed, end):
        return []
    return [
        f"consumer offset: {who} has {has}, committed in good time before the master was lost: "
        f"{committed}"
    ]
