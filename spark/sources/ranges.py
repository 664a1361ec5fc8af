"""Range: what one task reads, some offsets of one queue; and how the queues are cut into ranges.

Driver; pickled to executors. Pure.

Tested by tests/spark/sources/test_ranges.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from remoting.body.message_queue import MessageQueue
from spark.sources.errors import SourceError

MOST_RANGES: Final = 100_000
"""Of a read: what Spark plans in reasonable time. A broker may claim 2**62 messages in a queue."""


@dataclass(frozen=True)
class Range(InputPartition):
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


def range_of(queue: MessageQueue, begin: int, end: int) -> Range:
    """A range of a queue."""
    return Range(queue.topic, queue.broker_name, queue.queue_id, begin, end)


def cut(ranges: Iterable[Range], most_messages: int, least_ranges: int) -> list[Range]:
    """The same offsets as ranges of at most `most_messages`, and about `least_ranges` of them or
    more while there are so many offsets. Empty ranges are left out. SourceError: too many."""
    there = [each for each in ranges if each.begin < each.end]
    total = sum(each.end - each.begin for each in there)
    if least_ranges > len(there):
        most_messages = min(most_messages, max(-(-total // least_ranges), 1))
    count = sum(-(-(each.end - each.begin) // most_messages) for each in there)
    if count > MOST_RANGES + len(there):
        largest = max(there, key=lambda each: each.end - each.begin)
        raise SourceError(
            f"{count} tasks for {total} messages, {MOST_RANGES} are possible: set "
            f"maxMessagesPerPartition to more than {most_messages}. The longest queue is "
            f"{largest.queue_id} of topic {largest.topic} at broker {largest.broker_name}, which "
            f"says that it has the offsets {largest.begin} to {largest.end - 1}"
        )
    return [piece for each in there for piece in _pieces(each, most_messages)]


def _pieces(whole: Range, most_messages: int) -> Iterator[Range]:
    """Of about the same size."""
    size = whole.end - whole.begin
    count = -(-size // most_messages)
    bounds = [whole.begin + size * number // count for number in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield range_of(whole.queue, begin, end)
