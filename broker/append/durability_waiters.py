"""DurabilityWaiters: answers to sends that wait for the flush, the replicas, or both.

Pure but for the answers it sends; runs on the loop thread of `remoting`. The durable order is
written here and nowhere else: append (CommitLog.commit) -> flush (flushed_offset) -> replicate
(replicated_offset) -> answer. Offsets and deadlines only grow, so the line is served from its
head; no thread waits. Follows CommitLog.submitFlushRequest / submitReplicaRequest of the original:
both conditions are joined, a replica's failure overrides the flush's. Where both are waited for,
the flush is mostly the later one: when the replicas had acknowledged is remembered until then.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType
from remoting.response_code import ResponseCode

_NO_LIMIT: Final = 1 << 62
_NS_PER_MS: Final = 1_000_000
_FRAME_HEAD: Final = struct.Struct(">ii")
_SUCCESS: Final = b'{"code":0,'
_ACKED: Final = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT)
"""What is answered when enough replicas have acknowledged in time."""


class Answer(Protocol):
    """An answer but for its code."""

    def send(self, code: ResponseCode) -> None:
        """Answer with `code`; the message is stored, whatever the code."""


class AnswerTarget(Protocol):
    """Whoever takes the answer."""

    def send_command(self, command: RemotingCommand) -> None:
        """Send it; a closed connection drops it."""


class FrameWriter(Protocol):
    """Where a finished frame goes: a Connection."""

    def write(self, data: bytes) -> None:
        """Queue it; a closed connection drops it."""


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """An answer that is encoded when it is sent."""

    target: AnswerTarget
    opaque: int
    serialize_type: SerializeType
    fields: dict[str, str]

    def send(self, code: ResponseCode) -> None:
        """Answer with `code`; the message is stored, whatever the code."""
        self.target.send_command(
            RemotingCommand(
                int(code),
                opaque=self.opaque,
                flag=RESPONSE_FLAG,
                ext_fields=self.fields,
                serialize_type=self.serialize_type,
            )
        )


class EncodedAnswer:
    """The frame of a JSON success, ready to leave (plain class: one is made for every send)."""

    __slots__ = ("_frame", "_target")

    def __init__(self, target: FrameWriter, frame: bytes) -> None:
        """frame: lengths, then a header that begins with `{"code":0,`; no body."""
        self._target = target
        self._frame = frame

    def send(self, code: ResponseCode) -> None:
        """Answer with `code`; only a success leaves as it is."""
        if code is ResponseCode.SUCCESS:
            self._target.write(self._frame)
            return
        header = self._frame[_FRAME_HEAD.size :].removeprefix(_SUCCESS)
        header = b'{"code":%d,' % code + header
        self._target.write(_FRAME_HEAD.pack(4 + len(header), len(header)) + header)


class DurabilityStats(Protocol):
    """Where the answers are counted."""

    def waited(
        self,
        request_code: int | None,
        code: ResponseCode,
        waited_ns: int,
        count: int,
        *,
        acked_ns: int | None,
    ) -> None:
        """`count` sends of `request_code` were answered with `code` after they had waited; None:
        nobody had asked for them, or their answers are counted elsewhere.

        acked_ns: from the append until enough replicas had acknowledged; None: nobody waited for
        that, or they had not in time."""


_Waiting = tuple[int, int, int, bool, Answer, int, int | None]
"""End offset, deadlines (ms) of flush and replicas, whether replicas were missing, the answer,
when it came (ns), its request code."""


class _AckTimes:
    """When the replicas had acknowledged how much of the log; offsets and times only grow."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def note(self, replicated_offset: int, now_ns: int) -> None:
        """They have acknowledged up to there now."""
        if not self._marks or self._marks[-1][0] < replicated_offset:
            self._marks.append((replicated_offset, now_ns))

    def find(self, end_offset: int, now_ns: int) -> tuple[int, int]:
        """Up to where, and when, they had acknowledged with what included `end_offset`; forgets
        what was before. No limit and now: they have not."""
        marks = self._marks
        while marks and marks[0][0] < end_offset:
            marks.popleft()
        return marks[0] if marks else (_NO_LIMIT, now_ns)


