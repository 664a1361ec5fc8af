"""Lives by the thousand, as no broker has them: what they are to each other is told at a price that
grows as they do, and it is the same as what pairs of them tell."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest

from spark.dumps.dump_line import FileLines
from spark.figures.descent import Descent
from spark.figures.sample_stream import GroupSamples, read_samples
from spark.figures.two_masters import Ancestry, joined, overlaps
from spark.reported_day import Day
from tests.spark.dump_lines_builder import DATE, T0, Life, Line

DAY = Day.whole(DATE)
HOUR_MS = 3_600_000
MANY = 1_500


def read(lines: Iterable[Line]) -> GroupSamples:
    return read_samples([FileLines("f", DATE, [json.dumps(line).encode() for line in lines])], DAY)


def doubt(lines: Iterable[Line]) -> list[tuple[int, int]]:
    samples = read(lines)
    return joined(overlaps(samples, Ancestry(samples), DAY))


def a_life(number: int, start_ms: int, prev: int | None = None) -> Life:
    names = (f"{prev:016x}", 1) if prev is not None else (None, None)
    return Life(start_ms, boot=f"{number:016x}", prev_boot=names[0], prev_seq=names[1])


def ancestors(before: dict[str, str], young: str) -> set[str]:
    found: set[str] = set()
    while (name := before.get(young)) is not None and name not in found:
        found.add(name)
        young = name
    return found


@pytest.mark.parametrize("seed", range(20))
def test_who_comes_from_whom(seed: int) -> None:
    """Among names that are before each other at random, in circles, too."""
    rand = random.Random(seed)
    names = [str(number) for number in range(30)]
    before = {
        name: other
        for name in names
        if (other := rand.choice(names)) != name and rand.random() < 0.9
    }
    descent = Descent(before)
    for young in names:
        for old in names:
            expected = old != young and old in ancestors(before, young)
            assert descent.comes_from(young, old) == expected, (before, young, old)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_chain", [True, False])
def test_thousands_of_lives_at_once(is_chain: bool) -> None:
    """No more of them can be one broker's than it could have set its clock back, whatever each of
    them names: they are many masters."""
    end_ms = T0 + 2 * HOUR_MS
    lines = []
    for number in range(MANY):
        past = number - 1 if is_chain and number else None
        lines.append(a_life(number, T0 + HOUR_MS + number, past).line(end_ms + number % 7))
    (span,) = doubt(lines)
    assert span[0] <= T0 + HOUR_MS + 20
    assert span[1] >= end_ms


@pytest.mark.timeout(60)
def test_a_rival_of_thousands_of_lives() -> None:
    """A broker that is killed once a second, and another one beside it for an hour."""
    lines, life = [], a_life(1, T0)
    for number in range(MANY):
        life = a_life(number + 1, T0 + number * 1_000, number if number else None)
        lines.append(life.line(life.start_ms + 900))
    rival = a_life(2**32, T0 + 600_000)
    lines += [rival.line(T0 + 600_000), rival.line(T0 + 900_000)]
    assert doubt(lines) == []  # no life of it lasts for longer than clocks differ
    long = a_life(MANY + 1, T0 + MANY * 1_000, MANY)
    rival_of_long = a_life(2**33, T0 + MANY * 1_000)
    for each in (long, rival_of_long):
        lines += [each.line(each.start_ms), each.line(each.start_ms + 5_000)]
    assert doubt(lines) == [(long.start_ms, long.start_ms + 5_000)]


def in_pairs(lives: list[list[Line]], before: dict[str, str]) -> list[tuple[int, int]]:
    """The moments, in seconds, at which two lives ran that do not come from each other."""
    seconds = set()
    for one in lives:
        for other in lives:
            boots = one[0]["boot"], other[0]["boot"]
            is_one = boots[0] in ancestors(before, boots[1]) or boots[1] in ancestors(
                before, boots[0]
            )
            start_ms = max(one[0]["ts"], other[0]["ts"])
            end_ms = min(one[-1]["ts"], other[-1]["ts"])
            if boots[0] != boots[1] and not is_one:
                seconds |= set(range(start_ms // 1_000, end_ms // 1_000))
    return sorted(seconds)


@pytest.mark.parametrize("seed", range(30))
def test_some_lives_as_pairs_tell(seed: int) -> None:
    """Whole minutes, so that no overlap is as short as clocks may differ."""
    rand = random.Random(seed)
    lives: list[list[Line]] = []
    before: dict[str, str] = {}
    for number in range(8):
        start_ms = T0 + rand.randrange(60) * 60_000
        past = rand.choice([None, *range(number)])
        life = a_life(number, start_ms, past)
        if past is not None:
            life.prev_seq = 2
            before[life.boot] = f"{past:016x}"
        end_ms = start_ms + rand.randrange(1, 30) * 60_000
        lives.append([life.line(start_ms), life.line(end_ms)])
    found = doubt(line for life in lives for line in life)
    seconds = {second for start, end in found for second in range(start // 1_000, end // 1_000)}
    assert sorted(seconds) == in_pairs(lives, before)
