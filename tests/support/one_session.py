"""Which tests share a worker of pytest-xdist: those of a file, of the files that use Spark, and of
those with clients of Java.

A worker's first test of Spark starts a session, a JVM for 10 CPU seconds that is slow until it has
compiled what a report needs. Spread over five workers, the files that use the fixture `spark` would
start five. They are what a run begins with (work_order.py), and last less than half of it. The same
holds for the JVMs of Java's clients, two in each worker whose tests ask for them, and the cluster
that they talk to: two workers have all of these tests, half a run each.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

_WITH_SPARK: Final = frozenset(
    f"tests/spark/{name}.py"
    for name in (
        *("evidence/test_evidence_job", "job/test_python_daemon", "job/test_report_job"),
        *("job/test_report_rows", "job/test_results", "job/test_sla_report"),
        *("test_against_plain", "test_end_to_end", "test_generated_days", "test_notebooks"),
        *("sources/test_rocketmq", "sources/test_rocketmq_dumps", "sources/test_rocketmq_lag"),
        *("sources/test_rocketmq_log", "sources/test_write"),
    )
)


_WITH_CLIENTS: Final = tuple(
    frozenset(f"tests/interop/test_{name}.py" for name in names)
    for names in (
        (
            *("tls", "scenarios", "transactions", "name_servers", "acl", "mixed_groups"),
            *("store_exchange", "client_relays", "metrics_names", "auth", "acting_master"),
            *("request_reply", "timers", "queries", "batch_queues"),
        ),
        (
            *("replication_pairs", "sql_filter", "replication_failover", "delays_and_retries"),
            *("push_consumers", "replication_statuses", "pop_consumers", "rebalance"),
            *("static_topics", "lite_pull_consumers", "replication_ha_status", "producers"),
            *("container", "volume", "requests_of_5x", "compaction_exchange", "dledger_import"),
            "log_directories",
        ),
    )
)
"""Of about the same length, together."""
_SHARING: Final = {
    **dict.fromkeys(_WITH_SPARK, "the tests of one session of Spark"),
    **{
        file: f"the tests of Java's clients, {number}"
        for number, files in enumerate(_WITH_CLIENTS)
        for file in files
    },
}


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """See the module."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _SHARING.get(file, file)
