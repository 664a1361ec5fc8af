"""Random days of a broker group as lists of events in true time, and the truth that follows.

One seed makes one Story: lives of the master (clean stops, kills, another broker id, an empty
machine in its place), what each slave's link did, stalls of slaves that stay in sync, a process
`ha` that is dead or hangs, a machine that stands still, a disk that is full, a wall clock that is
wrong for a while. All moments are whole milliseconds of a clock that is never wrong. `truth` says
how long each replica was not what it should be, from these events alone; what a broker writes of
them is made by day_generator.py. Standard library only; must not import anything of spark/.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

DATE: Final = datetime.date(2026, 3, 10)
MIDNIGHT: Final = int(datetime.datetime(2026, 3, 10, tzinfo=datetime.UTC).timestamp()) * 1000
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

IN_SYNC: Final = "in_sync"
CATCHING_UP: Final = "catching_up"
DISCONNECTED: Final = "disconnected"

LOOK_MS: Final = 200
"""How often a master looks at its replicas."""
GAP_MS: Final = 2_000
"""A longer silence of process `ha` is booked as disconnected time."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Disturbance:
    """[start, end) in which a link is not in sync. `kind`: `outage`, `behind` (connected, catching
    up), and those of the whole master: `ha dead`, `ha hangs`, `asleep`."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Lag:
    """From `start` to `end` the lag goes from `first_ms` by `slope` a millisecond."""

    start: int
    end: int
    first_ms: int
    slope: float

    def at(self, moment: int) -> int:
        """The lag at a moment of it, ms."""
        return max(0, round(self.first_ms + self.slope * (moment - self.start)))

    def above(self, limit: int) -> list[Span]:
        """When it is above `limit`."""
        if self.slope == 0:
            return [(self.start, self.end)] if self.first_ms > limit else []
        crossing = self.start + round((limit - self.first_ms) / self.slope)
        if self.slope > 0:
            begin = min(max(crossing, self.start), self.end)
            return [(begin, self.end)] if begin < self.end else []
        end = max(min(crossing, self.end), self.start)
        return [(self.start, end)] if self.start < end else []


@dataclass
class Link:
    """What one replica did in one life of a master."""

    states: list[tuple[int, str]] = field(default_factory=list)
    """(since, state), ascending; the first is the life's start."""
    lags: list[Lag] = field(default_factory=list)
    first_connected: int | None = None
    was_remembered: bool = False
    """The master knew it from a life before."""

    def state_at(self, moment: int) -> str:
        """The true state."""
        place = bisect.bisect_right(self.states, moment, key=lambda state: state[0]) - 1
        return self.states[place][1]

    def lag_at(self, moment: int) -> int:
        """Of one in sync; the time since it was in sync of any other."""
        place = bisect.bisect_right(self.states, moment, key=lambda state: state[0]) - 1
        if self.states[place][1] == IN_SYNC:
            lag = next((lag for lag in self.lags if lag.start <= moment < lag.end), None)
            return 0 if lag is None else lag.at(moment)
        while place > 0 and self.states[place - 1][1] != IN_SYNC:
            place -= 1
        return moment - self.states[place][0]


@dataclass
class Life:
    """One boot of one broker as a master. `end` is the moment of its stop or death."""

    start: int
    end: int
    clean: bool
    broker_id: int
    machine: int
    """Machines have dump files and a memory of replicas of their own."""
    boot: str
    look_phase: int
    first_look_ms: int
    version: int = 1
    """Of the lines that it writes."""
    machine_on: int = 0
    """When its machine was switched on, and how often before: day_machines.py."""
    reboots: int = 0
    blind: list[Disturbance] = field(default_factory=list)
    """In which nobody looks: process `ha` or the whole machine stands still."""
    links: dict[str, Link] = field(default_factory=dict)


