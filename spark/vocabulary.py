"""The vocabulary of metrics dumps: states, results and roles (docs/metrics_dump.md), the names of a
replica, lengths of time, the largest number.

Plain data for every package; imports nothing.
"""

from __future__ import annotations

from typing import Final

STATES: Final = ("in_sync", "catching_up", "disconnected")
"""Of a replica."""

SYNC_RESULTS: Final = ("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout")
"""Of sends that had to wait."""

SEND_ANSWERS: Final = (
    *("ok", "flush_disk_timeout", "flush_slave_timeout", "slave_not_available", "refused"),
)
"""To all sends, from version 2 of a dump's lines on."""

SYNC_MASTER: Final = "SYNC_MASTER"
MASTER_ROLES: Final = (SYNC_MASTER, "ASYNC_MASTER")

GROUP: Final = ("cluster", "broker")
REPLICA: Final = ("cluster", "broker", "replica")

LEFT_OUT: Final = "the file is left out"
"""How the reason of a bad line begins that is a whole file, whose lines do not count
(spark/dumps/dump_text.py)."""
REPLICAS_LEFT_OUT: Final = "replicas are left out"
"""How the reason of a bad line begins that is a whole group, of which not all replicas are reported
(spark/figures/replica_names.py)."""
ANY_LEFT_OUT: Final = (LEFT_OUT, REPLICAS_LEFT_OUT)
"""With a bad line of such a reason a date is not met."""

FIRST_COPY: Final = "first copy"
NOT_YET: Final = "did not exist yet"
IS_MASTER: Final = "is the master"
"""Why time of a new replica, and of one that leads its group, is excluded, in the report's own
words: nobody else may use them."""

PROMISE_HELD: Final = "held"
PROMISE_LOST: Final = "lost"
PROMISE_UNKNOWN: Final = "not known"
"""Whether what was answered SEND_OK was in the log of the master that was elected."""

LED_TWICE: Final = "two brokers tell that they lead in this epoch"
"""What an election is said to be that nobody can judge."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

LARGEST: Final = 2**63 - 1
"""What a column of type bigint holds."""
LARGEST_INT: Final = 2**31 - 1
"""What one of type int holds."""
