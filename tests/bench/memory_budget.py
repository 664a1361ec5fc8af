"""What each process of an idle broker may hold in memory, and what it holds.

Data, and a table for bin/bench; runs in the process of the benchmark. Anonymous memory is counted
as the machine has it: a page that forked processes share is divided among them (Pss_Anon). RssAnon,
which counts such a page once for each of them, is the second column; together it must stay within
the goal as well. What makes a process large is held by tests/broker/test_memory_by_process.py.

Tested by tests/bench/test_memory_budget.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.broker_figures import look_at
from tests.bench.measuring import MIB
from tests.interop.processes import process_tree

BUDGET_MIB: Final[Mapping[str, int]] = {
    "supervisor": 21,
    "namesrv": 18,
    "store": 26,
    "ha": 18,
    "remoting": 40,
}
"""RssAnon of each process, in MiB, of a broker that serves and has nothing to do."""
GOAL_MIB: Final = 120
"""All together, as the machine has it: what processes share counts once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one process holds, in bytes."""

    name: str
    resident: int
    """RssAnon."""
    share: int
    """Pss_Anon."""


def look_at_memory(root_pid: int) -> list[Holding]:
    """Each process of a broker, the supervisor first."""
    resident = {each.pid: each.rss_anon for each in process_tree(root_pid)}
    return [
        Holding(name=each.name, resident=resident[each.pid], share=each.anonymous)
        for each in look_at(root_pid)
        if each.pid in resident
    ]


def budget_lines(holdings: Sequence[Holding]) -> list[str]:
    """A line for each process, and one for all."""
    lines = [f"{'process':12}{'MiB':>8}{'budget':>8}{'its share':>11}"]
    lines += [_line(each) for each in holdings]
    share = sum(each.share for each in holdings) / MIB
    resident = sum(each.resident for each in holdings) / MIB
    verdict = "ok" if share <= GOAL_MIB else "OVER"
    lines.append(f"{'together':12}{resident:8.1f}{'':8}{share:11.1f}   goal {GOAL_MIB}: {verdict}")
    return lines


def _line(holding: Holding) -> str:
    now, budget = holding.resident / MIB, BUDGET_MIB.get(holding.name)
    limit, verdict = ("-", "no budget") if budget is None else (str(budget), _verdict(now, budget))
    return f"{holding.name:12}{now:8.1f}{limit:>8}{holding.share / MIB:11.1f}   {verdict}"


def _verdict(now: float, budget: int) -> str:
    return "ok" if now <= budget else "OVER"
