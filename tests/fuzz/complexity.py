"""The complexity fuzzer: no request costs more than linear time and memory in its bytes.

Every place of every request that can grow (tests/fuzz/growth.py) is grown to two largest sizes: one
that texts within a record can have, and a frame of nearly 1 MiB. What takes longer than the floor
is measured at an eighth, a quarter and half of it, too. A finding is a step to twice the size that
takes more than 2.6 times the processor time or peak memory, over two steps; a turn of the loop over
100 ms; a second of all processes together; 64 MiB. Measured is the processor time of this thread,
the least of several runs, since other work on the machine only ever adds to it. What pools and
process `store` do, which is done inline here, is counted apart from the loop's turns.

    python -m tests.fuzz complexity --seconds 3600
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import logging
import math
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from remoting.errors import EncodeError
from remoting.remoting_command import RemotingCommand
from remoting.request_dispatcher import RequestDispatcher
from tests.fuzz import broker_rows, broker_world, namesrv_rows
from tests.fuzz.broker_world import Access, BrokerWorld
from tests.fuzz.growth import Recorded, Trial, recorded, trials
from tests.fuzz.ha_costs import HaCosts, ha_trials
from tests.fuzz.mutation import frames_of
from tests.fuzz.served_connection import ServedConnection, request
from tests.fuzz.table import find_target
from tests.fuzz.turns import Turns

SCALES: Final = (32_000, 1_000_000)
"""The largest sizes: of what fits a record's properties, and of a frame of 1 MiB."""
MOST_GROWTH: Final = 2.6
LONGEST_TURN_S: Final = 0.1
LONGEST_S: Final = 1.0
MOST_MEMORY: Final = 64 << 20
_LIMIT_S: Final = 2.5
"""What takes so long is not waited for."""
_FLOOR_S: Final = 0.008
"""What takes less is not looked at more closely: its growth is noise, and harmless."""
_GROWTH_FLOOR_S: Final = 0.025
"""The same of what is measured at four sizes: a millisecond or two of a quarter says little about
caches that others use, too. Quadratic or not, so little at 1 MiB is harmless."""
_FLOOR_MEMORY: Final = 12 << 20
_STEPS: Final = (8, 4, 2, 1)
_RUNS: Final = 3
_CONFIRMATIONS: Final = 3
"""Of what looks like a finding. On a busy machine one of 150,000 places looked so twice, in the
same second, and was linear whenever it was measured later."""
_PAGE: Final = resource.getpagesize()
_PACE_S: Final = 0.003
"""What `pace` does takes there."""
_VALUES: Final = {
    **broker_rows.ANY_FIELDS,
    "retry": "0",
    "bitSet": "Aw==",
    "extraInfo": "0 1 60000 0 0 broker-a 0 0",
    "subString": "*",
    "expressionType": "TAG",
}
"""Good values of fields that no seed has."""
_LIVES: Final = 1000
_MOST_A_SECOND: Final = 100
"""No machine tries more; what is left out need not be kept in memory."""
_FILE_SIZE: Final = 16 << 20


@dataclass
class Cost:
    """What one frame cost."""

    longest_turn_s: float
    total_s: float
    memory: int

    def least(self, other: Cost) -> Cost:
        """Of two runs."""
        return Cost(
            min(self.longest_turn_s, other.longest_turn_s),
            min(self.total_s, other.total_s),
            min(self.memory, other.memory),
        )


class _Pool:
    """A pool that runs what it is given at once, on somebody else's account."""

    pending = 0

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def try_submit(self, run: Callable[[], None], _refuse: Callable[[str], None]) -> bool:
        """Run it."""
        with self._turns.inside(loop=False):
            run()
        return True


class CostWorld(Protocol):
    """What frames are given to."""

    turns: Turns

    def served(self) -> set[int]:
        """The request codes."""

    def ask(self, data: bytes) -> None:
        """One frame, and whatever follows from it."""

    def close(self) -> None:
        """Give everything back."""


def _account_apart(turns: Turns, server: Any, loop: Any) -> None:
    """Pools and calls to the loop are counted for themselves."""
    dispatcher = server._dispatcher
    pools = {name: _Pool(turns) for name in dispatcher._executors}
    server._dispatcher = RequestDispatcher(
        dispatcher._routes, pools, dispatcher._observer, dispatcher._gate
    )
    call_now = loop.call_soon_threadsafe

    def call_soon(function: Callable[[], None]) -> None:
        with turns.inside(loop=True):
            call_now(function)

    loop.call_soon_threadsafe = call_soon


