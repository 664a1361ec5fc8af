"""Bodies that are not as they should be, read as Java reads them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import BodyError
from tests.remoting.golden_bodies import golden_beans
from tests.support.every_row import check_every_row
from tests.support.loose_bodies import CASES, REFUSED, LooseBody, normalized
from tests.support.loose_writer import LooseWriter

GOLDEN_BODIES = golden_beans()


def test_ours_reads_what_java_reads() -> None:
    check_every_row(CASES, assert_read_as_java_reads)


def assert_read_as_java_reads(case: LooseBody) -> None:
    if case.ours == REFUSED:
        with pytest.raises(BodyError, match=case.java_class):
            case.cls.from_json_bytes(case.text)
        return
    written = case.cls.from_json_bytes(case.text).to_json_bytes()
    assert normalized(case.seen(written)) == normalized(case.ours)


@given(number=st.integers(0, len(GOLDEN_BODIES) - 1), random=st.randoms(use_true_random=False))
def test_a_golden_body_keeps_its_meaning_however_loosely_it_is_written(
    number: int, random: Random
) -> None:
    golden = GOLDEN_BODIES[number]
    text = LooseWriter(random).write(golden)
    assert type(golden).from_json_bytes(text) == golden, text.decode()


@pytest.mark.parametrize("number", range(0, len(GOLDEN_BODIES), 7))
def test_the_writer_of_loose_texts_makes_different_ones(number: int) -> None:
    texts = {LooseWriter(Random(seed)).write(GOLDEN_BODIES[number]) for seed in range(20)}
    assert len(texts) > 15
    assert GOLDEN_BODIES[number].to_json_bytes() not in texts
