"""DurabilityWaiters: responses to sends that wait for the flush, the replicas, or both.

Pure except for the answers it calls; runs on the loop thread of `remoting`. The durable order is
defined only here: append (CommitLog.commit) -> flush (flushed_offset) -> replicate
(replicated_offset) -> answer. Offsets and deadlines only grow, so the queue is served from its
head; no thread waits. Follows RocketMQ's CommitLog.submitFlushRequest / submitReplicaRequest:
both conditions must hold, and a replica's failure overrides the flush's. If both are waited for,
the flush is usually the later one: the time of the replicas' acknowledgement is kept until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from remoting.response_code import ResponseCode

_NO_LIMIT: Final = 1 << 62
_NS_PER_MS: Final = 1_000_000
_ACKED: Final = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT)
"""What is answered when enough replicas have acknowledged in time."""


Answer = Callable[[ResponseCode], None]
"""Answers a request whose message is stored, with the code that came out."""


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
    """Times at which the replicas had acknowledged the log up to an offset; both only grow."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def note(self, replicated_offset: int, now_ns: int) -> None:
        """The replicas have acknowledged up to there now."""
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
        is_safe_mode: bool = False,
    ) -> None:
        """is_safe_mode: all of a SyncStateSet is waited for (allAckInSyncStateSet)."""
        self._for_flush = waits_for_flush
        self.waits_for_replicas = waits_for_replicas
        self.is_safe_mode: Final = is_safe_mode
        """Then an answer on which a client forgets a message waits, too, where RocketMQ's does
        not: nobody else sends it again after the next election."""
        self._flush_timeout_ms = sync_flush_timeout_ms
        self._slave_timeout_ms = slave_timeout_ms
        self._stats = stats
        self._queue: deque[_Waiting] = deque()
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
        return len(self._queue)

    @property
    def last_offset(self) -> int:
        """The largest offset that a send waits for; 0 if none waits."""
        return self._queue[-1][0] if self._queue else 0

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
        self._queue.append(
            (end_offset, flush_deadline, replica_deadline, missing, answer, now_ns, request_code)
        )

    def can_release(self, flushed_offset: int, replicated_offset: int) -> bool:
        """Whether the head of the queue no longer waits for anything."""
        if not self._queue:
            return False
        end = self._queue[0][0]
        flush_ok = not self._for_flush or end <= flushed_offset
        return flush_ok and (not self.waits_for_replicas or end <= replicated_offset)

    def release(self, flushed_offset: int, replicated_offset: int, now_ns: int) -> int:
        """Answer all sends whose conditions hold or whose time is up; returns their number.

        Those that arrived in one turn and get the same answer are counted together.
        """
        flushed = flushed_offset if self._for_flush else _NO_LIMIT
        replicated = replicated_offset if self.waits_for_replicas else _NO_LIMIT
        safe = min(flushed, replicated)
        now_ms = now_ns // _NS_PER_MS
        queue = self._queue
        waiting = len(queue)
        acks, acked_to, acked_ns = self._acks, _NO_LIMIT, now_ns
        if acks is not None:
            acks.note(replicated_offset, now_ns)
            safe = acked_to = -1
        count, since_ns, code = 0, 0, ResponseCode.SUCCESS
        request: int | None = None
        while queue:
            end, flush_deadline_ms, replica_deadline_ms, missing, answer, came_ns, asked = queue[0]
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
            queue.popleft()
            answer(code)
            if came_ns != since_ns or code is not before or asked != request:
                self._count(request, before, now_ns - since_ns, acked_ns - since_ns, count)
                count, since_ns, request = 0, came_ns, asked
            count += 1
        self._count(request, code, now_ns - since_ns, acked_ns - since_ns, count)
        return waiting - len(queue)

    def give_up(self, now_ns: int) -> int:
        """Answer at once all that wait: this broker leads no more. What they stored may survive or
        not; that is what a replica's timeout says. Returns their number."""
        queue, count = self._queue, len(self._queue)
        while queue:
            _, _, _, _, answer, came_ns, request_code = queue.popleft()
            answer(ResponseCode.FLUSH_SLAVE_TIMEOUT)
            self._count(request_code, ResponseCode.FLUSH_SLAVE_TIMEOUT, now_ns - came_ns, 0, 1)
        if self._acks is not None:
            self._acks = _AckTimes()
        return count

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
