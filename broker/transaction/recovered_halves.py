"""Which halves wait when this broker begins to lead, as the half queue tells it.

Thread of TransactionalMessageCheckService, after it has read which halves have ended. Reads the
records behind the progress of the checks that have no end, which the next round reads, too: what
lies before that has ended, was given up, or was stored again behind it. A half and copies of it are
one transaction, the newest record of which waits. Changes nothing; knows neither loop nor metrics.

Tested by tests/broker/transaction/test_recovered_halves.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.metrics.transaction_metrics import group_of
from broker.metrics.waiting_halves import WaitingHalf
from broker.transaction.transaction_records import (
    CHECK_TIMES,
    PREPARED_QUEUE_OFFSET,
    identity_of,
    is_copy,
    number_in,
    real_topic_of,
)
from store.message import Message

_MOST_CHECKS: Final = 10_000
"""As many as are believed of a record's count."""


def waiting_of(
    halves: Iterable[Message], find_half: Callable[[int], Message | None], check_interval_ms: int
) -> list[WaitingHalf]:
    """halves: those without an end, in the order of their queue. find_half: any half of the queue,
    by its place."""
    found: dict[int, WaitingHalf] = {}
    newest: dict[tuple[object, ...], int] = {}
    for half in halves:
        identity = identity_of(half)
        stored_ms = half.store_timestamp
        if was_stored_again(half):
            before = found.pop(newest.get(identity, -1), None)
            stored_ms = (
                _first_stored_ms(half, find_half, check_interval_ms)
                if before is None
                else before.stored_ms
            )
        topic, group = real_topic_of(half.properties), group_of(half.properties)
        found[half.queue_offset] = WaitingHalf(half.queue_offset, topic, group, stored_ms)
        newest[identity] = half.queue_offset
    return list(found.values())


def was_stored_again(half: Message) -> bool:
    """Whether a broker made this half as a copy of another: no client writes these two. (A key is
    its sender's: two halves of one key are two messages.)"""
    times, place = half.find_property(CHECK_TIMES), half.find_property(PREPARED_QUEUE_OFFSET)
    return times is not None or place is not None


def _first_stored_ms(
    copy: Message, find_half: Callable[[int], Message | None], check_interval_ms: int
) -> int:
    """When the first record of a transaction was stored: as that says, where the copy names it;
    otherwise, as near as its number of checks says. (When it was born is its sender's word.)"""
    place = number_in(copy, PREPARED_QUEUE_OFFSET)
    if place is not None and 0 <= place < copy.queue_offset:
        original = find_half(place)
        if original is not None and is_copy(copy, original):
            return original.store_timestamp
    times = min(max(number_in(copy, CHECK_TIMES) or 0, 0), _MOST_CHECKS)
    return max(copy.store_timestamp - times * check_interval_ms, 0)