class BrokerCosts(BrokerWorld):
    """A broker; process `store` is somebody else."""

    def __init__(self, root: Path, *, access: Access = Access.OPEN) -> None:
        self.turns = Turns()
        super().__init__(root, access=access, file_size=_FILE_SIZE)
        _account_apart(self.turns, self._server, self.controller.loop)

    def dispatch(self) -> None:
        with self.turns.inside(loop=False):
            super().dispatch()

    def _allocate(self) -> None:
        # Whole files, whatever is in them.
        with self.turns.apart():
            super()._allocate()

    def served(self) -> set[int]:
        return set(self.controller._routes.main)

    def ask(self, data: bytes) -> None:
        data = self._signed(data)
        peer = self.connect()
        self.turns.begin()
        try:
            peer.feed(data)
            self.turn()
            self.turns.end_turn()
            self.clock.advance(broker_world._HOLD_MS)
            while self.controller._pull.hold_service.scan(self.clock.monotonic_ms()):
                self.turns.end_turn()
            self.controller._messages.append_queue.look()
            self.turn()
            self.turns.end_turn()
            peer._socket.written.clear()
        finally:
            peer.close()
            self.turns.end_turn()


class NamesrvCosts(namesrv_rows.NamesrvWorld):
    """A name server."""

    def __init__(self, root: Path) -> None:
        self.turns = Turns()
        super().__init__(root)
        _account_apart(self.turns, self._server, self._controller._loop)

    def served(self) -> set[int]:
        return set(self._server._dispatcher._routes)

    def ask(self, data: bytes) -> None:
        peer = ServedConnection(self._server, self._controller._loop)
        self.turns.begin()
        try:
            peer.feed(data)
            self._server.flush()
            self.turns.end_turn()
            peer._socket.written.clear()
        finally:
            peer.close()
            self.turns.end_turn()


WORLDS: Final[dict[str, Callable[[Path], CostWorld]]] = {
    "broker": BrokerCosts,
    "broker-acl": functools.partial(BrokerCosts, access=Access.ACCOUNTS),
    "broker-users": functools.partial(BrokerCosts, access=Access.USERS),
    "namesrv": NamesrvCosts,
    "ha": HaCosts,
}
"""A broker that lets in everybody; one with the accounts of 4.9, one with the users of 5.x, asked
with an account that has all rights on topics and groups, and is no operator; and two others."""
SHARES: Final = {
    "broker": 0.5,
    "broker-acl": 0.12,
    "broker-users": 0.14,
    "namesrv": 0.16,
    "ha": 0.08,
}
"""Of the time that a run has, by the number of places."""


def seeds_of(world: str) -> Sequence[bytes]:
    """The requests of `world` that are grown."""
    return find_target("namesrv").seeds() if world == "namesrv" else broker_rows.seeds()


class _TooLongError(BaseException):
    """Raised into what has taken processor time for too long; no guard catches it."""


def _give_up(_number: int, _frame: object) -> None:
    raise _TooLongError


