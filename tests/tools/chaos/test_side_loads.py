"""tools.chaos.side_loads: what is part of which run, and what cannot be judged there."""

from __future__ import annotations

import math

import pytest

from tools.chaos.delayed_load import TIMER
from tools.chaos.schedule import FaultKind
from tools.chaos.side_loads import SideLoads

JUMP, TORN, KILL, PROMOTE = (
    FaultKind.CLOCK_JUMP,
    FaultKind.TORN_TAIL,
    FaultKind.KILL,
    FaultKind.PROMOTE,
)


@pytest.mark.parametrize(
    ("kinds", "delayed", "timers", "pops", "keeps_acks"),
    [
        ({KILL}, True, True, True, True),
        ({KILL, TORN}, True, True, True, False),
        ({KILL, PROMOTE}, True, True, True, False),
        ({KILL, JUMP}, True, False, False, False),
        ({JUMP, TORN}, False, False, False, False),
    ],
)
def test_what_a_run_can_judge(
    kinds: set[FaultKind], delayed: bool, timers: bool, pops: bool, keeps_acks: bool
) -> None:
    loads = SideLoads(
        lambda: ("127.0.0.1", 1),
        kinds,
        delayed_rate=20,
        broker_name="chaos",
        may_be_lost=lambda _answered_s, _code: False,
    )
    judged = loads.judged
    assert (judged.delayed is not None) is delayed
    assert judged.delayed is None or (TIMER in judged.delayed._levels) is timers
    assert (judged.pops is not None) is pops
    kept_since_s = -math.inf if keeps_acks else math.inf
    assert judged.pops is None or judged.pops._kept_since_s == kept_since_s
    loads.read_again()
    loads.disturb()
    assert len(judged.transactions._disturbed) == 2
