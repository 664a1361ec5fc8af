"""The offsets of a stream as Spark's checkpoint keeps them, and how a trigger's limit is shared.

Pure; driver. The JSON is stable: {"version": 1, "offsets": {topic: {broker: {queue: offset}}}}, its
names in order. An offset is the next one to read.

Tested by tests/spark/sources/test_stream_offsets.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remoting.body.message_queue import MessageQueue
from spark.sources.errors import SourceError

VERSION: Final = 1
Offsets = dict[MessageQueue, int]


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """For the checkpoint."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets, key=lambda each: (each.topic, each.broker_name, each.queue_id)):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return {"version": VERSION, "offsets": tree}


def decode_offsets(kept: Mapping[str, Any]) -> Offsets:
    """Of the checkpoint. SourceError: not ours, or of a later version."""
    version = kept.get("version")
    if version != VERSION:
        raise SourceError(
            f"the checkpoint has offsets of version {version!r}, this package knows {VERSION}: it "
            "is of another format, or of a later version of this package"
        )
    try:
        return {
            MessageQueue(topic=topic, broker_name=broker, queue_id=int(queue)): int(offset)
            for topic, brokers in kept["offsets"].items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        }
    except (KeyError, AttributeError, ValueError, TypeError) as error:
        raise SourceError(f"the checkpoint's offsets cannot be read: {error!r}") from None


def share(
    begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], most_messages: int
) -> Offsets:
    """Ends that are at most `most_messages` from the begins together: each queue gets its part of
    what is there, and what is left over goes to those with most, so that none waits for ever."""
    waiting = {queue: max(end - begins[queue], 0) for queue, end in ends.items()}
    total = sum(waiting.values())
    if total <= most_messages:
        return dict(ends)
    parts = {queue: size * most_messages // total for queue, size in waiting.items()}
    left = most_messages - sum(parts.values())
    by_size = sorted(
        waiting, key=lambda queue: (-waiting[queue], queue.broker_name, queue.queue_id)
    )
    for queue in by_size[:left]:
        parts[queue] += parts[queue] < waiting[queue]
    return {
        queue: min(begins[queue], end) + parts[queue] if waiting[queue] else end
        for queue, end in ends.items()
    }
