"""What haStatus prints of a member's group: role, epoch, SyncStateSet, lease, last role.

Pure; any thread. Tested by tests/tools/test_ha_status.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from remoting.body.ha_runtime_info import HAGroupInfo, HARoleInfo
from tools.message_text import second_text
from tools.report import safe_line

_NONE: Final = "-"


def group_lines(group: HAGroupInfo) -> Iterator[str]:
    """Of a group with a controller."""
    who = "nobody" if group.master_id is None else f"broker {group.master_id}"
    yield (
        f"  group       member {group.member_id}, {safe_line(group.role or _NONE)} in epoch "
        f"{group.epoch}; master is {who}; confirmed up to {group.confirm_offset}"
    )
    if group.sync_state_set:
        members = ", ".join(map(str, group.sync_state_set))
        lease = "" if group.lease_millis is None else f", lease {group.lease_millis / 1000:.1f} s"
        taking = "takes messages" if group.takes_messages else "TAKES NO MESSAGES"
        yield (
            f"  SyncStateSet {members} (minInSyncReplicas {group.min_in_sync_replicas}), {taking}"
            f"{lease}"
        )
    without = f"{group.without_master_total_millis / 1000:.1f} s in all since its start"
    if group.without_master_millis:
        yield f"  NO MASTER   for {group.without_master_millis / 1000:.1f} s, {without}"
    else:
        yield f"  no master   {without}"
    if group.two_masters_seen:
        yield f"  TWO MASTERS were named in one epoch, {group.two_masters_seen} times: its log"
    if group.last_role is not None:
        yield f"  last role   {safe_line(_role(group.last_role))}"


def _role(taken: HARoleInfo) -> str:
    before = ""
    if taken.old_epoch:
        master = "nobody" if taken.old_master_id is None else f"broker {taken.old_master_id}"
        before = f", before that {master} in epoch {taken.old_epoch}"
    gap = taken.without_master_millis
    without = "" if gap is None else f", {gap / 1000:.1f} s without a master"
    return (
        f"{taken.role} in epoch {taken.epoch} at {second_text(taken.timestamp)} ({taken.cause})"
        f"{before}{without}; {max(taken.log_end - taken.confirm_offset, 0)} bytes unconfirmed"
    )
