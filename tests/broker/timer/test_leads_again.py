"""Delivery by a broker that leads, leads no more, and leads again in the same process."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.timer_delivery import TimerDelivery


def test_each_message_comes_once_whenever_the_lead_changes(tmp_path: Path) -> None:
    """In the middle of a slot, between the slots, and while one is open."""
    chance = random.Random(3)
    world = TimerDelivery(tmp_path)
    begin_ms = world.clock.now_ms()
    keys = [f"k{number}" for number in range(60)]
    for key in keys:
        world.put(key, begin_ms + 2_000 + chance.randrange(6_000))
    for _ in range(25):
        world.pass_ms(chance.choice((5, 90, 700)), step_ms=chance.choice((5, 30)))
        world.service.stop(at_once=True)
        world.service._parts.progress.close()
        world.early.let_go()
        world.service = world.new_service()
    world.pass_ms(9_000, step_ms=100)
    assert sorted(world.keys()) == sorted(keys)
    world.close()
