"""What each curve of `bin/bench growth` builds up in a broker, and the load that is timed then.

Runs in the process of the benchmark. A point has a broker of its own on a fresh store, but for
"stored", where one store grows from point to point. Each load is run once, unmeasured, with a
quarter of the messages, and then `rounds` times; processor time is followed until the broker is
quiet again, so that dispatch, flush and replication count.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.growth_curves import PULL, SEND, Point
from tests.bench.growth_traffic import (
    BODY_BYTES,
    PULL_BATCH,
    GroupPulls,
    ParkedPulls,
    Sends,
    connections,
    drive,
    send_frame,
    walk,
)
from tests.bench.measuring import RECORD_OVERHEAD, quiet_cpu_s, run_load, side_broker
from tests.bench.replica_pair import log_end
from tests.bench.topics import name_of, write_topics
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.stolen_time import StolenTime

QUEUES: Final = 4
PARKED_ON_ONE: Final = 200
"""Parked pulls on one connection, and queues of its topic."""
_FILL_BODY: Final = 2048
_FILL_AT_ONCE: Final = 1_000_000
_SIZE_WINDOW: Final = 16
_FULL_SIZE: Final = 4096
"""Bodies up to this size are sent as often as small ones; of larger ones as many bytes."""
_FEWEST: Final = 64
_LONG_S: Final = 300.0
_FULL_DISK: Final = {"cleanFileForciblyEnable": "false"}
"""So that nothing is deleted from a disk that others have filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One load: what was asked for, how long it took, what of it was refused."""

    messages: int
    seconds: float
    refused: int = 0


Load = Callable[[int], Done]
"""Runs with about so many messages."""


@dataclass(slots=True)
class Rounds:
    """The rounds of one kind of load at one point."""

    msg_per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    refused: int = 0
    stolen: float = 0.0

    def run(self, pid: int, load: Callable[[], Done], caught_up: Callable[[], None]) -> None:
        """One more round. Raises RuntimeError when everything was refused."""
        stolen, before = StolenTime(), quiet_cpu_s(pid)
        done = load()
        caught_up()
        used_s = quiet_cpu_s(pid) - before
        taken = done.messages - done.refused
        if taken <= 0:
            raise RuntimeError(f"all of {done.messages} messages were refused")
        self.msg_per_s.append(taken / done.seconds)
        self.cpu_us.append(1e6 * used_s / taken)
        self.refused += done.refused
        self.stolen = max(self.stolen, stolen.share())

    def point(self, side: str, kind: str, at: float) -> Point:
        """As it is reported."""
        return Point(
            side=side,
            kind=kind,
            at=at,
            msg_per_s=[round(speed, 1) for speed in self.msg_per_s],
            cpu_us=[round(cost, 3) for cost in self.cpu_us],
            refused=self.refused,
            stolen=round(self.stolen, 3),
        )


class Site:
    """Where brokers of one side are started, one at a time, and how much is asked of them."""

    def __init__(self, root: Path, side: str, messages: int, rounds: int) -> None:
        self._root = root
        self.side = side
        self._messages = messages
        self._rounds = rounds
        self._made = 0

    @contextlib.contextmanager
    def directory(self) -> Iterator[Path]:
        """A new one, deleted afterwards."""
        self._made += 1
        path = self._root / str(self._made)
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def broker(self, topics: int = 0, queues: int = 0) -> Iterator[harness.Broker]:
        """A running broker on a fresh store that has `topics` with `queues` each."""
        with self.directory() as path:
            if topics:
                write_topics(path / "store", topics, queues)
            broker = side_broker(self.side, path, conf=_FULL_DISK)
            with ending(broker):
                broker.start()
                yield broker

    def measure(
        self,
        broker: harness.Broker,
        at: float,
        loads: Mapping[str, Load],
        caught_up: Callable[[], None] = lambda: None,
    ) -> Iterator[Point]:
        """The loads in turn: once to warm up, then `rounds` times. caught_up: what is waited for,
        too, before a round has ended."""
        pid = broker.process.pid
        found = {kind: Rounds() for kind in loads}
        for load in loads.values():
            load(self._messages // 4)
            caught_up()
        for _ in range(self._rounds):
            for kind, load in loads.items():
                found[kind].run(pid, partial(load, self._messages), caught_up)
        for kind, rounds in found.items():
            yield rounds.point(self.side, kind, at)


@contextlib.contextmanager
def ending(broker: harness.Broker) -> Iterator[None]:
    """Kills the broker afterwards; its last words stand in an error."""
    try:
        yield
    except Exception as error:
        error.add_note(broker.log_tail())
        raise
    finally:
        broker.kill()


class FreshTopics:
    """loadgen.c's sends to a new topic each time, and pulls of what was sent last."""

    def __init__(
        self, broker: harness.Broker, name: str, body: int, window: int, share: float = 1.0
    ) -> None:
        """share: of the messages that are asked for, so many are sent."""
        self._broker = broker
        self._name = name
        self._body = body
        self._window = window
        self._share = share
        self._count = 0

    @property
    def topic(self) -> str:
        """The one that was sent to last."""
        return f"{self._name}-{self._count}"

    def send(self, messages: int) -> Done:
        """The first message makes the topic; it is not timed. Until all can be pulled."""
        self._count += 1
        run_load("send", self._broker, self.topic, 1, 1, QUEUES, self._body)
        total = max(QUEUES * self._window, int(messages * self._share))
        arguments = (QUEUES, self._window, total, self._body, f"queues={QUEUES}")
        figures = run_load("send", self._broker, self.topic, *arguments)
        refused = int(figures["not_success"])
        self._wait_dispatched(total - refused)
        return Done(messages=total, seconds=total / figures["msg_per_s"], refused=refused)

    def _wait_dispatched(self, messages: int) -> None:
        with self._broker.client() as client:

            def can_be_pulled() -> bool:
                ends = (client.offset(30, self.topic, queue) for queue in range(QUEUES))
                return sum(ends) >= messages

            wait_until(can_be_pulled, "all messages dispatched", _LONG_S, 0.05)

    def pull(self, messages: int) -> Done:
        """All of the topic, however many `messages` it has."""
        figures = run_load("pull", self._broker, self.topic, "growth", QUEUES, PULL_BATCH)
        total = int(figures["msgs"])
        return Done(messages=total, seconds=total / figures["msg_per_s"])


