"""Which tests share a worker of pytest-xdist: those of a file, and the files that share Spark.

A worker's first test of Spark starts a session, a JVM for 10 CPU seconds. Spread over five workers,
the files that use the fixture `spark` would start five.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

_WITH_SPARK: Final = frozenset(
    f"tests/spark/{name}.py"
    for name in (
        *("evidence/test_evidence_job", "job/test_python_daemon", "job/test_report_job"),
        *("job/test_report_rows", "job/test_results", "test_against_plain"),
        "test_generated_days",
    )
)
"""All but the two longest, test_sla_report and test_end_to_end, which have a session each: no
worker shall be busy with Spark when all others are done."""


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """See the module."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "the tests of one session of Spark" if file in _WITH_SPARK else file
