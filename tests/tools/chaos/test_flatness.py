"""tools.chaos.flatness: what grows is found, what only moves is not."""

from __future__ import annotations

import random

import pytest

from tools.chaos.flatness import Limit, growth_of
from tools.chaos.soak_run import judge_series

LIMIT = Limit(0.05, 4.0)


def samples(rise_a_second: float, peaks: float = 0.0) -> list[tuple[float, float]]:
    """Ten minutes, a sample each 5 s, some noise, and a tenth of them at a peak."""
    draw = random.Random(3).random
    return [
        (5.0 * n, 40 + rise_a_second * 5 * n + draw() + (peaks if draw() < 0.1 else 0))
        for n in range(120)
    ]


@pytest.mark.parametrize(
    ("rise_a_second", "peaks", "is_flat"),
    [(0.0, 0.0, True), (0.0, 500.0, True), (0.01, 0.0, True), (0.05, 0.0, False), (-1.0, 0, True)],
)
def test_the_rule(rise_a_second: float, peaks: float, is_flat: bool) -> None:
    growth = growth_of("memory", "MB", LIMIT, samples(rise_a_second, peaks))
    assert growth.is_flat is is_flat, growth.text()
    assert growth.grown == pytest.approx(rise_a_second * 295, abs=2)


def test_growth_that_ended_in_the_first_half_is_none() -> None:
    warm = [(float(n), min(n, 40.0)) for n in range(100)]
    growth = growth_of("memory", "MB", LIMIT, warm)
    assert (growth.is_flat, growth.first, growth.last) == (True, 12.0, 40.0)


def test_a_few_samples_say_nothing() -> None:
    assert growth_of("memory", "MB", LIMIT, samples(9.0)[:10]).is_flat is None


def test_a_short_life_is_not_judged() -> None:
    series = {
        "a memory": samples(1.0)[70:],
        "b memory": samples(1.0),
        "b p99": [],
        "c p50": [(1.0, 2.0)],
    }
    assert {growth.name: growth.is_flat for growth in judge_series(series, 600)} == {
        "a memory": None,
        "b memory": False,
        "c p50": None,
    }
