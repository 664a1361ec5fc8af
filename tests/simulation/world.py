"""Time, network and processes of a simulated group: one heap of events, one random generator.

Everything that happens follows from the seed. Times are milliseconds. A network between two names
can be cut in either direction; while it is troubled it drops, delays, doubles and reorders.
Processes can be stopped (what arrives waits) and killed (what arrives is lost), and each has a
clock of its own, which drifts and can jump ahead.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

Call = Callable[..., None]


class World:
    """One run."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.trace: list[str] | None = [] if trace else None
        self.cuts: set[tuple[str, str]] = set()
        self.troubled = False
        self.slow_writes = False
        """Writes of controllers reach their store seconds later."""
        self._heap: list[tuple[int, int, Call, tuple[Any, ...]]] = []
        self._count = 0

    def say(self, text: str) -> None:
        """Note what happened, when it is to be read."""
        if self.trace is not None:
            self.trace.append(f"{self.now / 1000:8.3f} {text}")

    def number(self) -> int:
        """One that was never given before."""
        self._count += 1
        return self._count

    def after(self, delay: int, call: Call, *args: Any) -> None:
        """Call in `delay` ms."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, call, args))

    def run(self, until: int) -> None:
        """Let everything up to `until` ms happen."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)
        self.now = until

    def delay(self) -> int:
        """How long one message is under way; less than 0: it is lost."""
        if not self.troubled:
            return 2
        chance = self.rng.random()
        if chance < 0.1:
            return -1
        return int(chance * 40) if chance < 0.8 else int((chance - 0.8) * 12_000)

    def send(self, source: str, target: Node, call: Call, *args: Any, once: bool = True) -> None:
        """One message; `once`: not a datagram, it is not doubled."""
        if self.cuts and (source, target.name) in self.cuts:
            return
        delay = self.delay()
        if delay >= 0:
            self.after(delay, target.take, call, args)
            if not once and self.troubled and self.rng.random() < 0.2:
                self.after(delay + self.rng.randrange(3_000), target.take, call, args)

    def cut(self, one: str, other: str, ms: int) -> None:
        """Nothing gets from `one` to `other` for a while."""
        self.say(f"cut {one} -> {other} for {ms} ms")
        self.cuts.add((one, other))
        self.after(ms, self.cuts.discard, (one, other))


class Node:
    """A process with a clock."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.up = True
        self.stopped = False
        self.clock_offset = world.rng.randrange(1_000_000)
        self.clock_rate = 1 + world.rng.uniform(-0.005, 0.005)
        self._waiting: list[tuple[Call, tuple[Any, ...]]] = []

    def is_up(self) -> bool:
        """Whether it still lives, after what has just been done."""
        return self.up

    def clock(self) -> int:
        """Its monotonic clock, ms."""
        return int(self.world.now * self.clock_rate) + self.clock_offset

    def take(self, call: Call, args: tuple[Any, ...]) -> None:
        """Something has arrived."""
        if not self.up:
            return
        if self.stopped:
            self._waiting.append((call, args))
        else:
            call(*args)

    def stop(self, ms: int) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        if self.up and not self.stopped:
            self.world.say(f"{self.name} is stopped for {ms} ms")
            self.stopped = True
            self.world.after(ms, self.go_on)

    def go_on(self) -> None:
        """SIGCONT: what has arrived meanwhile is read."""
        if self.stopped:
            self.stopped = False
            self.world.say(f"{self.name} goes on")
            waiting, self._waiting = self._waiting, []
            for call, args in waiting:
                self.take(call, args)

    def drop_waiting(self) -> None:
        """What lay in its sockets dies with it."""
        self.stopped = False
        self._waiting = []
