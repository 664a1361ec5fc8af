"""Machines of a random day (day_events.py): reboots, wall clocks that are set while
the broker is down, time services, slaves whose names the master learns late.

Told last, from numbers of its own, so that the rest of a seed's day stays what it is. Standard
library only; must not import anything of spark/.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

from tests.spark.day_events import (
    DISCONNECTED,
    HOUR,
    IN_SYNC,
    MINUTE,
    Life,
    Link,
    Span,
    Story,
)
from tests.spark.day_objectives import REFUSED, Sends

MONO_AT_START: Final = 77_000
"""Of a machine that was just switched on, ms."""
HELD_MS: Final = 900
"""What a time service says of the clock that it holds: at most so wrong."""
FIRST_IP: Final = 7


def ip_of(story: Story, replica: str) -> str:
    """What a slave is called before it has a name."""
    return f"10.0.0.{FIRST_IP + story.replicas.index(replica)}"


def is_ip(replica: str) -> bool:
    """Whether a row's id is one of those."""
    return replica.startswith("10.")


def tell_machines(story: Story) -> None:
    """Makes up all of it for a story whose lives are told."""
    chance = random.Random(f"machines {story.seed}")
    _switch_on(story, chance)
    story.tells_machine = chance.random() < 0.75
    story.is_held = chance.random() < 0.4
    story.keeps_ends = random.Random(f"ends {story.seed}").random() < 0.6
    if not story.clock and chance.random() < 0.35:
        _set_clock_while_down(story, chance)
    if chance.random() < 0.25:
        _name_late(story, chance)
    _refuse(story, random.Random(f"refused {story.seed}"))
    _switch(story, random.Random(f"switches {story.seed}"))
    own = random.Random(f"long ago {story.seed}")
    if not story.clock and story.lives and not story.rivals and own.random() < 0.3:
        _be_down_long(story, own)


def _refuse(story: Story, chance: random.Random) -> None:
    """Some sends, and what is promised of all of them."""
    if chance.random() < 0.3:
        story.asks.add("sends ok")
    story.sends_ok_percent = chance.choice((90.0, 99.0, 99.9))
    for _ in range(chance.choice((0, 0, 1, 2))):
        start = chance.randrange(story.w0 - MINUTE, story.w1)
        length = 1 + round((story.w1 - story.w0) * chance.random() ** 4)
        story.sends.append(Sends(start, start + length, chance.choice((1, 20, 1_000)), REFUSED))


def _switch(story: Story, chance: random.Random) -> None:
    """Where another machine's broker becomes master it may be known as a slave before, and the old
    master may come back as one."""
    for one, other in itertools.pairwise(story.lives):
        if one.machine == other.machine or chance.random() < 0.3:
            continue
        if all(life.machine != other.machine or life is other for life in story.lives):
            story.was_slave_until[other.machine] = other.start - chance.choice((100, 500, 20_000))
        is_last = all(
            life.start <= one.start for life in story.lives if life.machine == one.machine
        )
        if is_last and chance.random() < 0.7:
            later = (1_000, 2 * story.interval_ms, story.w1 - story.w0)
            story.returns[one.machine] = one.end + chance.choice(later)