@dataclass
class Story:
    """A day's events, and what is asked of them."""

    seed: int
    name: str
    w0: int
    w1: int
    interval_ms: int
    limit_ms: int
    availability_percent: float
    min_coverage_percent: float
    expects: bool
    lives: list[Life] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)
    """(since, ms that the wall clock is ahead), ascending."""
    unwritten: list[Span] = field(default_factory=list)
    """The disk is full."""
    skew: dict[int, int] = field(default_factory=dict)
    """Machine -> ms that its wall clock is ahead all the time."""
    sends: list[Any] = field(default_factory=list)
    """day_objectives.Sends."""
    copies: Any = None
    """day_objectives.Copies of a slave that writes lines, too."""
    rivals: list[Life] = field(default_factory=list)
    """Masters of the same name beside those of `lives`."""
    tells_machine: bool = True
    """Lines of version 2 say which boot of its machine a broker lives in; `is_held`: and that a
    time service holds the clock, when it does."""
    is_held: bool = False
    keeps_ends: bool = False
    """A broker's counters of sends outlive its kill, and its next life tells of them."""
    named_after: dict[str, int] = field(default_factory=dict)
    """Replica -> how long (ms) it goes by its ip when it is new to a master."""
    loses_past: bool = False
    """The files of the first life are gone."""
    was_slave_until: dict[int, int] = field(default_factory=dict)
    """Machine -> when the slave's life of its broker ended, before it was promoted."""
    returns: dict[int, int] = field(default_factory=dict)
    """Machine -> when its broker, that was a master, comes back as a slave."""
    asks: set[str] = field(default_factory=set)
    """Which of day_objectives.CRITERIA its objective sets."""
    lag_p99_ms: int = 10_000
    rpo_bytes: int = 1_000_000
    sync_ok_percent: float = 99.9
    sends_ok_percent: float = 99.9
    metadata_age_ms: int = 60_000
    consumers: list[Any] = field(default_factory=list)
    """day_groups.Consumer: of which the lines of version 2 tell."""
    lag_seconds: int = 60
    lag_messages: int | None = None
    lag_percent: float = 99.0

    @property
    def skew_ms(self) -> int:
        """How far two clocks may be apart."""
        return max(self.skew.values(), default=0) - min([0, *self.skew.values()])

    def clock_offset(self, moment: int) -> int:
        """How far the wall clock is ahead, ms."""
        place = bisect.bisect_right(self.clock, moment, key=lambda step: step[0]) - 1
        return self.clock[place][1] if place >= 0 else 0

    @property
    def is_shifted(self) -> bool:
        """The wall clock is wrong at an edge of the window: it shows another time than the true
        one."""
        return bool(self.clock_offset(self.w0) or self.clock_offset(self.w1))

    @property
    def replicas(self) -> list[str]:
        """Every slave that was ever connected."""
        return sorted(
            {
                name
                for life in self.lives
                for name, link in life.links.items()
                if link.first_connected is not None
            }
        )

    @property
    def budget_ms(self) -> float:
        """Bad time that the objective allows."""
        return (self.w1 - self.w0) * (100 - self.availability_percent) / 100

    def events(self) -> list[str]:
        """All of it as text, in seconds of the window's begin: to read when a test fails."""

        def at(moment: int) -> str:
            return f"{(moment - self.w0) / 1000:+.3f}"

        found = [
            f"window {(self.w1 - self.w0) / 1000:.0f} s from {(self.w0 - MIDNIGHT) / 1000:.0f},"
            f" interval {self.interval_ms}, limit {self.limit_ms},"
            f" objective {self.availability_percent}, coverage {self.min_coverage_percent},"
            f" expects {self.expects}"
        ]
        for life in self.lives:
            end = "stop" if life.clean else "kill"
            found.append(
                f"{at(life.start)} boot {life.boot[:8]} of broker {life.broker_id} on machine"
                f" {life.machine}, {end} {at(life.end)}"
            )
            found += [f"  {at(b.start)} {b.kind} until {at(b.end)}" for b in life.blind]
            for name, link in life.links.items():
                found += [f"  {at(since)} {name} {state}" for since, state in link.states]
                found += [
                    f"  {at(lag.start)} {name} lag from {lag.first_ms} by {lag.slope:.3f} until"
                    f" {at(lag.end)}"
                    for lag in link.lags
                ]
        found += [f"{life.boot[:8]} writes version {life.version}" for life in self.lives]
        found += [f"machine {number} ahead by {ahead}" for number, ahead in self.skew.items()]
        found += [
            f"{at(life.start)} rival {life.boot[:8]} until {at(life.end)}, clean {life.clean}"
            for life in self.rivals
        ]
        found += [
            f"{at(each.start)} sends {each.result} every {each.every_ms} until {at(each.end)}"
            for each in self.sends
        ]
        found.append(
            f"asks {sorted(self.asks)}, lag p99 {self.lag_p99_ms}, rpo {self.rpo_bytes},"
            f" sync {self.sync_ok_percent}, sends {self.sends_ok_percent},"
            f" metadata {self.metadata_age_ms}"
        )
        found += [f"{at(since)} clock ahead by {ahead}" for since, ahead in self.clock]
        found += [
            f"machine {life.machine} of {life.boot[:8]} on since {at(life.machine_on)}"
            for life in self.lives
        ]
        found.append(f"tells its machine {self.tells_machine}, clock held {self.is_held}")
        found += [f"machine {n} slave until {at(ms)}" for n, ms in self.was_slave_until.items()]
        found += [f"machine {n} back as a slave {at(ms)}" for n, ms in self.returns.items()]
        found.append(f"tells of ends {self.keeps_ends}, lost its past {self.loses_past}")
        found += [f"{name} is named after {ms} ms" for name, ms in self.named_after.items()]
        for each in self.consumers:
            found += [f"{at(a)} {each.name} pauses until {at(b)}" for a, b in each.pauses]
            ends = f"since {at(each.since)} until {at(each.until)}"
            found.append(f"{each.name} is there {ends}, a message each {each.every_ms}")
        lag = f"{self.lag_seconds} s, {self.lag_messages} messages, {self.lag_percent}"
        found.append(f"consumer lag {lag}")
        found += [f"{at(a)} disk full until {at(b)}" for a, b in self.unwritten]
        return found


