"""Timers, recalls, kills and a clock that is set, in any order, against what must come of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.timer_delivery import TimerDelivery

_PRECISION_MS = 100


@dataclass
class Model:
    """What was asked for."""

    world: TimerDelivery
    asked_ms: dict[str, int] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)

    def put(self, delay_ms: int) -> None:
        key = str(len(self.asked_ms))
        self.asked_ms[key] = self.world.clock.now_ms() + delay_ms
        self.world.put(key, self.asked_ms[key])

    def recall(self, number: int) -> None:
        """By RecallMessageProcessor's rule: before the slot begins."""
        key = str(number % max(len(self.asked_ms), 1))
        if key not in self.asked_ms:
            return
        slot_ms = (self.asked_ms[key] - 1) // _PRECISION_MS * _PRECISION_MS
        if self.world.clock.now_ms() <= slot_ms and not self.is_delivered(key):
            self.world.recall(key, slot_ms + 1)
            self.recalled.add(key)

    def is_delivered(self, key: str) -> bool:
        return key in {each.key for each in self.world.delivered()}

    def kill(self, what: int) -> None:
        world = self.world
        if what == 0:
            world.service = world.new_service()
        elif what == 1:
            world.life.timers = world.life.new_timers()
        else:
            world.restart()

    def run(self, number: int) -> None:
        """Time passes for the store, the loop, or both."""
        self.world.clock.advance(number % 97)
        if number % 3 == 0:
            self.world.turn()
        elif number % 3 == 1:
            self.world.life.run()
        else:
            self.world.step()

    def set_clock(self, by_ms: int) -> None:
        self.world.clock.jump_to(self.world.clock.now_ms() + by_ms)

    def check(self) -> None:
        found = self.world.delivered()
        assert all(each.stored_ms >= self.asked_ms[each.key] for each in found)
        assert max(Counter(each.key for each in found).values(), default=1) == 1
        assert not {each.key for each in found} & self.recalled


_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 350)),
    st.tuples(st.just("put"), st.integers(1, 350)),
    st.tuples(st.just("run"), st.integers(0, 10_000)),
    st.tuples(st.just("run"), st.integers(0, 10_000)),
    st.tuples(st.just("recall"), st.integers(0, 20)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("set_clock"), st.sampled_from([-5_000, -700, -30, 40, 3_000])),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(_STEPS, min_size=5, max_size=40))
def test_none_early_none_twice_none_lost(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        world = TimerDelivery(Path(root) / "store", timer_precision_ms=_PRECISION_MS)
        model = Model(world)
        try:
            for name, value in steps:
                getattr(model, name)(value)
                model.check()
            left = max(model.asked_ms.values(), default=0) - world.clock.now_ms()
            world.pass_ms(max(left, 0) + 500, 50)
            model.check()
            assert set(world.keys()) == model.asked_ms.keys() - model.recalled
        finally:
            world.close()
