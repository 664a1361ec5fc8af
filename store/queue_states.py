"""What a clean stop remembers of each consume queue, so that the next start need not read them all.

The file queues.exit beside clean.exit, ours, ignored by Java: written in an orderly stop. It counts
for the queues whose directory and last file have the times that they had (whoever touches a queue
changes them), and only while those times can be trusted: the stop was clean, or the machine has
stayed up since the store was opened. Any other queue is read. Deleting it costs time, nothing else.
Run by process `store`.

    {"format": 1, "min_phy_offset": N,
     "queues": {topic: {queueId: [start, end, min, max_phy_offset, [mtime_ns, mtime_ns]]}}}
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from store.atomic_write import atomic_write
from store.consume_queue import ConsumeQueue, QueueState

log = logging.getLogger(__name__)

_FORMAT: Final = 1


class QueueStates(msgspec.Struct, kw_only=True):
    """The states by topic and queue id."""

    format: int = _FORMAT
    min_phy_offset: int = 0
    """Where the log began: only then their `min` counts."""
    queues: dict[str, dict[int, QueueState]] = {}

    def find(self, topic: str, queue_id: int) -> QueueState | None:
        """The state of a queue, None for one that was not there."""
        return self.queues.get(topic, {}).get(queue_id)


def save_queue_states(path: Path, queues: Iterable[ConsumeQueue], min_phy_offset: int) -> None:
    """Write all states; the queues are flushed and nobody changes them any more. A failure is
    logged: the next start takes longer."""
    states = QueueStates(min_phy_offset=min_phy_offset)
    for queue in queues:
        states.queues.setdefault(queue.topic, {})[queue.queue_id] = queue.state(min_phy_offset)
    try:
        atomic_write(path, msgspec.json.encode(states))
    except OSError as error:
        log.warning("%s: not written (%s); the next start reads all consume queues", path, error)
        path.unlink(missing_ok=True)


def load_queue_states(path: Path) -> QueueStates:
    """The states of the last stop; none when there are none or they cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=QueueStates)
    except FileNotFoundError:
        return QueueStates()
    except (OSError, UnicodeError, msgspec.DecodeError) as error:
        log.warning("%s: not a valid file (%r); reading every consume queue", path, error)
        return QueueStates()
    return found if found.format == _FORMAT else QueueStates()
