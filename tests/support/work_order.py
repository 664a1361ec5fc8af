"""In which order several workers take the files of tests (tests/conftest.py).

A worker that has a long file when all others are done makes the run longer by most of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

LONGEST: Final = (
    "spark/job/test_sla_report.py",
    "faults/test_durability_cells.py",
    "interop/test_replication_joins.py",
    "console/test_walk.py",
    "interop/test_replication_pairs.py",
    "interop/test_tls.py",
    "fuzz/test_complexity.py",
    "interop/test_scenarios.py",
    "interop/test_mqadmin_side_by_side.py",
    "tools/chaos/test_mqchaos.py",
    "faults/test_timers.py",
    "interop/test_sql_filter.py",
    "interop/test_replication_attributes.py",
    "spark/test_met_and_was_not.py",
    "faults/test_hung_processes.py",
    "faults/test_role_changes.py",
    "faults/test_step_kills.py",
    "interop/test_etcd.py",
    "interop/test_proxy.py",
    "interop/test_transactions.py",
    "interop/test_replication_failover.py",
)
"""Below tests/, those of a minute and more, the longest first: seconds of a run's results, added up
(docs/testing.md). The first one brings all that use Spark (one_session.py)."""
_LONG_ROOMS: Final = (
    ("spark", "bench"),
    ("interop", "faults"),
    ("fuzz", "packaging", "simulation", "tools"),
)
"""Whose files take tens of seconds. The first kind computes, the second waits for processes."""


def in_turn(files: Iterable[str]) -> list[str]:
    """`files`, paths below tests/, the longest first, then the rooms with long ones, a file of each
    kind in turn, so that workers seldom want the same; at the end what takes seconds."""
    usual = list(files)
    known = set(usual)
    longest = [name for name in LONGEST if name in known]
    kinds = ([name for name in usual if name.split("/")[0] in kind] for kind in _LONG_ROOMS)
    turns = itertools.zip_longest(*kinds)
    return list(
        dict.fromkeys([*longest, *(name for turn in turns for name in turn if name), *usual])
    )
