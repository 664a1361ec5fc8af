"""DamageRepairService: fetches what is damaged in this broker's log from another one of its group.

A thread of process `remoting`, on masters and slaves. While ranges of the log are fenced
(store/log_fences.py) it asks the group's other brokers for the records at these places (33), one
after the other, and hands whole ranges to process `store`, which checks them again and puts them
back. A broker whose record behind the range differs from the local one has another log and is not
believed. It writes one file, which it removes again, and nothing of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.slave.group_members import MemberAddress
from broker.slave.remote_log import AskingClient, MasterRefusesError, MasterSilentError, RemoteLog
from ipc.clock import Clock
from ipc.command_channel import CommandClient, CommandError
from ipc.service_thread import FailureHandler, ServiceThread
from store.commit_log_reader import CommitLogReader
from store.log_fences import Fence
from store.log_repair import REPAIR_LIMIT
from store.message_codec import RecordKind, check_record, encode_blank

log = logging.getLogger(__name__)

_FIRST_MS: Final = 1_000
_LONGEST_MS: Final = 300_000
_FETCH_MS: Final = 60_000
_COMMAND_MS: Final = 30_000


class DamageRepairService(ServiceThread):
    """See the module. Owned by: its own thread."""

    def __init__(
        self,
        members: Callable[[], list[MemberAddress] | None],
        client: AskingClient,
        reader: CommitLogReader,
        store: CommandClient,
        scratch: Path,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """members: the other members of the group (GroupMembers). reader: not shared. store: the
        commands of process `store`. scratch: the file in which bytes are handed over."""
        super().__init__("DamageRepairService", on_failure=on_failure)
        self._members = members
        self._client = client
        self._reader = reader
        self._store = store
        self._scratch = scratch
        self._clock = clock
        self._pause_ms = _FIRST_MS

    def step(self) -> None:
        """Try every fence once, then rest; longer each time that nothing helps."""
        fences = list(self._reader.fences)
        if not fences or sum(map(self._repair, fences)):
            self._pause_ms = _FIRST_MS
        else:
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_MS)
        self.wait_for_running(self._pause_ms)

    def _repair(self, fence: Fence) -> bool:
        """True when the fence is lifted."""
        if fence.end - fence.start > REPAIR_LIMIT or self.stopped:
            return False
        for member in self._members() or ():
            who = f"broker {member.broker_id} at"
            try:
                other = RemoteLog(self._client, member.address, self._clock, _FETCH_MS, who=who)
                data = self._fetch(other, fence)
            except (MasterSilentError, MasterRefusesError) as error:
                log.info("the damage at %s cannot be repaired now: %s", fence.start, error)
                continue
            if data is not None and self._hand_over(fence, data, member):
                return True
        return False

    def _fetch(self, other: RemoteLog, fence: Fence) -> bytes | None:
        """The fence's bytes as the other log has them; None when it has other records there."""
        own_behind = self._reader.record_at(fence.end)
        if fence.start < other.min_offset or fence.end > other.max_offset:
            return None
        if own_behind is not None and other.record_at(fence.end) != own_behind:
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

    def _piece(self, other: RemoteLog, at: int, end: int) -> bytes | None:
        """The record at `at`, or, where there is none, the blank that closes its file."""
        record = other.record_at(at)
        if record is not None:
            found = check_record(record, 0, len(record), at, check_crc=True)
            if found.kind is RecordKind.MESSAGE and found.size == len(record):
                return record
        left = self._reader.file_size - at % self._reader.file_size
        return encode_blank(left).ljust(left, b"\0") if at + left <= end else None

    def _hand_over(self, fence: Fence, data: bytes, member: MemberAddress) -> bool:
        try:
            self._scratch.write_bytes(data)
            self._store.call(
                "repair_log",
                _COMMAND_MS,
                start=fence.start,
                end=fence.end,
                source=str(self._scratch),
            )
        except (CommandError, OSError) as error:
            log.error("the damage %s could not be repaired: %s", fence, error)
            return False
        finally:
            self._scratch.unlink(missing_ok=True)
        log.warning("the damage %s was repaired from %s", fence, member.address)
        return True