def measure_stored(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """One broker, filled more and more."""
    with site.broker() as broker:
        fresh = FreshTopics(broker, "growth-fresh", BODY_BYTES, 64)
        for at in points:
            if at:  # A Java broker does not say how long its log is while that is empty.
                fill(broker, int(at * 1e9))
            yield from site.measure(broker, at, {SEND: fresh.send, PULL: fresh.pull})


def fill(broker: harness.Broker, log_bytes: int) -> None:
    """Send messages of 2 KiB until the log is so long, and wait until nothing is left to write."""
    while (missing := log_bytes - log_end(broker)) > 0:
        count = min(_FILL_AT_ONCE, missing // (_FILL_BODY + RECORD_OVERHEAD) + _FEWEST)
        figures = run_load("send", broker, "growth-stored", 4, 64, max(count, 256), _FILL_BODY)
        if figures["not_success"] >= count:
            raise RuntimeError(f"the broker takes no more: code {figures['first_code']:.0f}")
    wait_until(lambda: dirty_bytes() < 256 << 20, "dirty pages are on the disk", _LONG_S, 0.5)


def dirty_bytes() -> int:
    """What this machine has still to write to its disks."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(
        int(line.split()[1]) << 10 for line in lines if line.startswith(("Dirty:", "Writeb"))
    )


def measure_topics(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """Messages go round all topics."""
    for at in points:
        topics = int(at)
        with site.broker(topics, 1) as broker:
            sends = Sends([send_frame(name_of(number), 0) for number in range(topics)])
            drive(broker.port, sends, lanes=4, window=64, total=topics)
            yield from site.measure(broker, at, {SEND: partial(send_round, broker.port, sends)})


def send_round(port: int, sends: Sends, messages: int) -> Done:
    """4 connections x 64 in flight."""
    before, total = sends.refused, max(_FEWEST, messages)
    seconds = drive(port, sends, lanes=4, window=64, total=total)
    return Done(messages=total, seconds=seconds, refused=sends.refused - before)


def measure_connections(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """Each connection has had its first request before it begins."""
    request = send_frame("growth-connections", 0)
    for at in points:
        with site.broker() as broker, connections(broker.port, int(at)) as socks:
            walk(socks, request, len(socks))
            yield from site.measure(broker, at, {SEND: partial(walk_round, socks, request)})


def walk_round(socks: Sequence[socket.socket], request: bytes, messages: int) -> Done:
    """One in flight altogether takes eight times as long, so it is an eighth of the messages."""
    total = max(_FEWEST, messages // 8)
    return Done(messages=total, seconds=walk(socks, request, total))


def measure_parked(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """The pulls wait all the time; at the end that is made sure of."""
    for at in points:
        topics = -(-int(at) // PARKED_ON_ONE)
        names = [name_of(number) for number in range(topics)]
        with (
            site.broker(topics, PARKED_ON_ONE) as broker,
            ParkedPulls(broker.port, names, PARKED_ON_ONE, int(at)) as parked,
        ):
            fresh = FreshTopics(broker, "growth-fresh", BODY_BYTES, 64)
            yield from site.measure(broker, at, {SEND: fresh.send})
            parked.check(broker.port)


def measure_size(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """Of large messages fewer are sent: as many bytes as of those of 4 KiB."""
    for at in points:
        with site.broker() as broker:
            share = min(1.0, _FULL_SIZE / at)
            fresh = FreshTopics(broker, "growth-size", int(at), _SIZE_WINDOW, share)
            yield from site.measure(broker, at, {SEND: fresh.send, PULL: fresh.pull})


def measure_groups(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """Few messages, which are pulled again and again."""
    each = 40 * PULL_BATCH
    for at in points:
        with site.broker() as broker:
            fresh = FreshTopics(broker, "growth-groups", BODY_BYTES, 8)
            if refused := fresh.send(each * QUEUES).refused:
                raise RuntimeError(f"{refused} of the messages to be pulled were refused")
            pulls = GroupPulls(fresh.topic, QUEUES, int(at), each)
            yield from site.measure(broker, at, {PULL: partial(pull_round, broker.port, pulls)})


def pull_round(port: int, pulls: GroupPulls, messages: int) -> Done:
    """Four times as many messages as are sent elsewhere, since a pull gets 32."""
    before, total = pulls.messages, max(_FEWEST, 4 * messages // PULL_BATCH)
    seconds = drive(port, pulls, lanes=QUEUES, window=1, total=total)
    return Done(messages=pulls.messages - before, seconds=seconds)


def measure_slaves(site: Site, points: Sequence[float]) -> Iterator[Point]:
    """A group of brokers with a name server of their own for each point."""
    for at in points:
        with site.directory() as path, contextlib.ExitStack() as stack:
            names = harness.name_server("ours", path / "namesrv")
            stack.callback(names.stop)
            names.start()
            brokers = [replica(path, names.address, number) for number in range(int(at) + 1)]
            for broker in brokers:
                stack.enter_context(ending(broker))
                broker.start()
            fresh = FreshTopics(brokers[0], "growth-fresh", BODY_BYTES, 64)
            caught_up = partial(wait_caught_up, brokers[0], brokers[1:])
            yield from site.measure(brokers[0], at, {SEND: fresh.send}, caught_up)


def wait_caught_up(master: harness.Broker, slaves: Sequence[harness.Broker]) -> None:
    """Until every slave has all that the master has now."""
    end = log_end(master)
    wait_until(
        lambda: all(log_end(slave) >= end for slave in slaves), "slaves caught up", _LONG_S, 0.25
    )


def replica(directory: Path, names: str, broker_id: int) -> harness.Broker:
    """The master (0) or a slave of one group, not started. Slaves ask for the tables every ten
    seconds, as by default."""
    role = "SLAVE" if broker_id else "ASYNC_MASTER"
    settings = {"brokerRole": role, "brokerId": str(broker_id), "slaveSyncInterval": "10000"}
    return side_broker(
        "ours",
        directory / str(broker_id),
        names,
        name="growth-group",
        conf={**_FULL_DISK, **settings},
    )


MEASURES: Final[dict[str, Callable[[Site, Sequence[float]], Iterator[Point]]]] = {
    "stored": measure_stored,
    "topics": measure_topics,
    "connections": measure_connections,
    "parked": measure_parked,
    "size": measure_size,
    "slaves": measure_slaves,
    "groups": measure_groups,
}
