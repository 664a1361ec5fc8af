"""One seed, one run: how large the group is, which settings it has, what goes wrong and when.

For the first 14 seconds things go wrong. Then all is healed, and the group has to have a master, a
whole SyncStateSet and equal logs again within a time that the timeouts explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from broker.failover.settings import MemberSettings
from controller.events import Asked
from controller.requests import ElectMaster
from tests.simulation.brokers import CLUSTER, GROUP, Broker, NameServer
from tests.simulation.controllers import Controller, Store
from tests.simulation.judge import Judge, Violation
from tests.simulation.world import Call, Node, World

TROUBLE_UNTIL: Final = 14_000
HEALED_WITHIN: Final = 25_000
MASTER_WITHIN: Final = 9_000
LAMED_EACH: Final = 4
"""In so many runs once brokers lack processes, too, while their `ha` goes on."""
FOR_GOOD: Final = 10_000_000
LATE_WRITE_WITHIN: Final = 7_000
"""An operator's election may still be under way: whom it elects alone has everything."""
PUT_EVERY: Final = 500


@dataclass(frozen=True)
class Shape:
    """What a run is about."""

    brokers: int
    controllers: int
    all_ack: bool
    min_in_sync: int
    in_sync: int
    sync_flush: bool
    self_fence: bool
    unclean: bool
    faults: int

    @property
    def safe(self) -> bool:
        """Whether what was answered, and what was seen, must last."""
        return self.all_ack and not self.unclean

    @property
    def may_lose_power(self) -> bool:
        """Without SYNC_FLUSH a loss of power is outside every promise."""
        return self.sync_flush


def shape_of(rng: Random) -> Shape:
    """Mostly the safe mode, now and then each of the weaker ones."""
    kind = rng.random()
    self_fence = kind > 0.9
    return Shape(
        brokers=rng.choice((2, 2, 3, 3, 3, 4, 5)),
        controllers=rng.choice((1, 2, 3)),
        all_ack=kind < 0.8,
        min_in_sync=2 if kind < 0.65 or kind > 0.95 else 1,
        in_sync=2 if 0.8 < kind < 0.85 else 1,
        sync_flush=rng.random() < 0.5,
        self_fence=self_fence,
        unclean=0.76 < kind < 0.8,
        faults=rng.choice((2, 3, 4, 5, 7, 9)),
    )


