"""The revival as a unit: check points and acks that meet in a queue of the revive topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.pop.test_damaged_check_points import REVIVE, ReviveWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReviveWorld]:
    world = ReviveWorld(tmp_path)
    yield world
    world.hot.close()


def store_ack(world: ReviveWorld, offset: int) -> None:
    point = world.point()
    ack = {"ao": offset, **{name: point[name] for name in ("bn", "c", "pt", "q", "so", "t")}}
    world.store(REVIVE, json.dumps(ack).encode(), "ack")


@pytest.mark.parametrize("renewed_first", [False, True])
def test_a_message_renewed_in_the_ms_of_a_pop_that_begins_with_it_hides_none_of_the_pop(
    world: ReviveWorld, renewed_first: bool
) -> None:
    """Both check points have one key. The later took the place of the other, and messages 5 and 6
    were lost."""
    both = [{"n": 3, "d": [0, 1, 2]}, {"n": 1, "d": [0]}]
    for fields in reversed(both) if renewed_first else both:
        world.store_point(**fields)
    store_ack(world, 6)
    world.look()
    assert sorted(world.revived) == [b"4", b"5"]


def test_it_waits_until_both_are_due(world: ReviveWorld) -> None:
    world.store_point(n=2, d=[0, 1])
    world.store_point(n=1, d=[0], it=10_500)
    world.look()
    assert not world.revived
    world.now_ms += 500
    world.look()
    assert world.revived == [b"4", b"5"]
