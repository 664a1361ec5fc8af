"""tools.chaos.run_summary: seeds added up, as text and as JSON."""

from __future__ import annotations

import json

from tools.chaos.chaos_options import ChaosOptions, ChaosResult
from tools.chaos.run_summary import RunSummary
from tools.chaos.schedule import Fault, FaultKind


def test_two_seeds() -> None:
    options = ChaosOptions(
        seconds=15,
        kinds=list(FaultKind),
        flush="sync",
        replication="sync",
        ack_level="flushed",
        rate=1,
    )
    summary = RunSummary.of("bin/mqchaos --seeds 2", 7, options)
    kill = Fault(FaultKind.KILL, 1.0, 1.0, "master", "ha")
    promote = Fault(FaultKind.PROMOTE, 3.0, 1.0, "master")
    first = ChaosResult(7, [kill], sent=1_000, acknowledged=900, codes={0: 899, 11: 1}, stored=950)
    second = ChaosResult(8, [kill, promote], sent=10, acknowledged=9, codes={0: 9}, stored=9)
    second.recovery_s, second.rto_s, second.violations = 2.5, [1.25], ["lost: one"]
    summary.add(first)
    summary.add(second)
    *lines, versions, violation = summary.text()
    assert lines == [
        "- `bin/mqchaos --seeds 2`",
        "- sync flush, replication sync, haAckLevel=flushed: 1 of 2 seeds held, from 7 on, "
        "15 s of faults each",
        "- faults: 3 (2 kill, 1 promote)",
        "- sent 1,010, acknowledged 909 (0: 908, 11: 1), stored 959",
        "- violations: 1",
        "- slowest recovery: 2.5 s",
        "- slowest promotion: SEND_OK after 1.2 s",
    ]
    assert versions.startswith("- broker ")
    assert violation == "  - seed 8: lost: one"
    found = json.loads(json.dumps(summary.as_json()))
    assert (found["seeds"], found["seeds_held"], found["faults"]) == (
        2,
        1,
        {"kill": 2, "promote": 1},
    )
