"""Schedules from seeds: nothing is violated. One that is: python -m tests.simulation --seed N"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.schedule import Schedule

ORDINARY = 2_000
LONG = 100_000
FIRST_LONG = 1_000_000
"""Other seeds than the ordinary run's."""


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Schedules are thrown away as wholes; looking for cycles in between is a tenth of the time."""
    gc.disable()
    yield
    gc.enable()


def _run(seeds: range) -> int:
    """How many masters were elected in them."""
    elections = 0
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"python -m tests.simulation --seed {seed}") from error
        elections += schedule.judge.elections
        if seed % 500 == 0:
            gc.collect()
    return elections


@pytest.mark.parametrize("part", range(4))
def test_ordinary_schedules(part: int) -> None:
    """Some 4.5 ms of a processor each, all 2,000 under 10 s (Python 3.11 here)."""
    size = ORDINARY // 4
    elections = _run(range(part * size, (part + 1) * size))
    assert elections > size, "masters were lost and replaced"


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(20))
def test_long_schedules(part: int, proved: Callable[[str], None]) -> None:
    size = LONG // 20
    elections = _run(range(FIRST_LONG + part * size, FIRST_LONG + (part + 1) * size))
    assert elections > size
    proved(f"{size:,} simulated groups with {elections:,} elections: no promise broken")


def test_a_seed_says_everything() -> None:
    """Two runs of one seed have the same events."""
    traces = []
    for _ in range(2):
        schedule = Schedule(41, trace=True)
        schedule.run()
        traces.append(schedule.world.trace)
    assert traces[0] == traces[1]
    assert any("leads epoch" in line for line in traces[0] or ())


def test_what_is_promised_is_judged() -> None:
    """Most runs are in the safe mode, all kinds come, and puts are answered in them."""
    schedules = [Schedule(seed) for seed in range(60)]
    assert sum(one.shape.safe for one in schedules) > 30
    assert {one.shape.controllers for one in schedules} == {1, 2, 3}
    assert {one.shape.brokers for one in schedules} == {2, 3, 4, 5}
    for one in schedules[:10]:
        one.run()
    assert sum(len(one.judge.answered) for one in schedules[:10]) > 200
    assert sum(len(one.judge.seen) for one in schedules[:10]) > 200
