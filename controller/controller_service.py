"""ControllerService: runs ControllerCore: its events in, its requests to the store and its answers
out.

Everything of it but the store is on the loop's thread. The store has a thread of its own, so that a
slow disk holds up no heartbeat: what a swap or a load has found comes back as the core's next
event. A write that fails may have come through; the core is told so (UNKNOWN) and tries again, half
a second later each time. Knows no connection and no wire format.

Tested by tests/controller/test_recorded_answers.py.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from controller.controller_metrics import ControllerMetrics
from controller.controller_seen import ControllerSeen, rows_of
from controller.core import ControllerCore
from controller.election import Choice
from controller.embedded_store import FENCE
from controller.events import (
    Asked,
    ChannelClosed,
    Event,
    LeadershipGranted,
    Loaded,
    Notice,
    Outcome,
    Ready,
    Reply,
    Stored,
    Swap,
    SwapEnded,
    Tick,
    Unreadable,
)
from controller.group_state import GroupState
from controller.group_store import ControllerStoreError, GroupStore, UnreadableGroupError
from controller.live_brokers import Heartbeat
from controller.requests import Answer, Request
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

TICK_MS: Final = 500
MOST_WAITING: Final = 10_000
"""Requests that wait for the store; more are refused, as a disk may hang for long."""
_RETRY_S: Final = 0.5

GiveAnswer = Callable[[Answer], None]


class GroupSeen(NamedTuple):
    """A group as this controller sees it at a moment."""

    group: GroupState
    alive: frozenset[int]
    """Broker ids."""
    presumed_alive: bool = False
    """Whether the others may be alive, too: the controller has just begun to listen."""


class ControllerService:
    """See the module. Owned by: the loop's thread."""

    def __init__(
        self,
        core: ControllerCore,
        store: GroupStore,
        now_ms: Callable[[], int],
        on_loop: Callable[[Callable[[], None]], None],
        notify: Callable[[Notice], None],
        metrics: ControllerMetrics | None = None,
    ) -> None:
        """now_ms: monotonic. on_loop: runs a function on the loop's thread, soon. notify: sends
        1008; does not block. metrics: counts elections."""
        self._core = core
        self._store = store
        self._now_ms = now_ms
        self._on_loop = on_loop
        self._notify = notify
        self._pool = ThreadPoolExecutor(1, "ControllerStoreThread")
        self._stopping = threading.Event()
        self._next_ticket = 0
        self._waiting: dict[int, GiveAnswer] = {}
        self._metrics = metrics or ControllerMetrics()
        self._swapping: dict[int, tuple[int, GroupState]] = {}
        """Swaps under way by number: the master's epoch before it, and the group after it."""

    # -- life ----------------------------------------------------------------------------------

    def lead(self, groups: Mapping[str, Stored]) -> None:
        """The store is ours, for ever, and holds these groups."""
        self._step(LeadershipGranted(FENCE, self._now_ms(), groups))

    def take(self, event: Event) -> None:
        """What is known of a leadership that others may take (controller/leadership.py)."""
        self._step(event)

    def stop_judging(self) -> None:
        """From now on no connection that ends is a broker's death: this side closes them."""
        self._stopping.set()

    def shutdown(self) -> None:
        """End what the store's thread is about; a swap under way is finished."""
        self._stopping.set()
        self._pool.shutdown(cancel_futures=True)

    # -- events --------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether no more requests can be taken for now."""
        return len(self._waiting) >= MOST_WAITING

    def ask(self, request: Request, channel: int, give_answer: GiveAnswer) -> None:
        """Have a request decided that came over this connection; its answer comes now or later, on
        this thread. It is not carried out once its connection has ended, or too late."""
        self._next_ticket += 1
        self._waiting[self._next_ticket] = give_answer
        self._step(Asked(self._next_ticket, request, channel))

    def heard(self, heartbeat: Heartbeat) -> None:
        """904."""
        self._step(heartbeat)

    def closed(self, channel: int) -> None:
        """A connection has ended."""
        if not self._stopping.is_set():
            self._step(ChannelClosed(channel))

    def tick(self) -> None:
        """Some time has passed."""
        self._step(Tick())

    @property
    def is_leader(self) -> bool:
        """Whether this controller answers for the groups."""
        return self._core.is_leader(self._now_ms())

    def find(self, broker_name: str) -> GroupSeen | None:
        """A group as it is stored, or was when it was read last, where another controller leads;
        and who of it is alive. None: there is none."""
        found = self._core.find(broker_name, self._now_ms())
        if found is None:
            return None
        group, liveness = found
        return GroupSeen(group, frozenset(liveness.alive), liveness.master_presumed_alive)

    @property
    def seen(self) -> ControllerSeen:
        """The controller now, as far as it is known here."""
        groups, warm_up_ms = self._core.survey(self._now_ms())
        return ControllerSeen(
            is_leader=self.is_leader,
            is_stopping=self._stopping.is_set(),
            warm_up_ms=warm_up_ms,
            waiting=len(self._waiting),
            groups=rows_of(groups),
        )

    def has_room_for(self, broker_name: str, most: int) -> bool:
        """Whether the group exists, or may be made where there are `most` groups at most."""
        return self._core.has_room_for(broker_name, most)

    # -- what the core wants -------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        if isinstance(event, SwapEnded):
            self._count_election(event)
        self._do(self._core.step(event, self._now_ms()))

    def _count_election(self, ended: SwapEnded) -> None:
        epoch, group = self._swapping.pop(ended.number, (0, None))
        if group is not None and ended.outcome is Outcome.DONE and group.master_epoch > epoch:
            elected = Choice(elected=group.master_broker_id)
            self._metrics.elected(group.cluster_name, group.broker_name, elected)

    def _do(self, ready: Ready) -> None:
        for swap in ready.swaps:
            if swap.group is not None:
                found = self.find(swap.broker_name)
                epoch = 0 if found is None else found.group.master_epoch
                self._swapping[swap.number] = epoch, swap.group
            self._pool.submit(self._guarded, functools.partial(self._try_swap, swap))
        for name in ready.loads:
            self._pool.submit(self._guarded, functools.partial(self._try_load, name))
        for send in ready.sends:
            match send:
                case Reply():
                    group = send.answer.group
                    if send.answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and group:
                        stays = Choice(stays=True)
                        self._metrics.elected(group.cluster_name, group.broker_name, stays)
                    self._waiting.pop(send.ticket)(send.answer)
                case Notice():
                    self._notify(send)

    # -- the store's thread --------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        """The service guard: a bug ends the process, on the loop's thread. Else its group would
        wait for ever."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again there
            self._on_loop(functools.partial(_raise, error))

    def _try_swap(self, swap: Swap) -> None:
        try:
            ended = self._store.swap(swap)
        except (OSError, ControllerStoreError) as error:
            log.error(
                "group %s: cannot be written: %s; nothing of it changes until that is possible",
                swap.broker_name,
                error,
            )
            self._stopping.wait(_RETRY_S)
            ended = SwapEnded(swap.broker_name, swap.number, Outcome.UNKNOWN)
        self._on_loop(functools.partial(self._step, ended))

    def _try_load(self, broker_name: str) -> None:
        while not self._stopping.is_set():
            try:
                stored = self._store.load(broker_name)
            except UnreadableGroupError as error:
                log.error("group %s: %s", broker_name, error)
                event: Loaded | Unreadable = Unreadable(broker_name, str(error))
                break
            except (OSError, ControllerStoreError) as error:
                log.error("group %s: cannot be read: %s", broker_name, error)
                self._stopping.wait(_RETRY_S)
            else:
                event = Loaded(broker_name, stored)
                break
        else:
            return
        self._on_loop(functools.partial(self._step, event))


def _raise(error: Exception) -> None:
    raise error
