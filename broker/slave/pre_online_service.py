"""PreOnlineService: the thread that brings an isolated broker online.

Each round it looks at the group (PreOnlinePeers) and does what the rules say next (pre_online.py):
exchange addresses, take back what a replica did in this master's place, come online. A peer that
fails is asked again after a pause, and what a name server says of the group otherwise than at the
round's beginning is acted upon after one. Whom it waits for is in the log every ten seconds, and in
the control page for operators. In process `remoting`; ends when the broker is online.

Tested by tests/broker/wiring/test_pre_online.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.group_members import MemberAddress
from broker.slave.pre_online import (
    MASTER_ID,
    ComeOnline,
    Isolation,
    Pause,
    PreOnline,
    Seen,
    Step,
    TakeBack,
    Tell,
)
from broker.slave.pre_online_peers import PreOnlinePeers
from ha.control_slots import ISOLATED, ISOLATED_ALONE, ISOLATED_AWAITS
from ipc.clock import Clock
from ipc.command_channel import CommandError
from ipc.service_thread import FailureHandler, ServiceThread
from remoting.errors import RemotingError, RequestError
from remoting.headers.ha import ExchangeHAInfoResponseHeader

log = logging.getLogger(__name__)

PAUSE_MS: Final = 1_000
SAY_MS: Final = 10_000
TROUBLE: Final = (RemotingError, BrokerAnswerError, RequestError, ValueError, OSError)
"""What a peer can be the reason of, or a disk that is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreOnlineActions:
    """What the service brings about."""

    take_back: Callable[[MemberAddress], None]
    """ReturningMaster.take_back."""
    use_master: Callable[[MemberAddress, ExchangeHAInfoResponseHeader], None]
    """What a registered master says of itself (906), of a slave."""
    come_online: Callable[[ComeOnline], None]
    """Register and begin. Called once; no longer isolated then."""


class PreOnlineService(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self,
        own: MemberAddress,
        max_wait_ms: int,
        peers: PreOnlinePeers,
        actions: PreOnlineActions,
        counters: memoryview[int],
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """own, max_wait_ms: see PreOnline. counters: of the control page."""
        super().__init__("PreOnlineService", on_failure=on_failure)
        self._is_master: Final = own.broker_id == MASTER_ID
        self._rules: Final = PreOnline(own, max_wait_ms)
        self._peers = peers
        self._actions = actions
        self._counters = counters
        self._clock = clock
        self._state = Isolation(since_ms=clock.monotonic_ms())
        self._said_ms = self._state.since_ms
        self._trouble = ""
        """The last one that was logged."""

    def begin(self) -> None:
        """See ServiceThread."""
        log.warning(
            "this broker is isolated (totalReplicas): it registers and takes messages once %s",
            "each registered replica is linked" if self._is_master else "its master is linked",
        )

    def step(self) -> None:
        """One round."""
        try:
            first = seen = self._look()
            while self._carry_out(self._rules.next_step(self._state, seen), seen):
                seen = self._look()
                if self.stopped or _group(seen) != _group(first):
                    break  # a name server that says another thing each time is not asked at once
        except TROUBLE as error:
            self._note_trouble(error)
        if not self.stopped:
            self.wait_for_running(PAUSE_MS)

    def _look(self) -> Seen:
        members = self._peers.members()
        return Seen(
            now_ms=self._clock.monotonic_ms(),
            members=members,
            linked=self._linked(members) if members and self._is_master else (),
            follows=self._peers.follows,
        )

    def _linked(self, members: list[MemberAddress]) -> Collection[MemberAddress]:
        try:
            return self._peers.linked(members)
        except CommandError as error:
            # It is being started anew, and its links with it. The time goes on.
            self._note_trouble(error)
            return ()

    def _carry_out(self, step: Step, seen: Seen) -> bool:
        """True: there is more to do at once. Raises one of TROUBLE."""
        self._say(step, seen.now_ms)
        match step:
            case Pause():
                return False
            case Tell(member):
                return self._tell(member, seen)
            case TakeBack(member):
                self._actions.take_back(member)
                self._state = self._rules.settled(self._state, member)
                log.info("broker %s at %s: is linked", member.broker_id, member.address)
                return True
            case ComeOnline():
                self._come_online(step)
                return False

    def _tell(self, member: MemberAddress, seen: Seen) -> bool:
        if self._is_master:
            self._peers.tell(member.address)
        else:
            answer = self._peers.ask(member.address)
            if not answer.master_ha_address:
                log.warning("master %s: names no HA port", member.address)
                self._come_online(self._rules.without_master(seen))
                return False
            self._actions.use_master(member, answer)
        self._state = self._rules.told(self._state, member, self._clock.monotonic_ms())
        return True

    def _come_online(self, step: ComeOnline) -> None:
        for member in step.missing:
            log.error(
                "coming online without broker %s at %s (preOnlineMaxWait): what it did in this "
                "broker's place may be done twice",
                member.broker_id,
                member.address,
            )
        if step.waited_in_vain and not step.missing:
            log.error("coming online though no name server has answered (preOnlineMaxWait)")
        self.request_stop()
        self._actions.come_online(step)

    # -- for operators -----------------------------------------------------------------------------

    def _say(self, step: Step, now_ms: int) -> None:
        awaited = step.awaited if isinstance(step, Pause) else getattr(step, "member", None)
        self._counters[ISOLATED] = (
            ISOLATED_ALONE if awaited is None else ISOLATED_AWAITS + awaited.broker_id
        )
        if isinstance(step, ComeOnline) or now_ms - self._said_ms < SAY_MS:
            return
        self._said_ms = now_ms
        waited_s = (now_ms - self._state.since_ms) // 1000
        if awaited is None:
            log.warning("isolated for %s s: no name server has answered", waited_s)
            return
        log.warning(
            "isolated for %s s: waiting for the HA link of broker %s at %s%s",
            waited_s,
            awaited.broker_id,
            awaited.address,
            "" if not self._trouble else f": {self._trouble}",
        )

    def _note_trouble(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._trouble:
            log.warning("isolated: %s", text)
            self._trouble = text


def _group(seen: Seen) -> frozenset[MemberAddress]:
    return frozenset(seen.members or ())
