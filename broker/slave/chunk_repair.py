"""ChunkRepair: makes a chunk of this broker's log hold what a digest says, from another's records.

On the repairing thread of process `remoting`. It knows which digest is right, not why: the bytes
are believed because, put in their places, they give this digest, whoever sent them. Only records
that differ are replaced, each as a whole; where much differs it is another log: nothing is done.

Tested by tests/faults/test_rotten_bits.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.slave.group_members import MemberAddress
from broker.slave.remote_digests import PIECE_SIZE, RemoteDigests
from broker.slave.remote_log import RemoteLog
from broker.slave.repair_commands import RepairCommands
from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader
from store.log_digests import FileDigests, new_digest
from store.record_arrays import walk_records

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_FETCH_MS: Final = 60_000
_MOST_PIECES: Final = 32
"""Of a chunk's 256: rot is rare."""


class ChunkRepair:
    """See the module. Owned by: the repairing thread."""

    def __init__(
        self,
        client: RemotingClient,
        reader: CommitLogReader,
        commands: RepairCommands,
        clock: Clock,
    ) -> None:
        """reader: not shared with other threads."""
        self._client = client
        self._reader = reader
        self._commands = commands
        self._clock = clock

    def repair(
        self, mine: FileDigests, chunk: int, target: str, member: MemberAddress, reason: str
    ) -> bool:
        """Have `chunk` hold what has the digest `target`, as the member's does. reason: what is
        wrong, for people. False: it cannot be had from this member. Raises MasterSilentError,
        MasterRefusesError, CommandError, StoreError, OSError.
        """
        view = self._reader.view_of_file(mine.start)
        if view is None:
            return False
        low, high = mine.range_of(chunk)
        with view:
            own = view[low - mine.start : high - mine.start]
            is_right = new_digest(own).hexdigest() == target
            good = None if is_right else self._fetch(mine, view, low, high, target, member)
            own.release()
        if is_right:
            log.warning(
                "commit log: [%s, %s) is intact in the page cache only; writing it again", low, high
            )
            self._commands.write_again(low, high)
            return True
        if good is None:
            return False
        for start, data in _joined(good):
            self._commands.replace(start, start + len(data), data, reason)
            log.warning(
                "commit log: %s bytes at %s were replaced by those of %s: %s",
                len(data),
                start,
                member.address,
                reason,
            )
        return True

    def _fetch(
        self,
        mine: FileDigests,
        view: memoryview,
        low: int,
        high: int,
        target: str,
        member: MemberAddress,
    ) -> list[tuple[int, bytes]] | None:
        """(log position, bytes) of the records that have to be replaced."""
        who = f"broker {member.broker_id} at"
        theirs = RemoteDigests(self._client, member.address, who).of_pieces(low)
        wrong = _wrong_pieces(view, low - mine.start, high - mine.start, theirs or [])
        if not 0 < len(wrong) <= _MOST_PIECES:
            return None
        other = RemoteLog(self._client, member.address, self._clock, _FETCH_MS, who=who)
        chunk = bytearray(view[low - mine.start : high - mine.start])
        good = []
        for position, size in self._records(mine.start, view, low - mine.start, wrong):
            record = other.record_at(mine.start + position)
            if record is None or len(record) != size:
                return None
            own = bytes(view[position : position + size])
            # What lies in the next chunk is that one's affair.
            first = max(low - mine.start - position, 0)
            last = min(high - mine.start - position, size)
            patched = own[:first] + record[first:last] + own[last:]
            if patched != own:
                good.append((mine.start + position, patched))
                at = mine.start + position + first - low
                chunk[at : at + last - first] = patched[first:last]
        return good if good and new_digest(bytes(chunk)).hexdigest() == target else None

    def _records(
        self, start: int, view: memoryview, chunk_at: int, wrong: list[int]
    ) -> Iterator[tuple[int, int]]:
        """(position in the file, size) of the records that reach into the wrong pieces."""
        begin = max(
            (fence.end - start for fence in self._reader.fences if fence.end - start <= chunk_at),
            default=0,
        )
        begin = max(begin, 0)
        with view[begin:] as rest:
            found, stopped = walk_records(rest)
        starts = [begin + int(at) for at in found]
        ends = [*starts[1:], begin + stopped]
        spans = [(chunk_at + n * PIECE_SIZE, chunk_at + (n + 1) * PIECE_SIZE) for n in wrong]
        for at, end in zip(starts, ends[: len(starts)], strict=True):
            if end > spans[0][0] and any(at < high and end > low for low, high in spans):
                yield at, end - at


def piece_digests(view: memoryview, low: int, high: int) -> list[str]:
    """Of the pieces of view[low:high]."""
    ends = [min(at + PIECE_SIZE, high) for at in range(low, high, PIECE_SIZE)]
    starts = range(low, high, PIECE_SIZE)
    return [new_digest(view[at:end]).hexdigest() for at, end in zip(starts, ends, strict=True)]


def _wrong_pieces(view: memoryview, low: int, high: int, theirs: list[str]) -> list[int]:
    mine = piece_digests(view, low, high)
    if len(mine) != len(theirs):
        return []
    return [n for n, (own, other) in enumerate(zip(mine, theirs, strict=True)) if own != other]


def _joined(good: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Neighbours as one."""
    joined: list[tuple[int, bytes]] = []
    for start, data in good:
        if joined and joined[-1][0] + len(joined[-1][1]) == start:
            joined[-1] = joined[-1][0], joined[-1][1] + data
        else:
            joined.append((start, data))
    return joined