# -- the truth -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Of one replica in the window, ms.

    bad_ms: the master was dead, or the replica not in sync, or its lag above the limit
    charged_ms: as far as anybody can charge it: since it is known, without a first copy
    changes: of its state, and of whether its lag is above the limit
    """

    bad_ms: int
    charged_ms: int
    changes: int

    @property
    def tolerance_ms(self) -> int:
        """What counters that look five times a second may miss: each change up to LOOK_MS."""
        return LOOK_MS * self.changes


def truth(story: Story, replica: str, known_from: int) -> Truth:
    """`known_from`: when somebody first heard of it. If that was in the window, the time that it is
    catching up from then on, until it is in sync, is its first copy."""
    good: list[Span] = []
    copying: list[Span] = []
    changes = 0
    is_copying = known_from >= story.w0
    for life in story.lives:
        changes += 2 * _touches(story, life.start, life.end) + 2 * len(life.blind)
        link = life.links.get(replica)
        if link is None:
            continue
        states = [*link.states, (life.end, DISCONNECTED)]
        for (since, state), (until, _) in itertools.pairwise(states):
            changes += _touches(story, since, until)
            if state == IN_SYNC:
                high = joined(span for lag in link.lags for span in lag.above(story.limit_ms))
                high = clip(high, since, until)
                changes += 2 * len(high)
                good += without((since, until), high)
                is_copying = is_copying and until <= known_from
            elif state == CATCHING_UP and is_copying:
                copying.append((since, until))
    copying = clip(copying, max(story.w0, known_from), story.w1)
    bad = without((story.w0, story.w1), joined(good))
    charged = clip(bad, max(story.w0, known_from), story.w1)
    return Truth(total(bad), total(charged) - total(copying), changes)


def _touches(story: Story, start: int, end: int) -> bool:
    return start < story.w1 and end > story.w0


def joined(spans: Iterable[Span]) -> list[Span]:
    """Ascending and apart from each other."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def clip(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """Their parts in [start, end)."""
    return [(max(a, start), min(b, end)) for a, b in spans if a < end and b > start]


def without(span: Span, holes: list[Span]) -> list[Span]:
    """What is left of `span`; `holes` are ascending and apart from each other."""
    found, at = [], span[0]
    for start, end in holes:
        if start > at:
            found.append((at, start))
        at = max(at, end)
    return [*found, (at, span[1])] if at < span[1] else found


def total(spans: Iterable[Span]) -> int:
    """Their length, ms."""
    return sum(end - start for start, end in spans)


# -- random stories --------------------------------------------------------------------------


def random_story(seed: int, name: str = "b", window: Span | None = None) -> Story:
    """The day of this seed; `name` of the broker group. `window`: else a random one."""
    return _Teller(seed, name, window).tell()


class _Teller:
    """Makes up one Story."""

    def __init__(self, seed: int, name: str, window: Span | None) -> None:
        self.chance = chance = random.Random(f"day {seed}")
        self.trouble = chance.choices((0.0, 0.4, 1.0, 3.0), (3, 4, 4, 2))[0]
        interval = chance.choice((10_000, 20_000, 30_000, 60_000, 60_000, 60_000))
        if chance.random() < 0.08:
            interval = 5_000
        w0, w1 = window or self._window(interval)
        with_lag = chance.random() < 0.6
        limit = chance.choice((interval, 2 * interval, 3 * interval + 500, 60_000))
        self.story = Story(
            seed=seed,
            name=name,
            w0=w0,
            w1=w1,
            interval_ms=interval,
            limit_ms=max(limit, interval) if with_lag else chance.choice((500, 1_000, interval)),
            availability_percent=chance.choice((50.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99)),
            min_coverage_percent=chance.choice((1.0, 50.0, 90.0, 99.0)),
            expects=chance.random() < 0.5,
        )
        self.with_lag = with_lag
        self.slaves = [f"{name}:1", f"{name}:2"][: chance.choice((1, 1, 2))]
        self.boots = 0
        self.remembered: dict[int, set[str]] = {}

    def _window(self, interval: int) -> Span:
        chance = self.chance
        if chance.random() < 0.004:
            return MIDNIGHT, MIDNIGHT + DAY
        length = max(20 * MINUTE, chance.randrange(20, 60) * interval) // MINUTE * MINUTE
        where = chance.random()
        if where < 0.15:
            return MIDNIGHT, MIDNIGHT + length
        if where < 0.3:
            return MIDNIGHT + DAY - length, MIDNIGHT + DAY
        w0 = MIDNIGHT + chance.randrange((DAY - length) // MINUTE) * MINUTE
        return w0, w0 + length

    def tell(self) -> Story:
        """The whole of it."""
        story, chance = self.story, self.chance
        begin = story.w0 - chance.choice((0, 3, 10, 20)) * (story.interval_ms + 17)
        if chance.random() < 0.15:
            begin = story.w0 + chance.choice((-3 * HOUR, (story.w1 - story.w0) // 3))
        end = story.w1 + chance.choice((0, 1, 3, 10, 30)) * story.interval_ms + 777
        if chance.random() < 0.3:
            story.clock = self._wrong_clock()
        self._lives(begin, end)
        for _ in range(self._count(0.15)):
            a = self._moment(begin, end)
            story.unwritten.append((a, a + self._length(20 * story.interval_ms)))
        return story

    def _count(self, mean: float) -> int:
        """How many of something there are."""
        mean *= self.trouble
        return sum(self.chance.random() < mean / 4 for _ in range(4)) if mean < 4 else round(mean)

    def _moment(self, start: int, end: int) -> int:
        return self.chance.randrange(start, max(end, start + 1))

    def _length(self, most: int) -> int:
        """Small ones are likelier."""
        return max(1, round(most * self.chance.random() ** 3))

    def _wrong_clock(self) -> list[tuple[int, int]]:
        """Wrong within the window, right at both of its ends."""
        story, chance = self.story, self.chance
        margin = 2 * story.interval_ms
        steps: list[tuple[int, int]] = []
        for _ in range(chance.choice((1, 1, 2))):
            since = self._moment(story.w0 + margin, story.w1 - margin)
            ahead = chance.choice((-1, 1)) * self._length(
                chance.choice((20_000, 600_000, 2 * HOUR))
            )
            steps.append((since, ahead))
        steps.sort()
        back = self._moment(steps[-1][0] + 1, story.w1 - margin + 2)
        return [*steps, (back, 0)]

    def _lives(self, begin: int, end: int) -> None:
        chance, story = self.chance, self.story
        machine, broker_id, at = 0, 0, begin
        restarts = self._count(0.8)
        cuts = sorted(self._moment(begin, end) for _ in range(restarts))
        for cut in [*cuts, end]:
            if cut - at < 3_000:
                continue
            is_last = cut == end
            story.lives.append(
                self._life(at, cut, broker_id, machine, clean=not is_last and chance.random() < 0.5)
            )
            at = cut + chance.choice((300, 3_000, 20_000, self._length(15 * story.interval_ms)))
            what = chance.random()
            if what < 0.2:
                machine += 1
                broker_id = chance.choice((0, *(int(s.rpartition(":")[2]) for s in self.slaves)))
                promoted = f"{story.name}:{broker_id}"
                if promoted in self.slaves and chance.random() < 0.8:
                    self.slaves = [s for s in self.slaves if s != promoted]
                    self.slaves.append(f"{story.name}:{7 + machine}")
            elif what < 0.35:
                machine += 1  # The master came back as an empty machine.
            elif what < 0.45:
                break  # It stays dead.

    def _life(self, start: int, end: int, broker_id: int, machine: int, *, clean: bool) -> Life:
        chance = self.chance
        self.boots += 1
        life = Life(
            start,
            end,
            clean,
            broker_id,
            machine,
            boot=f"{chance.getrandbits(32):08x}{self.boots:08x}",
            look_phase=chance.randrange(LOOK_MS),
            first_look_ms=chance.choice((30, 300, 2_500, 9_000)),
        )
        room = end - start
        for _ in range(self._count(0.4)):
            kind = chance.choice(("ha dead", "ha dead", "ha hangs", "asleep"))
            least = 100 if kind == "ha dead" else GAP_MS + 300
            a = self._moment(start + life.first_look_ms, end)
            self._add_apart(life.blind, a, least + self._length(room // 20 + 20_000), kind, life)
        known = self.remembered.setdefault(machine, set())
        for slave in self.slaves:
            link = self._link(life, slave in known)
            if link.first_connected is not None:
                known.add(slave)
            if link.first_connected is not None or link.was_remembered:
                life.links[slave] = link
        for name in known - set(self.slaves):
            life.links[name] = Link([(start, DISCONNECTED)], was_remembered=True)
        return life

    def _add_apart(
        self, some: list[Disturbance], start: int, length: int, kind: str, life: Life
    ) -> None:
        """Unless it would touch another one, or the end of the life."""
        new = Disturbance(start, start + length, kind)
        apart = all(new.start > old.end + 2_500 or new.end + 2_500 < old.start for old in some)
        if apart and new.end + 2_500 < life.end and new.start > life.start + life.first_look_ms:
            some.append(new)
            some.sort(key=lambda one: one.start)

    def _link(self, life: Life, was_remembered: bool) -> Link:
        """Its states: disconnected, then catching up, then in sync until something happens."""
        chance, story = self.chance, self.story
        some = [*life.blind]
        room = life.end - life.start
        pace = chance.choice((1, 1, 1, 8))
        for _ in range(self._count(0.7 * pace)):
            kind = chance.choices(("outage", "behind"), (4, 1))[0]
            most = chance.choice((story.interval_ms, 3 * story.interval_ms, room // 4)) // pace
            a = self._moment(life.start, life.end)
            some.append(Disturbance(a, a + self._length(most + 500), kind))
        some.sort(key=lambda one: one.start)
        link = Link([(life.start, DISCONNECTED)], was_remembered=was_remembered)
        free = life.start + life.first_look_ms + chance.choice((60, 700, 4_000))
        if chance.random() < 0.08:
            free += self._length(room)
        copy_ms = chance.choice((100, 900, 5_000))
        if chance.random() < 0.1:
            copy_ms = self._length(room // 2)
        ends = [*some, Disturbance(life.end, life.end, "end")]
        for each in ends:
            if each.start > free:
                synced = self._connect(link, free, each.start, copy_ms)
                if synced is not None:
                    self._stall(link, synced, each.start)
                copy_ms = chance.choice((50, 300, 2_000))
            if each.kind == "end":
                break
            if each.kind == "behind":
                if link.states[-1][1] != IN_SYNC:
                    continue
                link.states.append((each.start, CATCHING_UP))
                free = max(free, min(each.end, life.end))
                copy_ms = 1
                continue
            if link.states[-1][1] != DISCONNECTED:
                link.states.append((each.start, DISCONNECTED))
            free = max(free, each.end + chance.choice((10, 150, 1_000, 3_000)))
        return link

    def _connect(self, link: Link, at: int, until: int, copy_ms: int) -> int | None:
        """Connected from `at` on; since when it is in sync, if it gets there before `until`."""
        if link.states[-1][1] == DISCONNECTED:
            link.states.append((at, CATCHING_UP))
            if link.first_connected is None:
                link.first_connected = at
        if at + copy_ms >= until:
            return None
        link.states.append((at + copy_ms, IN_SYNC))
        return at + copy_ms

    def _stall(self, link: Link, start: int, end: int) -> None:
        """Times between in which the lag of a replica in sync grows and falls again."""
        if not self.with_lag:
            return
        chance, story = self.chance, self.story
        at = start
        for _ in range(self._count(0.8)):
            a = at + self._length(end - start)
            rising = self._length(3 * story.limit_ms) + 500
            slope = chance.choice((1.0, 1.0, 0.7))
            falling = chance.choice((0, 150, 3_000, rising))
            b, c = a + rising, a + rising + falling
            if c + 1_000 >= end:
                break
            top = round(rising * slope)
            link.lags.append(Lag(a, b, 0, slope))
            if falling:
                link.lags.append(Lag(b, c, top, -top / falling))
            at = c + 100
