"""What a clean stop remembers of each consume queue, so that the next start need not read them all.

The file queues.exit beside clean.exit, ours, ignored by Java: written in an orderly stop. It counts
for the queues whose directory and last file have the times that they had (whoever touches a queue
changes them), and only while those times can be trusted: the stop was clean, or the machine has
stayed up since the store was opened. Any other queue is read. What it says of the offsets holds for
all queues while the log is the same: files that were damaged since cannot make an offset be used
again, they are filled from the log. Deleting it costs time, and that protection. Run by process
`store`.

    {"format": 1, "min_phy_offset": N,
     "queues": {topic: {queueId: [start, end, min, max_phy_offset, [mtime_ns, mtime_ns]]}}}

queues.exit.deleted beside it, a line of JSON each: [topic, queueId] deleted on request since.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from conf.atomic_file import replace_file
from store.consume_queue import ConsumeQueue
from store.queue_recovery import QueueRecovery, QueueState

log = logging.getLogger(__name__)

_FORMAT: Final = 1


class StatesCount(enum.Enum):
    """For how much the states of the last clean stop count at this start."""

    AT_LEAST = "the queues did not end earlier then: what falls short of that is looked at"
    IF_UNTOUCHED = "a queue with the same file times is as it was left"
    FOR_OFFSETS = "the log is unchanged: every queue ends where it ended, whatever its files say"


class QueueStates(msgspec.Struct, kw_only=True):
    """The states by topic and queue id."""

    format: int = _FORMAT
    min_phy_offset: int = 0
    """Where the log began: only then their `min` counts."""
    queues: dict[str, dict[int, QueueState]] = {}

    def find(self, topic: str, queue_id: int) -> QueueState | None:
        """The state of a queue, None for one that was not there."""
        return self.queues.get(topic, {}).get(queue_id)


_read_states: Final = msgspec.json.Decoder(QueueStates).decode
_read_deleted: Final = msgspec.json.Decoder(tuple[str, int]).decode


def save_queue_states(path: Path, queues: Iterable[ConsumeQueue], min_phy_offset: int) -> None:
    """Write all states; the queues are flushed and nobody changes them any more. A failure is
    logged: the next start takes longer."""
    states = QueueStates(min_phy_offset=min_phy_offset)
    for queue in queues:
        states.queues.setdefault(queue.topic, {})[queue.queue_id] = QueueRecovery(queue).state(
            min_phy_offset
        )
    try:
        replace_file(path, msgspec.json.encode(states))
        deleted_path(path).unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s: not written (%s); the next start reads all consume queues", path, error)
        path.unlink(missing_ok=True)


def load_queue_states(path: Path) -> QueueStates:
    """The states of the last stop; none when there are none or they cannot be read."""
    try:
        found = _read_states(path.read_bytes())
    except FileNotFoundError:
        return QueueStates()
    except (OSError, UnicodeError, RecursionError, msgspec.DecodeError) as error:
        log.warning("%s: not a valid file (%r); reading every consume queue", path, error)
        return QueueStates()
    if found.format != _FORMAT:
        return QueueStates()
    for topic, queue_id in _load_deleted(deleted_path(path)):
        found.queues.get(topic, {}).pop(queue_id, None)
    return found


def note_deleted(path: Path, queues: Iterable[tuple[str, int]]) -> None:
    """These queues were deleted on request: they are not missing at a start after a kill. A
    failure is logged: after a kill they may come back from the log. path: of queues.exit."""
    lines = b"".join(msgspec.json.encode(queue) + b"\n" for queue in queues)
    try:
        with deleted_path(path).open("ab") as file:
            file.write(lines)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError as error:
        log.warning("%s: not written: %s", deleted_path(path), error)


def deleted_path(path: Path) -> Path:
    """The file of deleted queues that belongs to `path`, queues.exit."""
    return path.with_name(f"{path.name}.deleted")


def _load_deleted(path: Path) -> Iterator[tuple[str, int]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield _read_deleted(line)
        except (UnicodeError, RecursionError, msgspec.DecodeError) as error:
            log.warning("%s: a line is not valid (%s): ignored", path, error)
