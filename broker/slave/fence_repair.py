"""FenceRepair: fetches what is damaged in this broker's log from another one of its group.

On the thread of DamageRepairService, on masters and slaves. It asks the group's other brokers for
the records of a fenced range (33), one after the other, and hands the whole range to process
`store`, which checks it again and puts it back. A broker none of whose next records behind the
range is the local one has another log and is not believed. Where a master finds out that all its
replicas end before a range, nobody has its records any more, and no replica could get what is
behind it: the range is given records that nothing refers to (store/lost_range.py). It writes one
file, which it removes again, and nothing of the store.

Tested by tests/faults/test_log_damage.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.slave.group_members import FindMembers, MemberAddress
from broker.slave.remote_log import MasterRefusesError, MasterSilentError, RemoteLog
from broker.slave.repair_commands import RepairCommands
from broker.topic.system_topics import SELF_TEST_TOPIC
from ipc.clock import Clock
from ipc.command_channel import CommandError
from store.commit_log_reader import CommitLogReader
from store.log_fences import Fence
from store.log_repair import REPAIR_LIMIT
from store.lost_range import LostRange
from store.message_codec import (
    RecordKind,
    check_record,
    encode_blank,
    read_store_timestamp,
)

if TYPE_CHECKING:
    from broker.slave.remembered_replicas import RememberedReplicas
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_FETCH_MS: Final = 60_000
_RECORDS_BEHIND: Final = 8
_LOST_AFTER: Final = 3
"""How often in a row nobody has to have a range before it is taken for lost."""


class FenceRepair:
    """See the module. Owned by: the repairing thread."""

    def __init__(
        self,
        members: FindMembers,
        client: RemotingClient,
        reader: CommitLogReader,
        commands: RepairCommands,
        clock: Clock,
        claim: Callable[[bytes], None],
        replicas: RememberedReplicas | None,
    ) -> None:
        """members: the other members of the group (GroupMembers). reader: not shared. claim: gets
        the records that come back, before they do: their queue offsets are theirs. Raises
        TimeoutError. replicas: what a master knows of its own; None on a slave, which waits for
        its master."""
        self._members = members
        self._client = client
        self._reader = reader
        self._commands = commands
        self._clock = clock
        self._claim = claim
        self._replicas = replicas
        self._nobody_has: dict[int, int] = {}
        """Start of a fence: how often in a row no replica reached as far. Only for fences."""

    def try_all(self, is_stopped: Callable[[], bool]) -> bool:
        """Try every fence once. False: there are some, and nothing of what was tried helps."""
        fences = list(self._reader.fences)
        self._nobody_has = {f.start: self._nobody_has.get(f.start, 0) for f in fences}
        repaired = sum(self._repair(fence, is_stopped) for fence in fences)
        return not fences or repaired > 0 or any(self._nobody_has.values())

    def _repair(self, fence: Fence, is_stopped: Callable[[], bool]) -> bool:
        """True when the fence is lifted."""
        if fence.end - fence.start > REPAIR_LIMIT or is_stopped():
            return False
        members = self._members() or []
        ending_before: list[MemberAddress] = []
        for member in members:
            who = f"broker {member.broker_id} at"
            try:
                other = RemoteLog(self._client, member.address, self._clock, _FETCH_MS, who=who)
                data = self._fetch(other, fence)
            except (MasterSilentError, MasterRefusesError) as error:
                log.info("the damage at %s cannot be repaired now: %s", fence.start, error)
                continue
            if data is not None and self._hand_over(fence, data, f"from {member.address}"):
                return True
            if other.max_offset <= fence.start:
                ending_before.append(member)
        return self._is_lost(fence, members, ending_before) and self._give_up(fence, members)

    def _is_lost(
        self, fence: Fence, members: list[MemberAddress], ending_before: list[MemberAddress]
    ) -> bool:
        """Whether every replica has been seen to end before the range, several times in a row.
        Who only says that it is one does not count."""
        replicas = self._replicas
        own = [] if replicas is None else [m for m in members if replicas.is_proved(m)]
        if not own or any(member not in ending_before for member in own):
            self._nobody_has[fence.start] = 0
            return False
        self._nobody_has[fence.start] += 1
        return self._nobody_has[fence.start] >= _LOST_AFTER

    def _give_up(self, fence: Fence, members: list[MemberAddress]) -> bool:
        """Nobody has what was in the range: replace it, so that the replicas get what is behind
        it. True when that was done."""
        behind = self._reader.record_at(fence.end)
        if self._replicas is None or behind is None:
            return False
        if missing := self._replicas.absent(members):
            log.error(
                "the damage %s: the available replicas end before it and cannot get what follows "
                "it; %s may have it: start them, or delete them from known_replicas.json",
                fence,
                ", ".join(missing),
            )
            return False
        lost = LostRange(
            start=fence.start,
            end=fence.end,
            file_size=self._reader.file_size,
            topic=SELF_TEST_TOPIC,
            store_timestamp=read_store_timestamp(behind, 0),
        )
        data = lost.records()
        if data is None:
            log.error("the damage %s: no replica has it, and it is too small for a record", fence)
            return False
        return self._hand_over(fence, data, "by records without content: no replica has it")

    def _fetch(self, other: RemoteLog, fence: Fence) -> bytes | None:
        """The fence's bytes as the other log has them; None when it has other records there."""
        if fence.start < other.min_offset or fence.end > other.max_offset:
            return None
        if not self._is_same_log(other, fence.end):
            return None
        pieces: list[bytes] = []
        at = fence.start
        while at < fence.end:
            piece = self._piece(other, at, fence.end)
            if piece is None or at + len(piece) > fence.end:
                return None
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def _is_same_log(self, other: RemoteLog, phy_offset: int) -> bool:
        """Whether a record behind the damage is the other's, too; the next one may be rotten, on
        either side, in bytes that no check sum covers."""
        at = phy_offset
        for _ in range(_RECORDS_BEHIND):
            own = self._reader.record_at(at)
            if own is None:
                return at == phy_offset
            if other.record_at(at) == own:
                return True
            at += len(own)
        return False

    def _piece(self, other: RemoteLog, at: int, end: int) -> bytes | None:
        """The record at `at`, or, where there is none, the blank that closes its file."""
        record = other.record_at(at)
        if record is not None:
            found = check_record(record, 0, len(record), at, check_crc=True)
            if found.kind is RecordKind.MESSAGE and found.size == len(record):
                return record
        left = self._reader.file_size - at % self._reader.file_size
        return encode_blank(left).ljust(left, b"\0") if at + left <= end else None

    def _hand_over(self, fence: Fence, data: bytes, how: str) -> bool:
        try:
            self._claim(data)
            self._commands.put_back(fence.start, fence.end, data)
        except (CommandError, OSError) as error:
            log.error("the damage %s could not be repaired: %s", fence, error)
            return False
        log.warning("the damage %s was repaired %s", fence, how)
        return True