def _be_down_long(story: Story, chance: random.Random) -> None:
    """The broker lived once before, long before the window; its clock was set since, so that it
    does not show how long ago that was, and nobody sets it right. Its machine may have been
    rebooted, its dumps be lost."""
    first = story.lives[0]
    gap = chance.choice((MINUTE, 30 * MINUTE, 3 * HOUR, 3 * HOUR, 30 * HOUR))
    boot = max(first.start, story.w0 + 1)
    if first.start < story.w0:  # of some days the first life begins in the window
        later = [life for life in story.lives if life.start >= story.w0]
        if later:
            first, story.lives = later[0], later
            left = {life.machine for life in later}
            story.returns = {n: at for n, at in story.returns.items() if n in left}
            boot = first.start
    end = min(first.start, story.w0) - gap
    past = Life(
        end - 20 * MINUTE,
        end,
        chance.random() < 0.5,
        first.broker_id,
        first.machine,
        boot=f"{chance.getrandbits(32):08x}a5a5a5a5",
        look_phase=0,
        first_look_ms=30,
        version=chance.choice((first.version, 1, 2)),
    )
    for name in first.links:
        states = [(past.start, DISCONNECTED), (past.start + 500, IN_SYNC)]
        past.links[name] = Link(states, first_connected=past.start + 400)
        first.links[name].was_remembered = True
    past.machine_on = min(first.machine_on, past.start - MINUTE)
    for life in story.lives:
        if life.machine == first.machine and life.machine_on == first.machine_on:
            life.machine_on = past.machine_on
    if chance.random() < 0.3:
        _reboot(story, first, chance.randrange(past.end, first.start))
    # Not before the window: what it shows there is another day's, by that clock.
    budget = round(story.budget_ms) // 2
    shown = chance.choice((story.w0 + budget, story.w0 + 1, boot))
    if story.w0 < shown < first.start:
        story.clock = [(past.end + 1, shown - first.start)]
        story.lives[-1].end += first.start - shown + 2 * story.interval_ms
        story.asks = set()
    story.lives.insert(0, past)
    story.loses_past = chance.random() < 0.3


def _reboot(story: Story, first: Life, at: int) -> None:
    for life in story.lives:
        if life.machine == first.machine:
            life.machine_on, life.reboots = max(at, life.machine_on), life.reboots + 1


def _switch_on(story: Story, chance: random.Random) -> None:
    """When the machine of each life was, and how often before."""
    reboots: dict[int, int] = {}
    began: dict[int, int] = {}
    for before, life in itertools.pairwise([None, *story.lives]):
        assert life is not None
        number = life.machine
        if number not in began:
            began[number] = life.start - chance.choice((60_000, 5 * HOUR))
        elif before is not None and before.machine == number and chance.random() < 0.25:
            began[number] = chance.randrange(before.end, life.start)
            reboots[number] = reboots.get(number, 0) + 1
        life.machine_on, life.reboots = began[number], reboots.get(number, 0)
    if story.copies is not None:
        story.copies.is_rebooted = chance.random() < 0.3
    for rival in story.rivals:
        rival.machine_on = rival.start - HOUR


def gaps(story: Story) -> list[Span]:
    """Between two lives on one machine."""
    return [
        (one.end, other.start)
        for one, other in itertools.pairwise(story.lives)
        if one.machine == other.machine
    ]


def _set_clock_while_down(story: Story, chance: random.Random) -> None:
    """Wrong from one time down to another one, or until somebody sees it; right at both ends of the
    window."""
    margin = 2 * story.interval_ms
    some = [(a, b) for a, b in gaps(story) if story.w0 + margin < a and b < story.w1 - margin]
    if not some:
        return
    start, end = chance.choice(some)
    room = end - start
    ahead = chance.choice(
        (-room, -room - 3_000, -round(0.9 * room), -room // 2, -10 * MINUTE, 10 * MINUTE, HOUR)
    )
    later = [gap for gap in some if gap[0] > start]
    back = chance.randrange(end, story.w1 - margin)
    if later and chance.random() < 0.5:
        back = chance.choice(later)[0] + 1
    story.clock = [(start + 1, ahead), (back, 0)]


def _name_late(story: Story, chance: random.Random) -> None:
    """Some slaves go by their ips for long, the next time that they are new to a master."""
    for replica in story.replicas:
        if chance.random() < 0.7:
            length = round((story.w1 - story.w0) * chance.random() ** 2)
            story.named_after[replica] = chance.choice((story.interval_ms, length, length))


def has_name(story: Story, life: Life, replica: str, moment: int) -> bool:
    """Whether the master knows the name of a slave that is connected, or was."""
    link = life.links[replica]
    after = story.named_after.get(replica)
    if after is None or link.was_remembered or link.first_connected is None:
        return True
    return moment >= link.first_connected + after
