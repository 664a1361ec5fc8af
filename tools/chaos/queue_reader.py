"""Reads all queues of a topic, as a consumer that begins at offset 0. Any thread."""

from __future__ import annotations

from typing import Final

from tools.chaos.frame_client import FrameClient
from tools.chaos.workload import QUEUES

_TIMEOUT_S: Final = 30.0


def queue_ends(address: tuple[str, int], topic: str) -> list[int]:
    """The max offset of each queue, -1 for one that is not there. Raises OSError."""
    with FrameClient(address, _TIMEOUT_S) as client:
        return [client.max_offset(topic, queue_id) for queue_id in range(QUEUES)]


def read_queues(address: tuple[str, int], topic: str) -> tuple[dict[int, list[bytes]], list[str]]:
    """Bodies by queue, and a violation for each queue with a missing offset. Raises OSError."""
    queues: dict[int, list[bytes]] = {}
    gaps = []
    ends = queue_ends(address, topic)
    with FrameClient(address, _TIMEOUT_S) as client:
        for queue_id, end in enumerate(ends):
            bodies = queues[queue_id] = []
            while len(bodies) < end:
                pulled = client.pull(topic, queue_id, len(bodies))
                offsets = [message.queue_offset for message in pulled.messages]
                if not offsets or offsets != list(range(len(bodies), len(bodies) + len(offsets))):
                    at = f"queue {queue_id} at {len(bodies)} of {end}"
                    gaps.append(f"{at}: {pulled.code} {offsets}")
                    break
                bodies.extend(message.body for message in pulled.messages)
    return queues, gaps
