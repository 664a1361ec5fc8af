"""WaitingHalves: what waits, and since when, beside a plain model of it."""

from __future__ import annotations

import random

import pytest

from broker.metrics.waiting_halves import Waiting, WaitingHalf, WaitingHalves
from ipc.metric_slots import OVERFLOW


@pytest.fixture
def waiting() -> WaitingHalves:
    return WaitingHalves()


def rows(waiting: WaitingHalves) -> set[Waiting]:
    return set(waiting.counts())


def test_what_waits_is_counted_until_it_ends(waiting: WaitingHalves) -> None:
    waiting.add(0, "T", "P", 100)
    waiting.add(1, "T", "P", 100)
    waiting.add(2, "T", "Q", 150)
    waiting.add(3, "U", "P", 200)
    assert rows(waiting) == {("T", "P", 2, 100), ("T", "Q", 1, 150), ("U", "P", 1, 200)}
    assert waiting.remove(0) == 100
    assert waiting.remove(2) == 150
    assert rows(waiting) == {("T", "P", 1, 100), ("U", "P", 1, 200)}


def test_what_is_not_known_ends_nothing(waiting: WaitingHalves) -> None:
    """A repeated end, and one of a half that was given up or that a client has invented."""
    waiting.add(7, "T", "P", 100)
    assert waiting.remove(7) == 100
    for half in (7, 8, 1 << 50, -1):
        assert waiting.remove(half) is None
    waiting.move(8, 9)
    assert rows(waiting) == set()


def test_a_copy_waits_since_its_first_record(waiting: WaitingHalves) -> None:
    waiting.add(1, "T", "P", 100)
    waiting.add(2, "T", "P", 130)
    waiting.move(1, 1000)
    assert rows(waiting) == {("T", "P", 2, 100)}
    assert waiting.remove(1) is None
    assert waiting.remove(2) == 130
    waiting.move(1000, 2000)
    assert waiting.remove(2000) == 100
    assert rows(waiting) == set()


def test_a_place_that_is_used_anew_holds_one_half(waiting: WaitingHalves) -> None:
    waiting.add(1, "T", "P", 100)
    waiting.add(2, "T", "P", 100)
    waiting.add(1, "U", "Q", 200)
    waiting.move(2, 1)
    assert rows(waiting) == {("T", "P", 1, 100)}


def test_what_the_checks_have_passed_waits_no_more(waiting: WaitingHalves) -> None:
    for half in range(1000):
        waiting.add(half, "T", "P", half)
    waiting.forget_before(700)
    assert rows(waiting) == {("T", "P", 300, 700)}
    assert waiting.remove(699) is None
    assert waiting.remove(700) == 700


def test_what_a_start_finds_lies_before_what_came_meanwhile(waiting: WaitingHalves) -> None:
    waiting.add(5, "T", "P", 500)
    assert not waiting.is_known
    found = [
        WaitingHalf(4, "T", "P", 50),
        WaitingHalf(3, "T", "P", 300),
        WaitingHalf(5, "T", "P", 501),
    ]
    waiting.recovered(found)
    assert waiting.is_known
    assert rows(waiting) == {("T", "P", 3, 50)}
    assert waiting.remove(5) == 500
    assert waiting.remove(4) == 50
    assert rows(waiting) == {("T", "P", 1, 300)}
    waiting.clear()
    assert (rows(waiting), waiting.is_known) == (set(), False)


def test_groups_that_a_client_invents_have_one_row_together() -> None:
    waiting = WaitingHalves(most_groups=3)
    for number in range(10):
        waiting.add(number, "T", f"P{number}", number)
    waiting.add(10, "U", "P0", 10)
    assert rows(waiting) == {
        ("T", "P0", 1, 0),
        ("T", "P1", 1, 1),
        ("T", "P2", 1, 2),
        ("T", OVERFLOW, 7, 3),
        ("U", OVERFLOW, 1, 10),
    }
    for number in range(11):
        assert waiting.remove(number) == number
    assert rows(waiting) == set()
    waiting.add(0, "T", "later", 0)
    assert rows(waiting) == {("T", "later", 1, 0)}
    waiting.add(1, "T", "x" * 30_000, 0)
    assert max(len(row.group) for row in waiting.counts()) == 255


def test_nothing_is_kept_of_what_has_ended(waiting: WaitingHalves) -> None:
    for half in range(5000):
        waiting.add(half, f"T{half % 7}", f"P{half % 5}", half // 3)
    for half in range(5000):
        waiting.remove(half)
    assert (waiting._rows, waiting._chunks) == ({}, {})


@pytest.mark.parametrize("seed", range(5))
def test_any_history(waiting: WaitingHalves, seed: int) -> None:
    chance = random.Random(seed)
    model: dict[int, tuple[str, str, int]] = {}
    end = 0
    for now_ms in range(4000):
        known = chance.choice(list(model)) if model and chance.random() < 0.9 else end + 5
        match chance.randrange(5):
            case 0 | 1:
                place = chance.choice("TU"), chance.choice("PQR")
                waiting.add(end, *place, now_ms)
                model[end] = (*place, now_ms)
                end += 1
            case 2:
                waiting.move(known, end)
                if known in model:
                    model[end] = model.pop(known)
                end += 1
            case 3:
                assert waiting.remove(known) == model.pop(known, (0, 0, None))[2]
            case _ if chance.random() < 0.02:
                waiting.forget_before(end - 100)
                model = {half: of for half, of in model.items() if half >= end - 100}
        if now_ms % 50 == 0:
            keys = {of[:2] for of in model.values()}
            assert rows(waiting) == {
                (*key, len(times), min(times))
                for key in keys
                if (times := [of[2] for of in model.values() if of[:2] == key])
            }
