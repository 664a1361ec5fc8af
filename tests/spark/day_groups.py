"""Consumer groups of a random day (day_events.py): when they consumed, the truth of their lag, and
what a broker counts of it.

A group keeps up with a topic but in its pauses: a message is stored when one begins, another one
each `every_ms`, and when it ends the group has consumed all of them at once. Told last, from
numbers of its own, so that the rest of a seed's day stays what it is. Standard library only; must
not import anything of spark/ or broker/.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.spark.day_events import Life, Span, Story, clip, joined, total

AGE_LE: Final = (1_000, 10_000, 60_000, 600_000, 3_600_000)
MESSAGES_LE: Final = (100, 1_000, 100_000)
CONSUMER_LAG: Final = "consumer lag"
"""Of what a story asks."""
LOOK_MS: Final = 1_000


@dataclass(frozen=True)
class Consumer:
    """`pauses`: ascending, apart from each other by more than a look; `since`, `until`: when it
    was created, and deleted."""

    name: str
    every_ms: int
    pauses: list[Span] = field(default_factory=list)
    since: int = 0
    until: int = 1 << 60

    def age_at(self, moment: int) -> int:
        """Of the oldest message that is not consumed, ms."""
        return next((moment - a for a, b in self.pauses if a <= moment < b), 0)

    def messages_at(self, moment: int) -> int:
        """How many are not."""
        return next(
            (1 + (moment - a) // self.every_ms for a, b in self.pauses if a <= moment < b), 0
        )

    def stored_at(self, moment: int) -> int:
        """Ever, before a moment or at it."""
        return sum(
            1 + (min(moment, b - 1) - a) // self.every_ms for a, b in self.pauses if a <= moment
        )

    def above(self, story: Story, *, age: int | None = None, messages: int | None = None) -> int:
        """For how long of the window one of the two was above a bound."""
        late = age or 0
        if messages is not None:
            late = messages * self.every_ms
        spans = [(a + late, b) for a, b in self.pauses if a + late < b]
        return total(clip(clip(joined(spans), self.since, self.until), story.w0, story.w1))


def tell_groups(story: Story) -> None:
    """Makes up all of it for a story whose lives are told."""
    chance = random.Random(f"groups {story.seed}")
    if chance.random() < 0.5:
        return
    if chance.random() < 0.4 and all(life.version == 2 for life in story.lives):
        story.asks.add(CONSUMER_LAG)
    story.lag_seconds = chance.choice((10, 60, 600))
    story.lag_messages = chance.choice((None, 1_000))
    story.lag_percent = chance.choice((50.0, 70.0, 90.0, 99.0))
    for number in range(chance.choice((1, 2))):
        consumer = Consumer(f"g{number}", chance.choice((5, 100)))
        at = story.w0 - chance.randrange(600_000)
        for _ in range(chance.choice((0, 1, 4, 30))):
            at += round((story.w1 - story.w0) * chance.random() ** 3) + 2 * LOOK_MS
            length = 1 + round((story.w1 - story.w0) * chance.random() ** 6)
            consumer.pauses.append((at, at + length))
            at += length
        if chance.random() < 0.2:
            at = chance.randrange(story.w0, story.w1)
            ends = (at, 1 << 60) if chance.random() < 0.5 else (0, at)
            consumer = Consumer(consumer.name, consumer.every_ms, consumer.pauses, *ends)
        story.consumers.append(consumer)


class Counted:
    """What one life counts of its consumer groups: asked in the order of time."""

    def __init__(self, story: Story, life: Life) -> None:
        self._consumers: Final = story.consumers
        self._look = life.start + 500
        self._asleep: Final = [(b.start, b.end) for b in life.blind if b.kind == "asleep"]
        self._spent: Final[dict[str, list[list[int]]]] = {}
        self._before: int | None = None

    def groups(self, moment: int) -> dict[str, Any] | None:
        """As a line tells; None before the first look."""
        while self._look <= moment:
            if not any(a <= self._look < b for a, b in self._asleep):
                self._count(self._look)
            self._look += LOOK_MS
        look = self._before
        if look is None:
            return None
        return {
            "age_le": list(AGE_LE),
            "messages_le": list(MESSAGES_LE),
            "left_out": 0,
            "rows": [
                {
                    "group": each.name,
                    "topic": "T",
                    "looked_ms": moment - look,
                    "messages": each.messages_at(look),
                    "age_ms": each.age_at(look),
                    **dict(zip(_NAMES, map(list, self._spent[each.name]), strict=True)),
                }
                for each in self._consumers
                if each.name in self._spent
            ],
        }

    def _count(self, look: int) -> None:
        before, self._before = self._before, look
        for each in self._consumers:
            if not each.since <= look < each.until:
                self._spent.pop(each.name, None)
            elif each.name not in self._spent:
                sizes = (len(AGE_LE), len(AGE_LE), len(MESSAGES_LE), len(MESSAGES_LE))
                self._spent[each.name] = [[0] * size for size in sizes]
            elif before is not None:
                self._add(each, self._spent[each.name], before, look)

    @staticmethod
    def _add(each: Consumer, spent: list[list[int]], before: int, look: int) -> None:
        passed = look - before
        for place, bound in enumerate(AGE_LE):
            safe = max(0, min(passed, bound - each.age_at(before)))
            spent[0][place] += safe
            spent[1][place] += max(0, min(passed - safe, each.age_at(look) - bound))
        stored = each.stored_at(look) - each.stored_at(before)
        for place, bound in enumerate(MESSAGES_LE):
            spent[2][place] += passed * (each.messages_at(before) + stored <= bound)
            spent[3][place] += passed * (each.messages_at(look) - stored > bound)


_NAMES: Final = ("age_within", "age_beyond", "messages_within", "messages_beyond")
