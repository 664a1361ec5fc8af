"""What a killed broker's journal says, brought back into Pops.

Pure: the rows come as values, what there is to do about them is left in the effects of Pops. No
check point can wait for the times of some that older brokers took from clients, and every offset
would wait for it: their messages come again at once. A row that names no message of its queue is
let go, and so are the later pops of its queue: the offset must not pass over its messages with
those of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.pop.buffered_pops import OffsetQueue, PopCheckPointWrapper, QueueKey
from broker.pop.check_point import CheckPoint
from broker.pop.pop_effects import Commit, FreeQueue, FreeRow
from broker.pop.pop_journal import JournalQueue, JournalRow
from broker.pop.pop_limits import PopLimits
from broker.pop.pops import Pops


class Found(NamedTuple):
    """What the log, the queues and the offset table say of what the journal says."""

    limits: PopLimits
    now_ms: int
    log_end: int
    """Of the published log."""
    queue_end: Callable[[str, int], int | None]
    """The next queue offset of (topic, queue id); None: it has no message."""
    stored_offset: Callable[[QueueKey], int | None]
    """Of the group."""


class LetGo(NamedTuple):
    """What is not as the journal says: the queue, row or check point, and why."""

    what: JournalQueue | JournalRow
    fault: str
    is_dropped: bool
    """Else its times are others now."""


def recover(
    pops: Pops, queues: list[JournalQueue], rows: list[JournalRow], found: Found
) -> list[LetGo]:
    """Rebuild; rows: in the order in which they were made."""
    let_go: list[LetGo] = []
    by_number: dict[int, OffsetQueue] = {}
    for one in queues:
        end = found.queue_end(one.topic, one.queue_id) or 0
        if one.committed > end:
            pops.effects.append(FreeQueue(one.number))
            let_go.append(LetGo(one, f"the queue ends at {end}", is_dropped=True))
        else:
            by_number[one.number] = _recover_queue(pops, one, found)
    broken: set[OffsetQueue] = set()
    dropped: list[int] = []
    for row in rows:
        queue = by_number.get(row.queue)
        fault = "its queue no longer exists" if queue is None else _fault_of(row, queue, found)
        if queue is not None and row.point.next_offset != -1 and (fault or queue in broken):
            fault = fault or "it is behind one that was dropped"
            broken.add(queue)
        if queue is None or fault:
            dropped.append(row.row)
            let_go.append(LetGo(row, fault, is_dropped=True))
        else:
            _recover_row(pops, row, queue, found, let_go)
    # A kill leaves none behind one that is gone.
    pops.effects.extend([FreeRow(number) for number in reversed(dropped)])
    pops.all_recovered(holds_offsets=bool(rows))
    return let_go


def _recover_queue(pops: Pops, one: JournalQueue, found: Found) -> OffsetQueue:
    key = one.topic, one.group, one.queue_id
    queue = pops.open_queue(one.number, key, one.committed, found.now_ms)
    stored = found.stored_offset(key)
    if stored is None or stored < one.committed:
        pops.effects.append(Commit(queue, one.committed, []))
    return queue


def _recover_row(
    pops: Pops, row: JournalRow, queue: OffsetQueue, found: Found, let_go: list[LetGo]
) -> None:
    point = _point_of(row, found)
    if point != row.point:
        let_go.append(LetGo(row, "its times cannot be", is_dropped=False))
    stands_in = queue if point.next_offset >= 0 else None
    wrapper = PopCheckPointWrapper(
        point,
        point.key,
        row.row,
        stands_in,
        bits=row.bits & (1 << len(point.diffs)) - 1,
        stored_end=row.stored_end,
    )
    pops.recover_row(wrapper, queue, found.log_end, found.now_ms)


def _point_of(row: JournalRow, found: Found) -> CheckPoint:
    limits, point = found.limits, row.point
    if (
        limits.fits_time(point.pop_time_ms, point.invisible_time_ms, found.now_ms)
        and 0 <= point.revive_queue_id < limits.revive_queue_num
    ):
        return point
    return point._replace(
        # Each of another time: it is a part of its key.
        pop_time_ms=max(found.now_ms - row.row, 1),
        invisible_time_ms=0,
        revive_queue_id=row.row % limits.revive_queue_num,
    )


def _fault_of(row: JournalRow, queue: OffsetQueue, found: Found) -> str:
    """Why a row names no messages; "": it names some, or, rightly, none."""
    point, (topic, _group, queue_id) = row.point, queue.key
    if point.start_offset < 0 or point.next_offset < -1 or min(point.diffs, default=0) < 0:
        return "its numbers cannot be"
    end = found.queue_end(topic, queue_id) or 0
    if max(point.offsets, default=point.start_offset) >= end:
        return f"its queue has no such messages, it ends at {end}"
    return ""
