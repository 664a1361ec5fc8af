"""The state machine of pops, by itself: what it wants done, and random histories against a list
(pops_model.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.pop.check_point import CheckPoint
from broker.pop.pop_effects import Commit, FreeRow, SetBits, Store
from broker.pop.pops import Pops
from broker.settings.broker_config import BrokerConfig
from tests.broker.pop.pop_histories import Step, check, make_history
from tests.broker.pop.pops_model import WEIGHTS, CoreHistory

SEEDS, LONG_SEEDS = 700, 10_000
POINT = CheckPoint("T", "G", 0, 10, (0, 1, 2), 1_000_000, 60_000, 5, 13)
RENEWED = CheckPoint("T", "G", 0, 11, (0,), 1_000_001, 60_000, 5)
_NUMBER = st.integers(0, 65_535)


def test_pops_and_acks_say_what_is_to_be_done() -> None:
    """No clock, no file, no log: rows 0 and 1 are where somebody wrote the check points."""
    pops = Pops(BrokerConfig())
    queue = pops.open_queue(7, ("T", "G", 0), 10, 1_000_000)
    pops.pop(queue, POINT.key, POINT, 0, 1_000_000)
    assert pops.ack(POINT.key, [10]) == (0, 0b001)
    assert pops.change(queue, RENEWED, 1, POINT.key, 1_000_001)
    assert list(pops.effects) == [SetBits(0, 0b011)]
    pops.effects.clear()
    assert pops.ack(POINT.key, [12]) == (0, 0b111)
    assert not pops.effects
    pops.tick(1_010_001, flushed=0)
    stored = pops.effects.pop()
    assert isinstance(stored, Store)
    assert stored.left == RENEWED
    assert pops.ack(RENEWED.key, [11]) is None
    assert pops.stored(stored.wrapper, end=100) == 1
    pops.tick(1_010_021, flushed=99)
    assert not pops.effects
    pops.tick(1_010_041, flushed=100)
    assert list(pops.effects) == [FreeRow(1), Commit(queue, 13, [0])]
    assert not pops.has_work


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(WEIGHTS)), _NUMBER, _NUMBER, _NUMBER), max_size=40),
    st.integers(0, 20),
)
def test_any_history_keeps_the_promises(steps: list[Step], seed: int) -> None:
    CoreHistory(Path(), seed).run(steps)


def test_histories_keep_the_promises(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        check(CoreHistory, tmp_path, make_history(seed, WEIGHTS), seed)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_thousands_of_histories_keep_the_promises(tmp_path: Path) -> None:
    for seed in range(SEEDS, LONG_SEEDS):
        check(CoreHistory, tmp_path, make_history(seed, WEIGHTS, 100), seed)
