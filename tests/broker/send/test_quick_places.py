"""Placement.find_quick beside Placement.divert, for every order of a few properties: what the first
takes, it places as the second does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.append.diverted_messages import Diversion
from broker.send.marks import DIVERTED, marks_of
from broker.send.placement import Placement
from broker.send.rules import SINGLE
from remoting.errors import RequestError
from store.errors import QueueTableFullError
from tests.broker.hot_path_world import TIMERS, HotPathWorld
from tests.broker.send.test_placement import HALF, world_of

_PAIRS = (
    *("DELAY\x013", "DELAY\x0103", "DELAY\x0199", "XDELAY\x013", "K\x01DELAY\x012"),
    *("TRAN_MSG\x01true", "TRAN_MSG\x01no", "XTRAN_MSG\x01true"),
    *("TIMER_DELAY_SEC\x015", "TIMER_DELIVER_MS\x011", "CLUSTER\x01c", "REAL_QID\x011"),
    *("XREAL_TOPIC\x01U", "KEYS\x01k", "WAIT\x01true"),
)
_FLAGS = (0, 1, 4, 8, 12, 128)
TEXTS = [
    "\x02".join(pairs) + end
    for count in (1, 2, 3)
    for pairs in itertools.permutations(_PAIRS, count)
    for end in (("", "\x02") if count < 3 else ("",))
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HotPathWorld]:
    timers = replace(TIMERS, enabled=True)
    world = world_of(tmp_path_factory.mktemp("places"), timers=timers)
    yield world
    world.close()


def diverted(placement: Placement, text: str, flags: int) -> Diversion | None:
    """None: it is stored where it is sent, or refused."""
    try:
        return placement.divert(text, Diversion("T", 2, flags, ""))
    except RequestError:
        return None


def test_what_is_placed_quickly_is_placed_as_ever(world: HotPathWorld) -> None:
    processor = world.send_processor
    placement, rules = processor._placement, processor.rules
    taken = 0
    for text, flags in itertools.product(TEXTS, _FLAGS):
        marks, kind = marks_of(text), flags & rules.left_flags[SINGLE]
        if marks & rules.left_marks[SINGLE] or not (kind or marks & DIVERTED):
            continue
        place = placement.find_quick("T", 2, kind, marks, text)
        if place is None:
            continue
        taken += 1
        entry, queue_id, stored, _table, _counted = place
        expected = diverted(placement, text, flags)
        assert expected is not None, (text, flags)
        found = entry.name, queue_id, stored.decode()
        assert found == (expected.topic, expected.queue_id, expected.properties), (text, flags)
    assert taken > 100


@pytest.mark.parametrize("text", ["DELAY\x013", "KEYS\x01k\x02DELAY\x0118\x02", HALF])
def test_what_clients_send_is_placed_quickly(world: HotPathWorld, text: str) -> None:
    placement = world.send_processor._placement
    assert placement.find_quick("T", 2, 0, marks_of(text), text) is not None


def test_a_delay_for_a_queue_that_has_no_room_is_left_to_the_general_path(tmp_path: Path) -> None:
    """Which says why it is refused."""

    class NoRoom:
        def check(self, topic: str, queue_id: int) -> None:
            raise QueueTableFullError("full")

    world = world_of(tmp_path)
    world.log._room = NoRoom()  # type: ignore[assignment]
    placement, text = world.send_processor._placement, "DELAY\x013"
    assert placement.find_quick("T", 0, 0, marks_of(text), text) is not None
    assert placement.find_quick("T", 3, 0, marks_of(text), text) is None
