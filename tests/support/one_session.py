"""Which tests share a worker of pytest-xdist: those of a file, and the files that share Spark.

A worker's first test of Spark starts a session, a JVM for 10 CPU seconds that is slow until it has
compiled what a report needs. Spread over five workers, the files that use the fixture `spark` would
start five. They are what a run begins with (work_order.py), and last less than half of it.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

_WITH_SPARK: Final = frozenset(
    f"tests/spark/{name}.py"
    for name in (
        *("evidence/test_evidence_job", "job/test_python_daemon", "job/test_report_job"),
        *("job/test_report_rows", "job/test_results", "job/test_sla_report"),
        *("test_against_plain", "test_end_to_end", "test_generated_days"),
    )
)


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """See the module."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "the tests of one session of Spark" if file in _WITH_SPARK else file
