"""What is said of many seeds on groups with controllers."""

from __future__ import annotations

import pytest

from tools.chaos.election_options import ElectionResult, FaultOutcome
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.election_summary import ElectionSummary, percentile, result_line


def outcome(gap_s: float, *, elected: bool = True, whole: bool = True) -> FaultOutcome:
    fault = FaultOutcome(ElectionFault.KILL_MASTER, "kill_master", "broker-1", whole, 1.0)
    fault.gap_s, fault.has_elected = gap_s, elected
    return fault


def result(seed: int, *faults: FaultOutcome) -> ElectionResult:
    found = ElectionResult(seed, "SYNC_FLUSH", faults=list(faults))
    found.sent, found.codes, found.stored, found.rate = 10, {0: 8, -1: 2}, 9, 1234.0
    found.lost, found.doubled = 2, 3
    return found


def test_a_table_by_kind_of_fault() -> None:
    summary = ElectionSummary("bin/mqchaos --controller", 5)
    summary.add(result(5, outcome(0.2), outcome(0.4), outcome(9.0, whole=False)))
    bad = result(6, outcome(1.5), outcome(0.1, elected=False))
    bad.violations.append("lost: message 1")
    summary.add(bad)
    (row,) = summary.rows()
    assert (row.faults, row.elections) == (5, 4)
    # Only where everybody had been in the set, and where another master came.
    assert (row.p50_s, row.p99_s, row.most_s, row.meets_aim) == (0.4, 1.5, 1.5, False)
    text = "\n".join(summary.text())
    assert "1 of 2 seeds held, from 5 on" in text
    assert "stored 18, lost 4, stored twice 6," in text
    assert "| kill_master | 5 | 4 | 0.40 | 1.50 | 1.50 | 1, missed |" in text
    assert "seed 6: lost: message 1" in text
    assert summary.as_json()["rows"][0]["p99_s"] == 1.5
    assert result_line(bad).startswith("seed 6: 1 violations; SYNC_FLUSH; 10 sent (-1: 2, 0: 8)")


def test_no_election_has_no_figures() -> None:
    summary = ElectionSummary("x", 1)
    summary.add(result(1, outcome(0.3, elected=False)))
    (row,) = summary.rows()
    assert (row.p50_s, row.p99_s, row.meets_aim) == (None, None, True)
    assert summary.text()[-1] == "| kill_master | 1 | 0 |  |  |  | 1 |"


@pytest.mark.parametrize(
    ("figures", "share", "expected"),
    [([], 0.5, None), ([1.0], 0.99, 1.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0)],
)
def test_percentiles(figures: list[float], share: float, expected: float | None) -> None:
    assert percentile(figures, share) == expected
    assert percentile([float(n) for n in range(1, 201)], 0.99) == 198.0
