"""Reads whole queues of a broker, as a consumer does: every body by its queue offset.

One thread. Where a broker says that a queue goes on behind a place that it cannot give (damage in
its log that is fenced), there is a GAP: whether it may be is for the judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tools.chaos.frame_client import FrameClient, Pulled

GAP: Final = b""
"""The body at a queue offset that the broker steps over."""
_TIMEOUT_S: Final = 30.0
_FURTHEST: Final = 100_000
"""More than this is no step over damage."""


def queue_ends(address: tuple[str, int], topic: str, queues: int) -> list[int]:
    """The max offset of each queue. Raises OSError."""
    with FrameClient(address, _TIMEOUT_S) as client:
        return [client.max_offset(topic, queue_id) for queue_id in range(queues)]


def have_same_ends(addresses: Sequence[tuple[str, int]], topic: str, queues: int) -> bool:
    """Whether the queues of these brokers end alike; False also where one cannot be asked."""
    try:
        ends = [queue_ends(address, topic, queues) for address in addresses]
    except OSError:
        return False
    return all(end == ends[0] for end in ends)


def read_queues(
    address: tuple[str, int], topic: str, queues: int
) -> tuple[dict[int, list[bytes]], list[str]]:
    """Bodies by queue, up to the ends there were at the beginning, and where reading stopped
    before. Raises OSError."""
    found: dict[int, list[bytes]] = {}
    stopped = []
    ends = queue_ends(address, topic, queues)
    with FrameClient(address, _TIMEOUT_S) as client:
        for queue_id, end in enumerate(ends):
            bodies = found[queue_id] = []
            while len(bodies) < end:
                at = len(bodies)
                pulled = client.pull(topic, queue_id, at)
                if not append_pulled(bodies, pulled):
                    offsets = [message.queue_offset for message in pulled.messages]
                    stopped.append(f"queue {queue_id} at {at} of {end}: {pulled.code} {offsets}")
                    break
            del bodies[max(end, 0) :]
    return found, stopped


def append_pulled(bodies: list[bytes], pulled: Pulled) -> bool:
    """Take what a pull from `len(bodies)` on brought; False: it goes back, or not on."""
    at = len(bodies)
    for message in pulled.messages:
        if message.queue_offset < len(bodies):
            return False
        bodies.extend([GAP] * (message.queue_offset - len(bodies)))
        bodies.append(message.body)
    bodies.extend([GAP] * (min(pulled.next_offset, at + _FURTHEST) - len(bodies)))
    return len(bodies) > at


def gaps(queues: Mapping[int, Sequence[bytes]]) -> list[str]:
    """Where there are some, as violations."""
    return [
        f"queue {queue_id} offset {offset} of {len(bodies)} is stepped over"
        for queue_id, bodies in queues.items()
        for offset, body in enumerate(bodies)
        if body == GAP
    ]
