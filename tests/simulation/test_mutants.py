"""The simulation finds each bug that is put into the cores, within 1,000 schedules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.judge import Violation
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.schedule import Schedule

WITHIN = 1_000
SLOW = {  # Dozens of schedules each.
    "elects whoever is alive, in the set or not",
    "1001 is taken from whoever sends it",
    "the master's own copy counts before it is flushed",
    "103 is sent once, and not again if it is lost (P36)",
    "a write without an answer is taken for done",
    "the tail behind a cut is not zeroed (P1)",
    "a slave lets read what is not confirmed",
    "a start lets read everything that it finds (P4)",
    "a leader that lacks a process keeps its lead",
}
LONG = {  # Hundreds.
    "a deposed leader goes on answering",
    "an older epoch changes the role",
    "a set that was asked for does not count before the answer (P6)",
    "a slave joins the set before it has what was confirmed",
    "one slave's ack is enough for SEND_OK",
    "a slave reports what it has not flushed",
    "the self-fence never closes",
    "any answer renews the self-fence, whoever is named",
    "a leader that hands over keeps its lease",
    "a follower that lacks a process is elected like any other",
    "epochs come from the labels of frames (P24)",
    "half a record stays, and the log goes on behind it (P26)",
}


def _found(text: str) -> int | None:
    """The first seed whose run is judged to break a promise."""
    with mutated(text):
        for seed in range(WITHIN):
            try:
                Schedule(seed).run()
            except Violation:
                return seed
    return None


def _parameters() -> Iterator[object]:
    for text in MUTANTS:
        marks = [pytest.mark.slow] if text in SLOW else [pytest.mark.long] if text in LONG else []
        yield pytest.param(text, marks=marks)


@pytest.mark.parametrize("text", list(_parameters()))
def test_the_bug_is_found(text: str) -> None:
    assert _found(text) is not None


def test_the_table_is_whole() -> None:
    page = (Path(__file__).parents[2] / "docs" / "failover.md").read_text(encoding="utf-8")
    assert [text for text in MUTANTS if f"| {text} |" not in page] == []
    assert len(MUTANTS) >= 20
    assert MUTANTS.keys() >= SLOW | LONG
