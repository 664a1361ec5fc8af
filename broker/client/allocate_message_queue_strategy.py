"""Which queues of a topic a member of a group gets: AVG, AVG_BY_CIRCLE, and shares for pops.

Pure functions, any thread. Every member computes, or is told, the same; so lists of queues and of
client ids are sorted by the caller. They follow AllocateMessageQueueAveragely,
AllocateMessageQueueAveragelyByCircle and QueryAssignmentProcessor.allocate4Pop of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from remoting.body.message_queue import MessageQueue

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(client id, all queues, all client ids): the client's; none for a client that is no member."""

ALL_QUEUES: Final = -1


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """A stretch of queues for each member; the first members get one more."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    size, more = divmod(len(queues), len(client_ids))
    start = index * size + min(index, more)
    return list(queues[start : start + size + (index < more)])


def averagely_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Dealt out one by one."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


STRATEGIES: Final[Mapping[str, Allocate]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
}


def allocate_for_pop(
    allocate: Allocate,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    pop_share_queue_num: int,
) -> list[MessageQueue]:
    """The queues that a popping member asks, each once. pop_share_queue_num: of how many members
    after it it shares the queues; 0 or less, or of all: every broker once, with ALL_QUEUES."""
    if pop_share_queue_num <= 0 or pop_share_queue_num >= len(client_ids) - 1:
        return list(dict.fromkeys(replace(queue, queue_id=ALL_QUEUES) for queue in queues))
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]]
    shared: list[MessageQueue] = []
    for number in range(pop_share_queue_num + 1):
        shared += allocate(client_ids[(index + number) % len(client_ids)], queues, client_ids)
    return list(dict.fromkeys(shared))
