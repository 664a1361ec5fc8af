"""The simulation finds each bug that is put into the cores, within 1,000 schedules."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.schedule import Schedule

WITHIN = 1_000
HARD = {  # Hundreds of schedules each: bin/test --slow.
    "writes are not fenced: any leader overwrites any version",
    "a write without an answer is taken for done",
    "a deposed leader goes on answering",
    "a new leader knows only what it knew before",
    "a set that was asked for does not count before the answer (P6)",
    "one slave's ack is enough for SEND_OK",
    "a slave reports what it has not flushed",
    "the master's own copy counts before it is flushed",
    "103 is sent once, and not again if it is lost (P36)",
    "the self-fence never closes",
    "any answer renews the self-fence, whoever is named",
    "the tail behind a cut is not zeroed (P1)",
    "an epoch without a message swallows the next one (P2)",
    "a start lets read everything that it finds (P4)",
    "half a record stays, and the log goes on behind it (P26)",
}


def _found(text: str) -> int | None:
    """The first seed that shows it; its run raises, or the mutant itself cannot go on."""
    with mutated(text):
        for seed in range(WITHIN):
            try:
                Schedule(seed).run()
            except Exception:  # noqa: BLE001 - whatever shows the bug
                return seed
    return None


@pytest.mark.parametrize(
    "text", [pytest.param(one, marks=pytest.mark.slow if one in HARD else ()) for one in MUTANTS]
)
def test_the_bug_is_found(text: str) -> None:
    assert _found(text) is not None


def test_the_table_is_whole() -> None:
    assert len(MUTANTS) >= 20
    assert MUTANTS.keys() >= HARD
