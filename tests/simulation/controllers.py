"""The store of several controllers, as one linearizable thing, and a controller around its core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.failover.messages import GroupView
from controller.core import ControllerCore, ControllerSettings
from controller.events import (
    Asked,
    ChannelClosed,
    Event,
    LeadershipGranted,
    LeadershipRenewed,
    Loaded,
    Outcome,
    Ready,
    Reply,
    Stored,
    Swap,
    SwapEnded,
    Tick,
)
from controller.group_state import GroupState
from controller.live_brokers import Heartbeat
from controller.requests import Answer, Request
from tests.simulation.judge import Judge
from tests.simulation.world import Node, World

if TYPE_CHECKING:
    from tests.simulation.brokers import Broker

LEASE_MS = 3_000
SWAP_TIMEOUT_MS = 1_500


def view_of(group: GroupState) -> GroupView:
    """What goes over the wire of a group."""
    return GroupView(
        group.master_broker_id,
        group.master_address,
        group.master_epoch,
        group.sync_state_set,
        group.sync_state_set_epoch,
    )


@dataclass(eq=False)
class Store(Node):
    """What an etcd of several nodes is to its clients: one order of all that happens; while its own
    leader changes it answers nothing."""

    world: World
    judge: Judge
    groups: dict[str, Stored] = field(default_factory=dict)
    leader: str | None = None
    fence: int = 0
    lease_until: int = 0

    def __post_init__(self) -> None:
        Node.__init__(self, self.world, "store")

    def acquire(self, name: str) -> int | None:
        """A fence, if nobody leads."""
        if self.leader is not None and self.world.now < self.lease_until:
            return None
        self.leader = name
        self.fence += 1
        self.lease_until = self.world.now + LEASE_MS
        self.world.say(f"{name} becomes the controllers' leader, fence {self.fence}")
        return self.fence

    def renew(self, fence: int) -> bool:
        """One more lease, if it still lasts."""
        if fence != self.fence or self.world.now >= self.lease_until:
            return False
        self.lease_until = self.world.now + LEASE_MS
        return True

    def swap(self, swap: Swap) -> SwapEnded:
        """Compare and swap."""
        if swap.fence != self.fence:
            return SwapEnded(swap.broker_name, swap.number, Outcome.FENCED)
        old = self.groups.get(swap.broker_name, Stored(0, None))
        if old.version != swap.version:
            return SwapEnded(swap.broker_name, swap.number, Outcome.CONFLICT)
        self.judge.swapped(old.group, swap.group)
        self.groups[swap.broker_name] = Stored(old.version + 1, swap.group)
        if self.world.trace is not None and swap.group:
            new = swap.group
            self.world.say(
                f"store: master {new.master_broker_id} epoch {new.master_epoch} "
                f"set {sorted(new.sync_state_set)} epoch {new.sync_state_set_epoch}"
            )
        return SwapEnded(swap.broker_name, swap.number, Outcome.DONE, old.version + 1)

    def load(self, name: str) -> Stored:
        """One group."""
        return self.groups.get(name, Stored(0, None))


class Controller(Node):
    """One controller process. Alone, the store is its own file: written at once or not at all."""

    def __init__(self, world: World, name: str, store: Store, *, alone: bool, **settings: bool):
        super().__init__(world, name)
        self.store = store
        self.alone = alone
        self.settings = ControllerSettings(
            scan_inactive_master_interval_ms=1_000,
            warm_up_ms=3_000,
            lease_ms=None if alone else LEASE_MS,
            lease_margin_ms=500,
            **settings,
        )
        self.brokers: dict[str, Broker] = {}
        self.life = 0
        self.start()

    def start(self) -> None:
        """A new process."""
        self.up = True
        self.life += 1
        self.core = ControllerCore(self.settings)
        self._asked: dict[int, tuple[Broker, int, int]] = {}
        self._fence = 0
        self._swaps: set[int] = set()
        if self.alone:
            self.store.leader = None
            fence = self.store.acquire(self.name)
            assert fence is not None
            self.step(LeadershipGranted(fence, self.clock(), dict(self.store.groups)))
        self._tick(self.life)

    def kill(self, ms: int) -> None:
        """kill -9, and a start after a while."""
        if self.up:
            self.world.say(f"{self.name} is killed for {ms} ms")
            self.up = False
            self.drop_waiting()
            self.world.after(ms, self._start_again, self.life)

    def _start_again(self, life: int) -> None:
        if life == self.life and not self.up:
            self.start()

    def _tick(self, life: int) -> None:
        if life != self.life or not self.up:
            return
        self.world.after(1_000, self._tick, life)
        if self.stopped:
            return
        if not self.alone:
            self._keep_leadership()
        self.step(Tick())

    # The store

    def _keep_leadership(self) -> None:
        sent, life = self.clock(), self.life
        if self.core.is_leader(sent):
            self.world.send(self.name, self.store, self._renew, self._fence, sent, life)
        else:
            self.world.send(self.name, self.store, self._acquire, sent, life)

    def _acquire(self, sent: int, life: int) -> None:
        fence = self.store.acquire(self.name)
        if fence is not None:
            groups = dict(self.store.groups)
            self.world.send("store", self, self._granted, fence, sent, groups, life)

    def _granted(self, fence: int, sent: int, groups: dict[str, Stored], life: int) -> None:
        if life == self.life:
            self._fence = fence
            self.step(LeadershipGranted(fence, sent, groups))

    def _renew(self, fence: int, sent: int, life: int) -> None:
        if self.store.renew(fence):
            self.world.send("store", self, self._renewed, fence, sent, life)

    def _renewed(self, fence: int, sent: int, life: int) -> None:
        if life == self.life and fence == self._fence:
            self.step(LeadershipRenewed(sent))

    def _swap(self, swap: Swap) -> None:
        if self.alone:
            self.step(self.store.swap(swap))
            return
        self._swaps.add(swap.number)
        if self.world.slow_writes:
            self.world.after(4_500, self.store.take, self._swap_at_store, (swap, self.life))
        else:
            self.world.send(self.name, self.store, self._swap_at_store, swap, self.life)
        self.world.after(SWAP_TIMEOUT_MS, self.take, self._swap_late, (swap, self.life))

    def _swap_at_store(self, swap: Swap, life: int) -> None:
        ended = self.store.swap(swap)
        self.world.send("store", self, self._swap_ended, ended, life)

    def _swap_ended(self, ended: SwapEnded, life: int) -> None:
        if life == self.life and ended.number in self._swaps:
            self._swaps.discard(ended.number)
            self.step(ended)

    def _swap_late(self, swap: Swap, life: int) -> None:
        self._swap_ended(SwapEnded(swap.broker_name, swap.number, Outcome.UNKNOWN), life)

    def _load(self, name: str, number: int, life: int) -> None:
        """Asked until it is answered."""
        if life == self.life and number in self._swaps:
            self.world.send(self.name, self.store, self._load_at_store, name, number, life)
            self.world.after(1_000, self.take, self._load, (name, number, life))

    def _load_at_store(self, name: str, number: int, life: int) -> None:
        stored = self.store.load(name)
        self.world.send("store", self, self._loaded, name, stored, number, life)

    def _loaded(self, name: str, stored: Stored, number: int, life: int) -> None:
        if life == self.life and number in self._swaps:
            self._swaps.discard(number)
            self.step(Loaded(name, stored))

    # The core

    def step(self, event: Event) -> None:
        """One event, and what follows."""
        self._do(self.core.step(event, self.clock()))

    def _do(self, ready: Ready) -> None:
        for swap in ready.swaps:
            self._swap(swap)
        for name in ready.loads:
            if self.alone:
                self.step(Loaded(name, self.store.load(name)))
            else:
                number = -self.world.number()
                self._swaps.add(number)
                self._load(name, number, self.life)
        for one in ready.sends:
            if isinstance(one, Reply):
                self._reply(one.ticket, one.answer)
            else:
                target = self.brokers.get(one.address)
                if target is not None:
                    notice = view_of(one.group)
                    self.world.send(self.name, target, target.notified, notice, once=False)

    def _reply(self, ticket: int, answer: Answer) -> None:
        found = self._asked.pop(ticket, None)
        if found is not None:
            broker, life, broker_ticket = found
            self.world.send(self.name, broker, broker.answered, broker_ticket, answer, life)

    # What brokers send

    def ask(
        self, broker: Broker, life: int, ticket: int, request: Request, beat: Heartbeat | None
    ) -> None:
        """A request of a broker's, and the heartbeat before it on the same connection."""
        if beat is not None:
            self.heartbeat(beat)
        number = self.world.number()
        self._asked[number] = broker, life, ticket
        self.step(Asked(number, request, broker.channel))

    def heartbeat(self, heartbeat: Heartbeat) -> None:
        """904."""
        self.core.step(heartbeat, self.clock())

    def closed(self, channel: int) -> None:
        """A connection has ended."""
        self.step(ChannelClosed(channel))

    def find_leader(self, broker: Broker, life: int) -> None:
        """1005; whoever is not the leader is not sure."""
        if self.core.is_leader(self.clock()):
            self.world.send(self.name, broker, broker.leader_named, self.name, life)
