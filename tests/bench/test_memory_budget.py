"""The table of memory by process: who is over its budget, and what all hold together."""

from __future__ import annotations

import os

from tests.bench.measuring import MIB
from tests.bench.memory_budget import BUDGET_MIB, GOAL_MIB, Holding, budget_lines, look_at_memory


def holding(name: str, resident_mib: float, share_mib: float) -> Holding:
    return Holding(name=name, resident=int(resident_mib * MIB), share=int(share_mib * MIB))


def test_each_process_beside_its_budget() -> None:
    budget = BUDGET_MIB["store"]
    lines = budget_lines([holding("store", budget, 9), holding("ha", BUDGET_MIB["ha"] + 1, 9)])
    assert [line.split()[0] for line in lines] == ["process", "store", "ha", "together"]
    assert lines[1].endswith("ok")
    assert lines[2].endswith("OVER")
    assert "no budget" in budget_lines([holding("another", 1, 1)])[1]


def test_what_is_shared_counts_once_for_the_goal() -> None:
    most = [holding(name, GOAL_MIB, GOAL_MIB / 2) for name in ("store", "ha")]
    assert budget_lines(most)[-1].endswith(f"goal {GOAL_MIB}: ok")
    over = [*most, holding("remoting", 1, 1)]
    assert budget_lines(over)[-1].endswith(f"goal {GOAL_MIB}: OVER")


def test_a_process_is_looked_at() -> None:
    [found, *_] = look_at_memory(os.getpid())
    assert found.share > MIB
    assert found.resident > MIB
