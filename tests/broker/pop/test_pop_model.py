"""Random histories of pop, judged by what docs/pop.md promises (pop_model.py, ordered_model.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.pop import ordered_model, pop_model
from tests.broker.pop.ordered_model import OrderedHistory
from tests.broker.pop.pop_histories import Step, check, make_history
from tests.broker.pop.pop_model import History

pytestmark = pytest.mark.interpreted

SEEDS, LONG_SEEDS = 35, 4_000

FOUND: dict[str, tuple[int, list[Step]]] = {
    "a check point whose record was not published, and the log beyond it at the second kill": (
        521,
        [
            ("send", 42265, 41884, 33362), ("pop", 40758, 44277, 63250),
            ("send", 20792, 35661, 14398), ("pop", 4622, 10614, 36112),
            ("change", 14314, 17669, 56915), ("fuse", 39130, 32538, 58682),
            ("ack", 59801, 33006, 23897), ("ack", 46871, 31483, 60917),
            ("pause", 37519, 4418, 26220), ("send", 35780, 3849, 32563),
            ("fuse", 39465, 29299, 18327), ("pause", 34332, 58663, 28976),
        ],
    ),
    "a changed message of a group that lost its offset, then a kill": (
        1256,
        [
            ("send", 25277, 43401, 53763), ("pause", 6620, 60202, 58157),
            ("pop", 9970, 4593, 16088), ("power", 58657, 40306, 46161),
            ("change", 34187, 63561, 64436), ("batch_ack", 25205, 12973, 49387),
            ("kill", 45887, 8434, 39307),
        ],
    ),
    "one message renewed twice in a ms while the log has no room, then a kill": (
        1978,
        [
            ("send", 43587, 3436, 50532), ("pop", 26033, 953, 60285), ("ack", 49780, 36584, 61848),
            ("room", 50187, 19526, 14711), ("change", 8206, 33016, 16763),
            ("change", 36963, 30860, 47516), ("kill", 21255, 49682, 43827),
            ("pop", 5572, 61549, 22188), ("stop", 10674, 33511, 25673),
        ],
    ),
}  # fmt: skip
"""Shrunk histories that broke a promise once, with the seeds of their worlds."""


@pytest.mark.parametrize("name", FOUND)
def test_what_once_broke_a_promise(tmp_path: Path, name: str) -> None:
    seed, steps = FOUND[name]
    check(History, tmp_path, steps, seed)


def test_pops_keep_their_promises(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        check(History, tmp_path, make_history(seed, pop_model.WEIGHTS), seed)


def test_ordered_pops_keep_their_promises(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        check(OrderedHistory, tmp_path, make_history(seed, ordered_model.WEIGHTS), seed)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("block", range(4))
def test_thousands_of_histories_keep_the_promises(tmp_path: Path, block: int) -> None:
    share = LONG_SEEDS // 4
    for seed in range(SEEDS + block * share, SEEDS + (block + 1) * share):
        check(History, tmp_path, make_history(seed, pop_model.WEIGHTS), seed)
        check(OrderedHistory, tmp_path, make_history(seed, ordered_model.WEIGHTS), seed)
