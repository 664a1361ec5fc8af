"""DigestComparison: compares this broker's closed log files with those of the group's others.

On the repairing thread of process `remoting`. Both sides keep digests of what their scrub has read
from disk (store/log_digests.py). Where they differ, and every record passes its own checks, it
judges by three rules, in this order:

1. Ours has changed since it was read first, and another broker has what it was: ours is wrong. That
   broker needs no proof: the digest is our own.
2. Of three copies or more that are proved to be the group's, more than half hold the same: it is
   right.
3. Nobody can know. It is reported, and nothing is changed.

Where ours is right the other broker finds that out itself. It fetches no records (ChunkRepair).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.slave.chunk_repair import ChunkRepair
from broker.slave.group_members import MemberAddress
from broker.slave.remote_digests import RemoteDigests
from broker.slave.remote_log import MasterRefusesError, MasterSilentError
from broker.slave.repair_commands import RepairCommands
from ipc.command_channel import CommandError
from remoting.body.log_verification import ReplicaComparison
from store.log_digests import FileDigests, LogDigests

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

Seen = Mapping[MemberAddress, str | None]
"""What each broker's chunk holds now; None: it is damaged there."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a chunk of ours should hold, who has it, and why."""

    target: str
    holders: tuple[MemberAddress, ...]
    reason: str


def judge(
    mine: FileDigests, chunk: int, seen: Seen, is_proved: Callable[[MemberAddress], bool]
) -> Judgement | None:
    """None: ours is right, or nobody can know. Rules: see the module."""
    own, expected = mine.current(chunk), mine.digests[chunk]
    if own is None:
        return None
    if chunk in mine.found:
        holders = tuple(member for member, digest in seen.items() if digest == expected)
        if holders:
            reason = "the bytes have changed since they were read first"
            return Judgement(expected, holders, reason)
    proved = {m: digest for m, digest in seen.items() if digest is not None and is_proved(m)}
    # Of two copies that differ, neither has more than half.
    digest, count = Counter([own, *proved.values()]).most_common(1)[0]
    if digest == own or 2 * count <= len(proved) + 1:
        return None
    holders = tuple(member for member, other in proved.items() if other == digest)
    return Judgement(digest, holders, f"{count} of {len(proved) + 1} copies have other bytes")


class DigestComparison:
    """See the module. Owned by: the repairing thread."""

    def __init__(
        self,
        client: RemotingClient,
        digests: LogDigests,
        repair: ChunkRepair,
        commands: RepairCommands,
        is_proved: Callable[[MemberAddress], bool],
    ) -> None:
        """is_proved: whether a member is known to be a replica of this group, or its master."""
        self._client = client
        self._digests = digests
        self._repair = repair
        self._commands = commands
        self._is_proved = is_proved

    def compare(
        self, members: list[MemberAddress], stopped: Callable[[], bool]
    ) -> list[ReplicaComparison]:
        """One row for each member. Repairs what can be. Raises StoreError, OSError."""
        rows = {
            member: ReplicaComparison(broker_id=member.broker_id, broker_addr=member.address)
            for member in members
        }
        for start in self._digests.starts():
            mine = self._digests.load(start)
            if mine is None or stopped():
                continue
            theirs = {m: self._ask(m, start, rows) for m in members if rows[m].error is None}
            for chunk in range(len(mine.digests)):
                low, high = mine.range_of(chunk)
                if low < high:
                    self._chunk(mine, chunk, theirs, rows)
        return list(rows.values())

    def _ask(
        self, member: MemberAddress, start: int, rows: dict[MemberAddress, ReplicaComparison]
    ) -> FileDigests | None:
        who = f"broker {member.broker_id} at"
        try:
            return RemoteDigests(self._client, member.address, who).of_file(start)
        except (MasterSilentError, MasterRefusesError) as error:
            rows[member] = replace(rows[member], error=str(error))
            return None

    def _chunk(
        self,
        mine: FileDigests,
        chunk: int,
        theirs: Mapping[MemberAddress, FileDigests | None],
        rows: dict[MemberAddress, ReplicaComparison],
    ) -> None:
        own = mine.current(chunk)
        seen: dict[MemberAddress, str | None] = {}
        for member, other in theirs.items():
            if other is None or not _covers(other, mine, chunk):
                row = rows[member]
                rows[member] = replace(row, missing_chunks=row.missing_chunks + 1)
            else:
                seen[member] = other.current(chunk)
        verdict = judge(mine, chunk, seen, self._is_proved)
        repaired_from = None if verdict is None else self._try(mine, chunk, verdict)
        if repaired_from is not None and verdict is not None:
            own = verdict.target
        elif own is not None and chunk in mine.found:
            self._accept(mine, chunk, own, seen)
        low, high = mine.range_of(chunk)
        for member, digest in seen.items():
            row = _counted(rows[member], low, high, own, digest)
            if member == repaired_from:
                row = replace(row, repaired_chunks=row.repaired_chunks + 1)
            rows[member] = row

    def _try(self, mine: FileDigests, chunk: int, verdict: Judgement) -> MemberAddress | None:
        """Who gave the right bytes."""
        for member in verdict.holders:
            try:
                if self._repair.repair(mine, chunk, verdict.target, member, verdict.reason):
                    if verdict.target != mine.digests[chunk]:
                        self._commands.accept_digest(mine.start, chunk, verdict.target)
                    return member
            except (MasterSilentError, MasterRefusesError, CommandError) as error:
                log.error("[%s, %s) cannot be repaired now: %s", *mine.range_of(chunk), error)
        return None

    def _accept(self, mine: FileDigests, chunk: int, own: str, seen: Seen) -> None:
        """Ours has changed, but a replica of this group has the same, and nobody what it was: the
        change was meant (another broker program used the store, or an operator)."""
        if any(digest == mine.digests[chunk] for digest in seen.values()):
            return
        if any(digest == own and self._is_proved(member) for member, digest in seen.items()):
            try:
                self._commands.accept_digest(mine.start, chunk, own)
            except CommandError as error:
                log.error(
                    "cannot accept the new digest of [%s, %s): %s", *mine.range_of(chunk), error
                )
            else:
                log.warning(
                    "commit log: [%s, %s) has changed as in a replica; accepting the change",
                    *mine.range_of(chunk),
                )


def _covers(other: FileDigests, mine: FileDigests, chunk: int) -> bool:
    """Whether the other file's chunk is of the same bytes; damage may hide where its data ends."""
    if other.chunk_size != mine.chunk_size or chunk >= len(other.digests):
        return False
    return other.current(chunk) is None or other.range_of(chunk) == mine.range_of(chunk)


def _counted(
    row: ReplicaComparison, low: int, high: int, own: str | None, digest: str | None
) -> ReplicaComparison:
    begin = low if not row.end_offset else row.begin_offset
    row = replace(
        row,
        begin_offset=begin,
        end_offset=max(row.end_offset, high),
        compared_bytes=row.compared_bytes + high - low,
    )
    if own is None or digest is None:
        return replace(row, damaged_chunks=row.damaged_chunks + 1)
    if own == digest:
        return replace(row, equal_chunks=row.equal_chunks + 1)
    log.error(
        "commit log: [%s, %s) differs from that of broker %s at %s",
        low,
        high,
        row.broker_id,
        row.broker_addr,
    )
    first = low if row.first_difference is None else row.first_difference
    return replace(row, different_chunks=row.different_chunks + 1, first_difference=first)