class Schedule:
    """One run."""

    def __init__(self, seed: int, *, trace: bool = False, shape: Shape | None = None) -> None:
        self.world = World(seed, trace)
        self.rng = self.world.rng
        self.lames = seed % LAMED_EACH == 3
        drawn = shape_of(self.rng)
        self.shape = shape or drawn
        self.world.say(str(self.shape))
        self.judge = Judge(safe=self.shape.safe, one_at_a_time=self.shape.self_fence)
        self.store = Store(self.world, self.judge)
        self.namesrv = NameServer(self.world)
        self.controllers = [self._controller(number) for number in range(self.shape.controllers)]
        self.brokers: list[Broker] = []
        for number in range(self.shape.brokers):
            self.brokers.append(self._broker(number))
        by_name = {one.name: one for one in self.brokers}
        for controller in self.controllers:
            controller.brokers = by_name
        for one in self.brokers:
            one.brokers, one.controllers = by_name, self.controllers
        self.quiet = False
        self.probes: set[int] = set()
        self.healed = False
        self._designated_at = -LATE_WRITE_WITHIN
        self._late_writes = 4 if self.shape.controllers > 1 else 0
        self.black_out = False
        """With the next put, all machines lose their power within milliseconds."""

    def _controller(self, number: int) -> Controller:
        shape = self.shape
        return Controller(
            self.world,
            f"c{number}",
            self.store,
            alone=shape.controllers == 1,
            enable_elect_unclean_master=shape.unclean,
            elect_on_channel_closed=not shape.self_fence,
        )

    def _broker(self, number: int) -> Broker:
        shape = self.shape
        settings = MemberSettings(
            cluster_name=CLUSTER,
            broker_name=GROUP,
            broker_address=f"b{number}",
            all_ack_in_sync_state_set=shape.all_ack,
            in_sync_replicas=shape.in_sync,
            min_in_sync_replicas=shape.min_in_sync,
            self_fence=shape.self_fence,
            controller_heartbeat_timeout_ms=3_000,
            sync_broker_metadata_period_ms=1_000 if shape.self_fence else 2_000,
            check_sync_state_set_period_ms=1_000,
            ha_max_time_slave_not_catchup_ms=4_000,
            request_timeout_ms=2_500,
        )
        return Broker(
            self.world,
            f"b{number}",
            settings,
            sync_flush=shape.sync_flush,
            judge=self.judge,
            namesrv=self.namesrv,
        )

    # Clients

    def _put_some(self) -> None:
        if self.quiet:
            return
        self.world.after(self.rng.randrange(PUT_EVERY // 2, PUT_EVERY * 3 // 2), self._put_some)
        target = self.namesrv.master
        if target is None or self.rng.random() < 0.25:
            target = self.rng.choice(self.brokers)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self.world.send("client", target, self._put, target, self.world.number())

    def _put(self, target: Broker, number: int) -> None:
        if not target.put(number):
            return
        if self.world.now > TROUBLE_UNTIL:
            self.probes.add(number)
        elif self.black_out:
            self.black_out = False
            back = self.rng.choice(((300, 6_000), (8_000, 300), (1_000, 1_000)))
            for one in self.brokers:
                ms = back[0] if one is target else back[1] + self.rng.randrange(500)
                self._later(self.rng.randrange(4, 45), self._power, one, ms)

    # Trouble

    def _plan_trouble(self) -> None:
        for _ in range(self.shape.faults):
            self.world.after(self.rng.randrange(3_000, TROUBLE_UNTIL), self._break_something)
        for _ in range(self.rng.choice((1, 2, 3)) if self.lames else 0):
            self.world.after(self.rng.randrange(3_000, TROUBLE_UNTIL), self._lame_somebody)

    def _lame_somebody(self) -> None:
        leaders = [one for one in self.brokers if one.open_epoch]
        is_led = bool(leaders) and self.rng.random() < 0.7
        broker = self.rng.choice(leaders if is_led else self.brokers)
        if self.rng.random() < 0.3:
            self._hands_over_unheard(broker)
        else:
            self._lack(broker, self.rng.choice((300, 1_500, 4_000, 8_000)))

    def _break_something(self) -> None:
        rng = self.rng
        broker = rng.choice(self.brokers)
        leaders = [one for one in self.brokers if one.open_epoch]
        if leaders and rng.random() < 0.5:
            broker = rng.choice(leaders)
        controller = rng.choice(self.controllers)
        ms = rng.choice((300, 1_500, 4_000, 8_000))
        faults = (
            (4, lambda: self._kill(broker, ms)),
            (4, lambda: self._power(broker, ms)),
            (3, lambda: broker.stop(ms)),
            (2, lambda: controller.stop(ms)),
            (2, lambda: controller.kill(ms)),
            (4, lambda: self._cut_pair(broker, ms)),
            (4, lambda: self._isolate(broker, ms)),
            (1, lambda: self._isolate(controller, ms)),
            (2, lambda: self._store_silent(ms)),
            (3, lambda: self._trouble(ms)),
            (2, broker.new_channel),
            (3, lambda: self._designate(broker)),
            (3, self._black_out),
            (3, lambda: setattr(rng.choice(self.brokers), "dies_after_cut", True)),
            (3, lambda: self._back_and_hung(broker)),
            (3, lambda: self._answers_lost(broker)),
            (3, lambda: setattr(broker, "steps_to_crash", rng.randrange(1, 9))),
            (1, lambda: self._jump(controller)),
            (1, self._kill_all),
            (self._late_writes, lambda: self._late_write(broker)),
            (2, lambda: self._kill_two(broker, ms)),
            (2, lambda: self._lead_comes_back(broker)),
        )
        weights = [weight for weight, _ in faults]
        rng.choices([fault for _, fault in faults], weights)[0]()  # type: ignore[no-untyped-call]

    def _lack(self, broker: Broker, ms: int) -> None:
        process = self.rng.choice(("remoting", "store"))
        broker.lack(process, ms, hangs=self.rng.random() < 0.4)

    def _hands_over_unheard(self, master: Broker) -> None:
        """No answer of a controller comes through."""
        for controller in self.controllers:
            self.world.cut(controller.name, master.name, 4_000)
        master.lack("store", self.rng.choice((1_000, 3_000, 6_000)), hangs=False)

    def _later(self, ms: int, fault: Call, *args: Any) -> None:
        """A part of a fault, unless all is healed by then."""
        self.world.after(ms, lambda: None if self.healed else fault(*args))

    def _kill(self, broker: Broker, ms: int) -> None:
        how = self.rng.random()
        if how > 0.7:
            broker.kill_ha(min(ms, 1_500))
        else:
            broker.kill(ms, torn=how < 0.3)

    def _power(self, broker: Broker, ms: int) -> None:
        broker.kill(ms, power=self.shape.may_lose_power)

    def _black_out(self) -> None:
        """With the next put; the master's disk or the others' may be the slower ones."""
        self.black_out = True
        slow = self.rng.choice(("nobody's", "the master's", "the others'"))
        for one in self.brokers:
            one.slow_disk = slow == ("the master's" if one.open_epoch else "the others'")

    def _kill_all(self) -> None:
        for one in self.brokers:
            one.kill(self.rng.randrange(200, 3_000))

    def _late_write(self, broker: Broker) -> None:
        """What a controllers' leader wrote last arrives when another one leads already."""
        leaders = [one for one in self.controllers if one.core.is_leader(one.clock())]
        self.world.slow_writes = True
        self._designate(broker)
        self.world.after(100, setattr, self.world, "slow_writes", False)
        for leader in leaders:
            self._later(50, leader.kill, 9_000)

    def _lead_comes_back(self, broker: Broker) -> None:
        """The controllers' leader hangs, the next one has a change to write and hangs as well."""
        for leader in self.controllers:
            if leader.core.is_leader(leader.clock()):
                leader.stop(4_000)
                self._later(4_200, broker.kill, 1_500)
                for other in self.controllers:
                    if other is not leader:
                        self._later(5_000, other.stop, 4_000)

    def _kill_two(self, broker: Broker, ms: int) -> None:
        """And what brokers tell the name server meanwhile is lost."""
        for one in self.brokers:
            self.world.cut(one.name, self.namesrv.name, 4_000)
        broker.kill(ms)
        self._later(self.rng.randrange(0, 2_000), self.rng.choice(self.brokers).kill, ms)

    def _other_than(self, broker: Broker) -> Broker:
        return self.rng.choice([one for one in self.brokers if one is not broker])

    def _back_and_hung(self, master: Broker) -> None:
        """A slave that misses a lot comes back, hangs at once, and then the master dies."""
        slave = self._other_than(master)
        slave.kill(3_000)
        back = 3_000 + self.rng.randrange(1, 80)
        self._later(back, slave.stop, 3_500)
        self._later(back + self.rng.randrange(1_500, 3_000), master.kill, 8_000)

    def _answers_lost(self, master: Broker) -> None:
        """The master hears nothing of the controllers while a slave joins its set and then hangs;
        then the master dies."""
        slave = self._other_than(master)
        slave.kill(300)
        for controller in self.controllers:
            self._later(150, self.world.cut, controller.name, master.name, 7_000)
        self._later(self.rng.randrange(2_000, 3_500), slave.stop, 3_500)
        self._later(self.rng.randrange(4_500, 6_000), master.kill, 8_000)

    def _cut_pair(self, one: Node, ms: int) -> None:
        others: list[Node] = [*self.brokers, *self.controllers]
        other = self.rng.choice(others)
        both = self.rng.random() < 0.5
        self.world.cut(one.name, other.name, ms)
        if both:
            self.world.cut(other.name, one.name, ms)

    def _isolate(self, one: Node, ms: int) -> None:
        """From all but its clients; sometimes only from what it hears, or what it says."""
        ways = self.rng.choice((1, 2, 3, 3))
        for other in (*self.brokers, *self.controllers, self.store, self.namesrv):
            if other is not one:
                if ways & 1:
                    self.world.cut(one.name, other.name, ms)
                if ways & 2:
                    self.world.cut(other.name, one.name, ms)

    def _store_silent(self, ms: int) -> None:
        """The store has no leader for a while."""
        self.world.say(f"the store is silent for {ms} ms")
        self.store.up = False
        self.world.after(ms, setattr, self.store, "up", True)

    def _trouble(self, ms: int) -> None:
        self.world.say(f"the network is troubled for {ms} ms")
        self.world.troubled = True
        self.world.after(ms, setattr, self.world, "troubled", False)

    def _designate(self, broker: Broker) -> None:
        """mqadmin electMaster; it does not wait for the old master's fence."""
        if self.shape.self_fence:
            return
        self._designated_at = self.world.now
        for controller in self.controllers:
            if controller.up and not controller.stopped and broker.core.broker_id is not None:
                self.world.say(f"an operator has {broker.name} elected")
                wanted = ElectMaster(CLUSTER, GROUP, broker.core.broker_id, designate_elect=True)
                controller.step(Asked(self.world.number(), wanted))

    def _stranger_asks(self) -> None:
        """1002 with an id that nobody was given."""
        for controller in self.controllers:
            controller.step(Asked(self.world.number(), ElectMaster(CLUSTER, GROUP, 99)))

    def _jump(self, controller: Controller) -> None:
        """Only where nobody compares clocks: a controller's that jumps ahead judges too early."""
        if not self.shape.self_fence:
            self.world.say(f"the clock of {controller.name} jumps")
            controller.clock_offset += self.rng.randrange(500, 20_000)

    def _heal(self) -> None:
        self.world.say("all is healed")
        self.healed = True
        self.world.cuts.clear()
        self.world.troubled = False
        self.store.up = True
        for node in (*self.brokers, *self.controllers):
            node.go_on()
        for broker in self.brokers:
            broker.has_all_again(broker.lack_number)
            broker.steps_to_crash, broker.dies_after_cut = -1, False
            broker.start()
        for controller in self.controllers:
            if not controller.up:
                controller.start()

    # The run

    def run(self) -> None:
        """All of it. Raises Violation."""
        self.world.after(1_000, self._put_some)
        self.world.after(self.rng.randrange(900, 1_200), self._stranger_asks)
        self._plan_trouble()
        self.world.run(TROUBLE_UNTIL)
        self._heal()
        limit = TROUBLE_UNTIL + HEALED_WITHIN
        while not self._is_whole():
            if self.world.now >= limit:
                raise Violation(f"not healed: {self._state()}")
            self.world.run(self.world.now + 500)
            self.quiet = not self.probes.isdisjoint(self.judge.answered)
        logs = {one.name: one.log for one in self.brokers}
        self.judge.ended(logs)
        settled = self.world.now - self._designated_at > LATE_WRITE_WITHIN
        if self.rng.random() < 0.1 and settled and not self._is_a_set_asked_for():
            self._lose_master_for_good()

    def _is_a_set_asked_for(self) -> bool:
        """Whether a request of the master's may yet come into force, from before all was healed: it
        may leave the master alone in the set, and nobody could be elected."""
        states = [one.core._sync_state for one in self.brokers if one.open_epoch]
        return any(state is not None and state.unsettled for state in states)

    def _lose_master_for_good(self) -> None:
        """Its machine dies without a word, or one of its processes has ended or stands still:
        somebody else of the set leads within the timeouts, which begin anew, once, with a new
        leader of the controllers (an old lease may have been running out meanwhile). Not one that
        lacks a process itself."""
        (master,) = (one for one in self.brokers if one.open_epoch)
        epoch = master.open_epoch
        others = [one for one in self.brokers if one is not master]
        how = self.rng.random() if self.lames else 0.5
        if how < 0.4:
            self._lack(master, FOR_GOOD)
        else:
            if how > 0.7 and len(others) > 1:
                lame = others.pop(self.rng.randrange(len(others)))
                lame.lack("remoting", FOR_GOOD, hangs=False)
                self.world.run(self.world.now + 500)
            master.kill(FOR_GOOD, power=True)
        begun = since = self.world.now
        fence = self.store.fence
        while not any(one.open_epoch > epoch for one in others):
            if self.store.fence != fence and since == begun:
                since = self.world.now
            if self.world.now >= since + MASTER_WITHIN:
                raise Violation(f"no master after {MASTER_WITHIN} ms: {self._state()}")
            self.world.run(self.world.now + 500)

    def _is_whole(self) -> bool:
        masters = [one for one in self.brokers if one.open_epoch]
        if len(masters) != 1 or not self.quiet or self.namesrv.master is not masters[0]:
            return False
        master = masters[0]
        if not all(one.running for one in self.brokers):
            return False
        group = self.store.load(GROUP).group
        if group is None or len(group.sync_state_set) < len(self.brokers):
            return False
        if (group.master_broker_id, group.master_epoch) != (
            master.core.broker_id,
            master.open_epoch,
        ):
            return False
        log = master.log
        return all(one.log == log and one.core.confirm_offset == len(log) for one in self.brokers)

    def _state(self) -> str:
        parts = [
            f"{one.name}: {one.core.stage.name} {one.core.master_epoch} open {one.open_epoch} "
            f"log {len(one.log)} confirmed {one.core.confirm_offset} "
            f"set {sorted(one.core.sync_state_set)} {one.core.trouble or ''}"
            for one in self.brokers
        ]
        return f"quiet {self.quiet}; " + "; ".join(parts) + f"; {self.store.groups}"