class DurabilityWaiters:
    """Sends in offset order, each with what it still waits for. Owned by: the loop thread."""

    def __init__(
        self,
        *,
        waits_for_flush: bool,
        waits_for_replicas: bool,
        sync_flush_timeout_ms: int,
        slave_timeout_ms: int,
        stats: DurabilityStats,
    ) -> None:
        self._for_flush = waits_for_flush
        self.waits_for_replicas = waits_for_replicas
        self._flush_timeout_ms = sync_flush_timeout_ms
        self._slave_timeout_ms = slave_timeout_ms
        self._stats = stats
        self._line: deque[_Waiting] = deque()
        self._acks = _AckTimes() if waits_for_flush and waits_for_replicas else None
        """None: whoever waits for replicas is answered as soon as they have acknowledged."""
        self.active = waits_for_flush or waits_for_replicas
        """Whether sends have anything to wait for."""
        self.replicas_available = False
        """Enough live replicas are near enough; the owner refreshes it each turn."""
        self.now_ns = 0
        self.now_ms = 0
        """Monotonic; the owner refreshes both each turn."""

    def __len__(self) -> int:
        return len(self._line)

    @property
    def last_offset(self) -> int:
        """The largest offset that somebody waits for; 0 when nobody waits."""
        return self._line[-1][0] if self._line else 0

    def add(self, end_offset: int, answer: Answer, request_code: int | None) -> None:
        """Answer when the log is safe up to `end_offset`; offsets must not decrease.

        request_code: of a send; None for a record that nobody sent (a due delayed message) and for
        an answer that is counted with a time of its own.
        """
        missing = self.waits_for_replicas and not self.replicas_available
        flush_deadline = self.now_ms + self._flush_timeout_ms if self._for_flush else 0
        waits = self.waits_for_replicas and not missing
        replica_deadline = self.now_ms + self._slave_timeout_ms if waits else 0
        now_ns = self.now_ns
        self._line.append(
            (end_offset, flush_deadline, replica_deadline, missing, answer, now_ns, request_code)
        )

    def can_release(self, flushed_offset: int, replicated_offset: int) -> bool:
        """Whether the head of the line waits for nothing any more."""
        if not self._line:
            return False
        end = self._line[0][0]
        flush_ok = not self._for_flush or end <= flushed_offset
        return flush_ok and (not self.waits_for_replicas or end <= replicated_offset)

    def release(self, flushed_offset: int, replicated_offset: int, now_ns: int) -> int:
        """Answer everybody whose conditions hold or whose time is up; returns how many.

        Those that came in one turn and get one answer are counted at once.
        """
        flushed = flushed_offset if self._for_flush else _NO_LIMIT
        replicated = replicated_offset if self.waits_for_replicas else _NO_LIMIT
        safe = min(flushed, replicated)
        now_ms = now_ns // _NS_PER_MS
        line = self._line
        waiting = len(line)
        acks, acked_to, acked_ns = self._acks, _NO_LIMIT, now_ns
        if acks is not None:
            acks.note(replicated_offset, now_ns)
            safe = acked_to = -1
        count, since_ns, code = 0, 0, ResponseCode.SUCCESS
        request: int | None = None
        while line:
            end, flush_deadline_ms, replica_deadline_ms, missing, answer, came_ns, asked = line[0]
            before = code
            code = ResponseCode.SUCCESS
            if end > safe or missing:
                flush_ok = end <= flushed
                replica_ok = end <= replicated and not missing
                if not flush_ok and now_ms < flush_deadline_ms:
                    code = before
                    break
                if not replica_ok and now_ms < replica_deadline_ms:
                    code = before
                    break
                code = _code(flush_ok=flush_ok, replica_ok=replica_ok, missing=missing)
                if acks is not None and end > acked_to:
                    self._count(request, before, now_ns - since_ns, acked_ns - since_ns, count)
                    count = 0
                    acked_to, acked_ns = acks.find(end, now_ns)
                    safe = min(flushed, replicated, acked_to)
            line.popleft()
            answer.send(code)
            if came_ns != since_ns or code is not before or asked != request:
                self._count(request, before, now_ns - since_ns, acked_ns - since_ns, count)
                count, since_ns, request = 0, came_ns, asked
            count += 1
        self._count(request, code, now_ns - since_ns, acked_ns - since_ns, count)
        return waiting - len(line)

    def _count(
        self,
        request_code: int | None,
        code: ResponseCode,
        waited_ns: int,
        acked_ns: int,
        count: int,
    ) -> None:
        if count:
            acked = acked_ns if self.waits_for_replicas and code in _ACKED else None
            self._stats.waited(request_code, code, waited_ns, count, acked_ns=acked)


def _code(*, flush_ok: bool, replica_ok: bool, missing: bool) -> ResponseCode:
    if missing:
        return ResponseCode.SLAVE_NOT_AVAILABLE
    if not replica_ok:
        return ResponseCode.FLUSH_SLAVE_TIMEOUT
    return ResponseCode.SUCCESS if flush_ok else ResponseCode.FLUSH_DISK_TIMEOUT
