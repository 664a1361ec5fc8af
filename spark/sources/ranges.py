"""Range: some offsets of one queue; how queues are cut into ranges, and given to tasks.

Driver; pickled to executors. Pure.

Tested by tests/spark/sources/test_ranges.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from remoting.body.message_queue import MessageQueue
from spark.sources.errors import SourceError

MOST_RANGES: Final = 100_000
"""Of a read: what Spark plans in reasonable time. A broker may claim 2**62 messages in a queue."""


SMALL_TASK: Final = 2048
"""Messages that ranges of several queues may have together to be of one task: a task costs as much
as reading some hundred messages."""
USUAL_TASKS: Final = 32
"""No fewer for the sake of that: executors have many cores."""


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets from `begin` up to `end`, not included."""

    topic: str
    broker_name: str
    queue_id: int
    begin: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(broker_name=self.broker_name, queue_id=self.queue_id, topic=self.topic)

    @property
    def size(self) -> int:
        """Offsets."""
        return self.end - self.begin


@dataclass(frozen=True)
class TaskRanges(InputPartition):
    """What one task reads: a range, or small ones of several queues, one after the other."""

    ranges: tuple[Range, ...]


def range_of(queue: MessageQueue, begin: int, end: int) -> Range:
    """A range of a queue."""
    return Range(queue.topic, queue.broker_name, queue.queue_id, begin, end)


def cut(ranges: Iterable[Range], most_messages: int, least_ranges: int) -> list[Range]:
    """The same offsets as ranges of at most `most_messages`, and about `least_ranges` of them or
    more while there are so many offsets. Empty ranges are left out. SourceError: too many."""
    there = [each for each in ranges if each.begin < each.end]
    total = sum(each.size for each in there)
    if least_ranges > len(there):
        most_messages = min(most_messages, max(-(-total // least_ranges), 1))
    count = sum(-(-each.size // most_messages) for each in there)
    if count > MOST_RANGES + len(there):
        largest = max(there, key=lambda each: each.size)
        raise SourceError(
            f"{count} tasks for {total} messages, {MOST_RANGES} are possible: set "
            f"maxMessagesPerPartition to more than {most_messages}. The longest queue is "
            f"{largest.queue_id} of topic {largest.topic} at broker {largest.broker_name}, which "
            f"says that it has the offsets {largest.begin} to {largest.end - 1}"
        )
    return [piece for each in there for piece in _pieces(each, most_messages)]


def tasks_of(ranges: Sequence[Range], least_tasks: int) -> list[TaskRanges]:
    """The ranges, in their order, each in one task: as many tasks as ranges unless there are many
    and small ones, and never fewer than `least_tasks` for that."""
    least = max(least_tasks, USUAL_TASKS)
    spare = len(ranges) - least
    most = min(SMALL_TASK, -(-sum(each.size for each in ranges) // least))
    tasks: list[list[Range]] = []
    messages = 0
    for each in ranges:
        if tasks and spare > 0 and messages + each.size <= most:
            spare -= 1
        else:
            tasks.append([])
            messages = 0
        tasks[-1].append(each)
        messages += each.size
    return [TaskRanges(tuple(each)) for each in tasks]


def _pieces(whole: Range, most_messages: int) -> Iterator[Range]:
    """Of about the same size."""
    count = -(-whole.size // most_messages)
    bounds = [whole.begin + whole.size * number // count for number in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield range_of(whole.queue, begin, end)
