"""Groups of Java's beside ours under the same faults: broken, measured and counted alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.java_chaos import JavaGroup, compare
from tools.chaos.election_options import ElectionOptions, ElectionResult, FaultOutcome
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.election_series import ElectionSeries
from tools.chaos.election_summary import ElectionSummary


def summary_of(gap_s: float, *, lost: int) -> ElectionSummary:
    fault = FaultOutcome(ElectionFault.KILL_MASTER, "kill_master", "broker-1", True, 1.0)
    fault.gap_s, fault.has_elected = gap_s, True
    result = ElectionResult(1, "SYNC_FLUSH", faults=[fault], codes={0: 1_200, 11: 3}, lost=lost)
    result.violations += ["lost: message 1"] * bool(lost)
    summary = ElectionSummary("java_chaos", 1)
    summary.add(result)
    return summary


def test_the_sides_in_one_table() -> None:
    table = compare({"ours": summary_of(0.25, lost=0), "5.3.3": summary_of(7.5, lost=2)})
    assert table == [
        "|  | ours | 5.3.3 |",
        "| --- | --- | --- |",
        "| kill_master | 1 of 1: p50 0.25 s, p99 0.25 s | 1 of 1: p50 7.50 s, p99 7.50 s |",
        "| seeds that held | 1 of 1 | 0 of 1 |",
        "| answered SEND_OK | 1,200 | 1,200 |",
        "| of these lost | 0 | 2 |",
        "| stored twice | 0 | 0 |",
    ]


@pytest.mark.interop
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_seed_on_java(tmp_path: Path) -> None:
    """Cut off from all others, its master is replaced: the tool's network is between JVMs, too."""
    options = ElectionOptions(kinds=[ElectionFault.CUT_MASTER], faults=1, rate=300)
    with ElectionSeries(tmp_path, options, keeps=False, say=print, make_group=JavaGroup) as series:
        result = series.run(1)
    (fault,) = result.faults
    assert fault.has_elected, result.violations
    assert fault.gap_s > 1
    assert result.codes[0] > 100
