"""What a random day (day_events.py) has beside the states of its replicas, and the truth of it.

Sends that waited for replicas and how they ended, data at risk, lag, copies of a slave's metadata,
a second master of the same name. Like the states all of it is events in true time; the broker that
writes the lines is day_generator.py. Standard library only; must not import anything of spark/.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.spark.day_events import (
    DISCONNECTED,
    IN_SYNC,
    Life,
    Link,
    Span,
    Story,
    clip,
    joined,
)

BYTES_A_MS: Final = 40
"""How fast producers write; of that every send stores a record of at least 91 bytes."""
LEAST_SEND_MS: Final = 10
CRITERIA: Final = ("lag p99", "sync ok", "rpo", "metadata age", "sends ok")
REFUSED: Final = "refused"
"""Of a send that nothing is promised of: it stores no record, and waits for nobody."""


# -- sends -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sends:
    """One send every `every_ms` from `start` on, before `end`, while a master lives."""

    start: int
    end: int
    every_ms: int
    result: str

    def within(self, start: int, end: int) -> int:
        """How many there are in [start, end)."""
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:
            return 0
        first = -(-(start - self.start) // self.every_ms)
        return max(0, -(-(end - self.start) // self.every_ms) - first)


def counted(sends: Iterable[Sends], start: int, end: int) -> dict[str, int]:
    """By result."""
    found: dict[str, int] = {}
    for each in sends:
        found[each.result] = found.get(each.result, 0) + each.within(start, end)
    return found


# -- data at risk ------------------------------------------------------------------------------


def lag_at(life: Life, moment: int) -> int:
    """Of the replica that has most of the log, ms; without any, nobody has what this life wrote."""
    return min((link.lag_at(moment) for link in life.links.values()), default=moment - life.start)


def most_lag(life: Life, start: int, end: int) -> int:
    """The largest `lag_at` in [start, end]: between the moments at which something changes every
    lag goes on in a straight line, and so does the least of them between their crossings."""
    moments = {start, end}
    for link in life.links.values():
        for moment in _changes(link):
            moments |= {m for m in (moment - 1, moment) if start <= m <= end}
    found = max(lag_at(life, moment) for moment in moments)
    if len(life.links) > 1:
        # Where two lines cross their lesser one may have its peak between two changes.
        for a, b in itertools.pairwise(sorted(moments)):
            found = max(found, _peak(life, a, b))
    return found


def _peak(life: Life, a: int, b: int) -> int:
    """Of a least of straight lines: it has one peak; found by halving."""
    while b - a > 2:
        one, other = a + (b - a) // 3, b - (b - a) // 3
        if lag_at(life, one) < lag_at(life, other):
            a = one
        else:
            b = other
    return max(lag_at(life, moment) for moment in range(a, b + 1))


def _changes(link: Link) -> list[int]:
    return [
        *(since for since, _ in link.states),
        *(moment for lag in link.lags for moment in (lag.start, lag.end)),
    ]


def sent(story: Story, *, with_refused: bool = False) -> tuple[int, int]:
    """(ok, failed) in the window, by the clock of the machine that answered."""
    ok = failed = 0
    for life in story.lives:
        ahead = story.skew.get(life.machine, 0)
        start, end = max(life.start, story.w0 - ahead), min(life.end, story.w1 - ahead)
        for result, count in counted(story.sends, start, end).items():
            if result != REFUSED or with_refused:
                ok, failed = ok + count * (result == "ok"), failed + count * (result != "ok")
    return ok, failed


def exposure(story: Story) -> int:
    """The most bytes that were at risk in the window, at any moment at which a master lived; by
    the clock of its machine."""
    found = 0
    for life in story.lives:
        ahead = story.skew.get(life.machine, 0)
        start, end = max(life.start, story.w0 - ahead), min(life.end, story.w1 - ahead)
        if start < end:
            found = max(found, most_lag(life, start, end - 1) * BYTES_A_MS)
    return found


# -- the lag -----------------------------------------------------------------------------------


def above(story: Story, replica: str, limit_ms: int) -> list[Span]:
    """When the lag of a replica was above a limit, while a master lived that knew of it."""
    found: list[Span] = []
    for life in story.lives:
        link = life.links.get(replica)
        if link is None:
            continue
        states = [*link.states, (life.end, DISCONNECTED)]
        away: int | None = None
        for (since, state), (until, _) in itertools.pairwise(states):
            if state == IN_SYNC:
                away = None
                found += clip((s for lag in link.lags for s in lag.above(limit_ms)), since, until)
                continue
            away = since if away is None else away
            found += clip([(away + limit_ms, until)], since, until)
    return clip(joined(span for span in found if span[0] < span[1]), story.w0, story.w1)


# -- metadata ----------------------------------------------------------------------------------


@dataclass
class Copies:
    """A slave that copies one kind of metadata. `lives`: [start, end) of its boots; `successes`:
    ascending, each within a life."""

    broker_id: int
    lives: list[Span] = field(default_factory=list)
    successes: list[int] = field(default_factory=list)
    is_rebooted: bool = False
    """Its machine is, between two lives."""

    def switched_on(self, start: int) -> int:
        """When the machine of the life that began at `start` was."""
        return start if self.is_rebooted and start != self.lives[0][0] else self.lives[0][0]

    def last(self, moment: int) -> int | None:
        """The last success up to a moment."""
        place = bisect.bisect_right(self.successes, moment) - 1
        return self.successes[place] if place >= 0 else None

    def age(self, moment: int) -> int | None:
        """How old the copy is; None before the first one."""
        last = self.last(moment)
        return None if last is None else moment - last

    def most(self, start: int, end: int) -> int | None:
        """The largest age in [start, end]: just before a success, or at the end."""
        first = self.last(start)
        inside = [s for s in self.successes if start < s <= end]
        chain = [*([first] if first is not None else []), *inside]
        if not chain:
            return None
        ends = [*chain[1:], end]
        return max(b - a for a, b in zip(chain, ends, strict=True))


def tell_more(story: Story) -> None:
    """Makes up all of it for a story whose lives are told."""
    chance = random.Random(f"more {story.seed}")
    begin = min((life.start for life in story.lives), default=story.w0)
    end = max((life.end for life in story.lives), default=story.w1)
    story.lag_p99_ms = chance.choice((1_000, 5_000, 10_000, 60_000))
    story.rpo_bytes = chance.choice((100_000, 500_000, 2_000_000, 10_000_000))
    story.sync_ok_percent = chance.choice((90.0, 99.0, 99.9))
    story.asks = {name for name in CRITERIA[:4] if chance.random() < 0.4}
    story.metadata_age_ms = chance.choice((10_000, 30_000, 120_000))
    old = chance.random()
    for place, life in enumerate(story.lives):
        # All lines old, all new, or the broker was updated in between.
        life.version = 1 if old < 0.2 or (old < 0.3 and place == 0) else 2
        if chance.random() < 0.25:
            story.skew.setdefault(life.machine, chance.randrange(-800, 801))
    _tell_sends(story, chance, begin, end)
    if chance.random() < 0.5 and all(life.broker_id != 1 for life in story.lives):
        story.copies = _copies(story, chance, begin, end)
    if chance.random() < 0.12:
        start = chance.randrange(story.w0 - 60_000, story.w1)
        story.rivals.append(
            Life(
                start,
                start + chance.choice((3_000, 60_000, 600_000, 2 * (story.w1 - story.w0))),
                clean=chance.random() < 0.5,
                broker_id=chance.choice((0, 0, 3)),
                machine=99,
                boot=f"{chance.getrandbits(32):08x}ffffffff",
                look_phase=0,
                first_look_ms=300,
                version=chance.choice((1, 2)),
            )
        )
        if chance.random() < 0.7:
            name, rival = f"{story.name}:1", story.rivals[0]
            rival.links[name] = Link(
                [(rival.start, DISCONNECTED), (rival.start + 500, IN_SYNC)],
                first_connected=rival.start + 400,
            )
            if rival.end < rival.start + 1_000:
                del rival.links[name]


def _tell_sends(story: Story, chance: random.Random, begin: int, end: int) -> None:
    story.sends.append(Sends(begin, end, chance.choice((LEAST_SEND_MS, 50, 1_000)), "ok"))
    failures = ("flush_slave_timeout", "slave_not_available", "flush_disk_timeout")
    for _ in range(chance.choice((0, 0, 1, 3))):
        start = chance.randrange(begin, end)
        length = 1 + round((end - begin) * chance.random() ** 4)
        every = chance.choice((20, 100, 1_000))
        story.sends.append(Sends(start, start + length, every, chance.choice(failures)))
    for life in story.lives:
        if not life.clean and chance.random() < 0.4:
            # A crash that announces itself: what is sent in its last seconds fails.
            story.sends.append(Sends(life.end - 4_000, life.end, 20, failures[0]))
    if chance.random() < 0.1:
        story.sends = [each for each in story.sends if each.result != "ok"]


def _copies(story: Story, chance: random.Random, begin: int, end: int) -> Copies:
    found = Copies(1)
    cut = chance.randrange(begin, end) if chance.random() < 0.3 else end
    found.lives.append((begin, cut))
    back = cut + chance.choice((2_000, 20_000))
    if back + 5_000 < end:
        found.lives.append((back, end))
    for start, until in found.lives:
        at = start + chance.choice((200, 3_000))
        while at < until:
            found.successes.append(at)
            pause = chance.choice((5_000, 5_000, 5_000, 9_000))
            if chance.random() < 0.01 * chance.choice((0, 1, 3)):
                pause = round(4 * story.metadata_age_ms * chance.random()) + 1
            at += pause
    return found


def overlap_seen_ms(lines: Iterable[tuple[str, int, str]]) -> int:
    """Of (boot, ts, family) of lines: how long two boots of different families wrote at once, at
    the longest, by the wall clock."""
    ends: dict[str, tuple[int, int, str]] = {}
    for boot, ts, family in lines:
        first, last, _ = ends.get(boot, (ts, ts, family))
        ends[boot] = min(first, ts), max(last, ts), family
    found = 0
    for one, other in itertools.combinations(ends.values(), 2):
        if one[2] != other[2]:
            found = max(found, min(one[1], other[1]) - max(one[0], other[0]))
    return found
