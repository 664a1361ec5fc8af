"""Why a replica's connection ended in an incident, and to which host: from lines of version 2.

Runs in the executors. The master tells of the last connection of each replica; what is told at the
time of an incident is its reason. Must not know objectives or pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from spark.dumps.dump_line import ReplicaRow

SLACK_MS: Final = 2_500
"""A connection's end is looked for from so long before the first bad moment on: a silence of
process `ha` of up to 2 s is booked late, and it looks five times a second."""


def ended_connection(rows: Iterable[ReplicaRow], start_ms: int, end_ms: int) -> dict[str, Any]:
    """`peer`, `disconnect_ms` and `disconnect_reason` of the first connection that ended in an
    incident; None without any. `rows`: the replica's, of the samples in it."""
    ends = [
        (row.last_error.ts, row.last_error.reason, row.remote)
        for row in rows
        if row.last_error is not None and start_ms - SLACK_MS <= row.last_error.ts <= end_ms
    ]
    if not ends:
        return dict.fromkeys(("peer", "disconnect_ms", "disconnect_reason"))
    ts, reason, remote = min(ends, key=lambda end: end[0])
    return {"peer": remote, "disconnect_ms": ts, "disconnect_reason": reason}
