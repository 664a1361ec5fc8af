"""CRCs of bodies within each other: zlib's, and each byte is read a few times at most."""

from __future__ import annotations

import random
import zlib

import pytest

from store.body_crcs import STEP, BodyCrcs
from tests.support.counted_crcs import CountedCrcs

pytestmark = pytest.mark.interpreted

_SIZE = 60 * STEP + 7
_SIZES = (0, 1, STEP, 2 * STEP, 2 * STEP + 1, 3 * STEP, 20 * STEP + 5, _SIZE)


@pytest.mark.parametrize("start", [0, 5, 1 << 40])
def test_any_parts_of_a_log(start: int) -> None:
    """In views of the whole log and of little more than the part."""
    for seed in range(60):
        choice = random.Random(seed)
        data, crcs, at = choice.randbytes(_SIZE), BodyCrcs(), 0
        while at < _SIZE:
            end = min(at + choice.choice([*_SIZES, choice.randrange(_SIZE)]), _SIZE)
            low = choice.choice([0, at, max(at - 100, 0)])
            view = memoryview(data)[low : choice.choice([end, _SIZE])]
            assert crcs.crc(view, at - low, end - low, start + at) == zlib.crc32(data[at:end])
            # Bodies of later heads may begin up to 23 bytes before those of earlier ones.
            at = max(at + choice.choice([1, 44, 100, STEP, 20 * STEP, -23, -3 * STEP]), 0)


def test_bodies_within_each_other_are_read_once_and_noted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = CountedCrcs(monkeypatch)
    data, crcs = bytes(_SIZE), BodyCrcs()
    for at in range(0, _SIZE, STEP):
        crcs.crc(data, at, _SIZE, at)
    assert 2 * _SIZE - STEP < counted.bytes < 2 * _SIZE + 2 * STEP * (_SIZE // STEP + 1)


def test_what_was_not_read_before_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedCrcs(monkeypatch)
    data, crcs = bytes(_SIZE), BodyCrcs()
    for at in range(0, _SIZE, 5 * STEP):
        crcs.crc(data, at, min(at + 5 * STEP, _SIZE), at)
    assert counted.bytes == _SIZE