class Measure:
    """A context manager: one kind of world, made anew after some frames."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._make = WORLDS[kind]
        self._left = 0
        self._world: CostWorld | None = None
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._directory = Path(tempfile.mkdtemp(prefix=f"complexity-{kind}-", dir=memory))
        self._peak = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Measure:
        self._handler = signal.signal(signal.SIGVTALRM, _give_up)
        # Megabytes of hostile text: formatted by nobody, as a file's handler cuts each line short.
        self._disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGVTALRM, self._handler)
        logging.disable(self._disabled)
        self.forget()
        # As before: what a whole run has imported is not looked through for the tests that follow.
        gc.freeze()
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._peak)
        os.close(self._statm)

    def world(self) -> CostWorld:
        """The one that lives."""
        if self._world is None or self._left <= 0:
            self.forget()
            directory = self._directory / "world"
            directory.mkdir()
            self._world = self._make(directory)
            self._left = _LIVES
            gc.collect()
            gc.freeze()
        return self._world

    def forget(self) -> None:
        """The next frame has a new world."""
        world, self._world = self._world, None
        if world is not None:
            gc.unfreeze()
            with contextlib.suppress(Exception):
                world.close()
            shutil.rmtree(self._directory / "world", ignore_errors=True)

    def cost(self, data: bytes) -> Cost:
        """What `data` costs in this world."""
        world = self.world()
        self._left -= 1
        os.pwrite(self._peak, b"5", 0)
        before = int(os.pread(self._statm, 100, 0).split()[1]) * _PAGE
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT_S)
        try:
            world.ask(data)
        except (Exception, _TooLongError):  # noqa: BLE001
            # What raises is a finding of the other targets; here its cost counts.
            self._left = 0
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        return Cost(world.turns.longest_s, world.turns.total_s, max(0, grown))


@dataclass
class Outcome:
    """Of a run."""

    trials: int = 0
    left: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    """Place, and what it cost."""
    longest: list[tuple[float, str]] = field(default_factory=list)
    """The longest turns that are no finding."""


def commands_of(kind: str) -> list[RemotingCommand]:
    """One command of each code, form and set of fields."""
    found: dict[Any, RemotingCommand] = {}
    for data in seeds_of(kind):
        for command in frames_of(data):
            names = frozenset(command.ext_fields)
            key = (command.code, command.serialize_type, names, command.body[:1] in b"{[")
            found.setdefault(key, command)
    return list(found.values())


def all_trials(measure: Measure) -> Iterator[Trial]:
    """Every place of every request that the world serves."""
    if measure.kind == "ha":
        yield from ha_trials()
        return
    served = measure.world().served()
    for command in commands_of(measure.kind):
        if command.code in served:
            yield from trials(command, read_as(measure, command), _VALUES)


def read_as(measure: Measure, command: RemotingCommand) -> Recorded:
    """The types that the world reads it as; one without a body is given an empty object."""
    body = command.body or b"{}"
    data = request(command.code, command.ext_fields, body)
    return recorded(lambda: measure.cost(data))


def run(kind: str, seconds: float, seed: int) -> Outcome:
    """Try as many places as the time allows, in an order of `seed`; to find them does not count: on
    a busy machine that would be all."""
    outcome = Outcome()
    with Measure(kind) as measure:
        waiting = in_turn(all_trials(measure), seed, most=int(seconds * _MOST_A_SECOND))
        until_s = time.monotonic() + seconds
        while waiting and time.monotonic() < until_s:
            trial, scale = waiting.pop()
            outcome.trials += 1
            judge(measure, trial, scale, outcome)
        outcome.left = len(waiting)
    return outcome


def in_turn(found: Iterable[Trial], seed: int, most: int) -> list[tuple[Trial, int]]:
    """Trials and scales, to be popped: one of each place, then another one of each."""
    rng = random.Random(seed)
    places: dict[Any, list[tuple[Trial, int]]] = {}
    for trial in found:
        places.setdefault(trial.place, []).extend((trial, scale) for scale in SCALES)
    each_has = 1 + most // max(1, len(places))
    ordered = []
    for waiting in places.values():
        taken = rng.sample(waiting, min(each_has, len(waiting)))
        ordered += [(number, rng.random(), each) for number, each in enumerate(taken)]
    ordered.sort(key=lambda row: row[:2], reverse=True)
    return [each for _, _, each in ordered]


def judge(measure: Measure, trial: Trial, scale: int, outcome: Outcome) -> None:
    """Note in `outcome` what `trial` costs too much at `scale`."""
    name = f"{measure.kind} {trial.code} {trial.name} ({scale})"
    try:
        largest = measure.cost(trial.build(scale, next(_salts)))
        if largest.total_s < _FLOOR_S and largest.memory < _FLOOR_MEMORY:
            return
        costs = _costs(measure, trial, scale, largest)
    except EncodeError:
        return  # No client can send it.
    words = _objection(costs)
    if words is None:
        outcome.longest.append((costs[-1].longest_turn_s, name))
        return
    # Again, each time in a new world: what is due to the machine does not come every time.
    for _ in range(_CONFIRMATIONS):
        measure.forget()
        words = _objection(_costs(measure, trial, scale, None))
        if words is None:
            return
    outcome.findings[name] = words
    measure.forget()


_salts = itertools.count()


def _costs(measure: Measure, trial: Trial, scale: int, largest: Cost | None) -> list[Cost]:
    """At an eighth, a quarter, half of and all of `scale`: the least of some runs."""
    if largest is None:
        largest = measure.cost(trial.build(scale, next(_salts)))
    if largest.total_s > LONGEST_S * pace():
        return [largest]
    costs = []
    for step in _STEPS:
        best = largest
        for number in range(_RUNS):
            cost = measure.cost(trial.build(scale // step, next(_salts)))
            best = cost if step > 1 and not number else best.least(cost)
        costs.append(best)
    return costs


def pace() -> float:
    """How much slower than the machine of docs/costs.md this one is now, at least 1: objects are
    made and copied, as in a request; other work on the same cores counts, too."""
    least_s = math.inf
    for _ in range(5):
        began_s = time.thread_time()
        made = [(number, b"%d" % number, str(number)) for number in range(20_000)]
        b"".join(text for _, text, _ in made).split(b"1")
        least_s = min(least_s, time.thread_time() - began_s)
    return max(1.0, least_s / _PACE_S)


def _objection(costs: Sequence[Cost]) -> str | None:
    last = costs[-1]
    times = ", ".join(f"{1000 * cost.total_s:.1f}" for cost in costs)
    memory = ", ".join(f"{cost.memory / (1 << 20):.0f}" for cost in costs)
    words = f"{times} ms (turn {1000 * last.longest_turn_s:.1f}), {memory} MiB"
    if last.longest_turn_s > LONGEST_TURN_S * pace():
        return f"a turn of {1000 * last.longest_turn_s:.0f} ms: {words}"
    if last.total_s > LONGEST_S * pace() or last.memory > MOST_MEMORY:
        return f"too much: {words}"
    if len(costs) < len(_STEPS):
        return None
    # Over two steps: one alone is at the mercy of caches and of other work on the machine.
    before = costs[-3]
    most = MOST_GROWTH**2
    if last.total_s > max(_GROWTH_FLOOR_S * pace(), most * before.total_s):
        return f"time grows by {last.total_s / before.total_s:.1f} in two steps: {words}"
    if last.memory > max(_FLOOR_MEMORY, most * before.memory) and before.memory > 1 << 20:
        return f"memory grows by {last.memory / before.memory:.1f} in two steps: {words}"
    return None
