"""PopLimits: which numbers in handles, check points and acks of pop a broker can have written.

Pure checks, any thread. A handle comes back from a client, the journal from a killed process, a
check point from a log that a Java broker or an older one of ours may have written: none of them is
taken for what this broker said before its numbers are in these ranges. The one place of the rule;
who finds a fault refuses (pop/pop_queue_check.py), lets go (the buffer's recovery) or puts
aside (the revive service).

    start offset    0 … the message's queue offset
    pop time        1 … now + timerMaxDelaySec - invisible time (ms): a check point of it can wait
    invisible time  0 … timerMaxDelaySec; in handles of ordered pops what the message was renewed
                    for counts from the pop time and may be more
    revive queue    0 … the revive topic's last (reviveQueueNum may have been more); 999 in
                    handles of ordered pops
    broker name     this broker's, or none

A pop time may be ahead of the clock, since clocks are set back; so far that nothing could be
stored for it, it may not. How old it is has no limit of its own: messages that have expired are
below their queue's first offset, and those are refused (208).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_names import MAX_POP_MESSAGES
from remoting.headers.extra_info_util import ExtraInfo
from remoting.key_builder import POP_ORDER_REVIVE_QUEUE

MAX_DIFF: Final = (1 << 31) - 1
"""Of a message's queue offset to the start offset of its pop: an int32 wherever it is stored."""
MAX_AHEAD_MS: Final = 86_400_000
"""How long after its record was stored in the revive topic a check point may say that it is due:
the timer delivers it a moment before, but by the clock of that time, and clocks are set back."""
MAX_TIME_MS: Final = 1 << 53
"""Of a stored check point: far beyond every clock, and exact in every JSON."""


class PopLimits(NamedTuple):
    """See the module."""

    revive_queue_num: int
    """Queues of the revive topic."""
    max_invisible_ms: int
    """timerMaxDelaySec."""
    broker_name: str

    def fits_time(self, pop_time_ms: int, invisible_time_ms: int, now_ms: int) -> bool:
        """Whether a check point of these times can wait in the timer."""
        return (
            pop_time_ms > 0
            and 0 <= invisible_time_ms <= self.max_invisible_ms
            and pop_time_ms + invisible_time_ms <= now_ms + self.max_invisible_ms
        )

    def fits_handle(self, handle: ExtraInfo, offset: int, now_ms: int) -> bool:
        """Whether the handle of the message at `offset` can be this broker's. Written plainly, as
        every ack asks."""
        start_offset, pop_time_ms, invisible_ms, revive_queue_id, _retry, broker_name = handle
        revive_queue_num, limit_ms, own_name = self
        return (
            0 <= start_offset <= offset <= start_offset + MAX_DIFF
            and pop_time_ms > 0
            and invisible_ms >= 0
            and pop_time_ms + invisible_ms <= now_ms + limit_ms
            and (
                0 <= revive_queue_id < revive_queue_num or revive_queue_id == POP_ORDER_REVIVE_QUEUE
            )
            and (broker_name == own_name or not broker_name)
        )

    def fault_of_handle(self, handle: ExtraInfo, offset: int, now_ms: int) -> str:
        """Which number of a handle that does not fit is wrong."""
        start_offset, pop_time_ms, invisible_ms, revive_queue_id, _retry, broker_name = handle
        until_ms = now_ms + self.max_invisible_ms
        if not 0 <= start_offset <= offset <= start_offset + MAX_DIFF:
            return f"start offset {start_offset} for the message at {offset}"
        if pop_time_ms <= 0 or invisible_ms < 0 or pop_time_ms + invisible_ms > until_ms:
            return (
                f"pop time {pop_time_ms}, invisible time {invisible_ms} (together at most "
                f"{until_ms}: now and timerMaxDelaySec)"
            )
        if broker_name and broker_name != self.broker_name:
            return f"broker name {broker_name[:64]!a} (this one: {self.broker_name})"
        return f"revive queue {revive_queue_id} (0 to {self.revive_queue_num - 1})"


def fault_of_stored(point: PopCheckPoint, stored_ms: int) -> str:
    """Why a check point read from the revive topic is damaged; "": it is not. stored_ms: when its
    record was stored there, which is when it was due."""
    diffs = point.queue_offset_diff
    if not point.topic or not point.group:
        return "no topic, or no group"
    if not 0 <= point.num <= MAX_POP_MESSAGES or len(diffs) > MAX_POP_MESSAGES:
        return f"{point.num} messages, {len(diffs)} offsets (limit {MAX_POP_MESSAGES})"
    if point.queue_id < 0 or point.start_offset < 0 or min(diffs, default=0) < 0:
        return f"queue {point.queue_id}, start offset {point.start_offset}, offsets {diffs}"
    if not 0 <= point.pop_time <= MAX_TIME_MS or abs(point.invisible_time) > MAX_TIME_MS:
        return f"pop time {point.pop_time}, invisible time {point.invisible_time}"
    if point.revive_time > stored_ms + MAX_AHEAD_MS:
        return f"due at {point.revive_time}, but delivered as due at {stored_ms}"
    if point.parse_re_put_times() < 0:
        return f"put again {point.re_put_times} times"
    return ""
