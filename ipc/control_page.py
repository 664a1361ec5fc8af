"""The control page: 8-byte counters in shared memory through which our processes follow each other.

It lives in a memfd that the supervisor makes and every child inherits, so it outlives any child
and dies with the last of them. Each counter has ONE writer; everybody reads. The page itself knows
the life of processes only; all other slots belong to the rooms that claim them at import
(store/control_slots.py, ha/control_slots.py, broker/supervisor/control_slots.py,
broker/slave/sync_kind.py). It knows no files and no sockets.

    slot  writer        meaning
    24+p  process p     beat: grows while the process' main loop turns
    32+p  process p     1 while it sleeps, 2 while it sleeps and no queue's move is work (Bell)
    40+p  supervisor    how often process p was started
    56+p  process p     start beat: grows while it starts and waits for others, or works on files
    104+p supervisor    how often process p has ended by itself

    from byte 2048 on: one text, a length of 2 bytes and UTF-8, whose writer has a version slot of
    its own (`publish_text`)
    from byte 4096 + 512 * p on: the last words of process p, likewise (`say_last`)
"""

from __future__ import annotations

import enum
import mmap
import os
from typing import Final

PAGE_SIZE: Final = 8192
_SLOTS: Final = 256
_TEXT_LENGTH: Final = slice(2048, 2050)
_TEXT_AT: Final = 2050
_TEXT_END: Final = 4096
_LAST_WORDS_AT: Final = 4096
_LAST_WORDS_SIZE: Final = 512
_TEXT_READS: Final = 3
assert _TEXT_LENGTH.start == 8 * _SLOTS


class ProcessIndex(enum.IntEnum):
    """Which process a beat, a sleep flag or a bell belongs to."""

    SUPERVISOR = 0
    STORE = 1
    REMOTING = 2
    HA = 3
    NAMESRV = 4


_claimed: dict[int, str] = {}


def claim_slots(name: str, first: int, count: int = 1) -> int:
    """Register the slots [first, first + count) of the page; returns `first`.

    Called at import, once for each name. Raises ValueError, naming both, when a slot is taken.
    """
    if first < 1 or first + count > _SLOTS:
        raise ValueError(f"{name}: slots {first} to {first + count - 1} are not on the page")
    for slot in range(first, first + count):
        if slot in _claimed:
            raise ValueError(f"slot {slot} of {name} belongs to {_claimed[slot]}")
    _claimed.update(dict.fromkeys(range(first, first + count), name))
    return first


BEAT: Final = claim_slots("beat", 24, 8)
BEAT_MS: Final = 500
"""How often the main loop of a process beats that has nothing else to do, `store` twice as often.
The least time after which a process counts as hung is twice that."""
SLEEPS: Final = claim_slots("sleeps", 32, 8)
STARTS: Final = claim_slots("starts", 40, 8)
START_BEAT: Final = claim_slots("start beat", 56, 8)
ENDS: Final = claim_slots("ends", 104, 8)
assert len(ProcessIndex) <= 8
assert _LAST_WORDS_AT + 8 * _LAST_WORDS_SIZE <= PAGE_SIZE


class ControlPage:
    """The page itself. `counters[slot]` is the hot access; the slots are the names that rooms
    have claimed."""

    def __init__(self, fd: int) -> None:
        """Maps the page behind `fd` (from `create`); the descriptor stays the caller's."""
        self._map = mmap.mmap(fd, PAGE_SIZE)
        self.counters: memoryview[int] = memoryview(self._map).cast("Q")

    @staticmethod
    def create() -> int:
        """A descriptor of a fresh, zeroed page; children inherit it."""
        fd = os.memfd_create("mqbroker-control-page")
        os.ftruncate(fd, PAGE_SIZE)
        return fd

    def publish_text(self, version_slot: int, text: str) -> None:
        """Replace the page's text; what does not fit is cut off. One writer, one thread at a time.

        version_slot: a slot of the writer's; odd while the text is being written.
        """
        data = text.encode(errors="replace")[: _TEXT_END - _TEXT_AT]
        # Odd already if a predecessor was killed in here.
        writing = self.counters[version_slot] | 1
        self.counters[version_slot] = writing
        self._map[_TEXT_LENGTH] = len(data).to_bytes(2, "little")
        self._map[_TEXT_AT : _TEXT_AT + len(data)] = data
        self.counters[version_slot] = writing + 1

    def find_text(self, version_slot: int) -> str | None:
        """The page's text; None when it is empty or being written again and again."""
        for _ in range(_TEXT_READS):
            before = self.counters[version_slot]
            size = int.from_bytes(self._map[_TEXT_LENGTH], "little")
            data = self._map[_TEXT_AT : _TEXT_AT + size]
            if before % 2 == 0 and self.counters[version_slot] == before and data:
                return data.decode(errors="ignore")
        return None

    def say_last(self, process: ProcessIndex, text: str) -> None:
        """Why `process` ends, for the supervisor; it writes this once, on its last thread. What
        does not fit is cut off."""
        data = text.encode(errors="replace")[: _LAST_WORDS_SIZE - 2]
        at = _LAST_WORDS_AT + process * _LAST_WORDS_SIZE
        self._map[at + 2 : at + 2 + len(data)] = data
        self._map[at : at + 2] = len(data).to_bytes(2, "little")

    def take_last_words(self, process: ProcessIndex) -> str:
        """What `process`, which has ended, said last; empty: nothing. The next one begins without
        any."""
        at = _LAST_WORDS_AT + process * _LAST_WORDS_SIZE
        size = min(int.from_bytes(self._map[at : at + 2], "little"), _LAST_WORDS_SIZE - 2)
        text = self._map[at + 2 : at + 2 + size].decode(errors="ignore")
        self._map[at : at + 2] = bytes(2)
        return text

    def beat(self, process: ProcessIndex) -> None:
        """Say that the main loop of `process` turns."""
        self.counters[BEAT + process] += 1

    def beats(self, process: ProcessIndex) -> int:
        """The beat counter of `process`."""
        return self.counters[BEAT + process]

    def beat_starting(self, process: ProcessIndex) -> None:
        """Say that `process`, which does not serve yet, gets on with its start."""
        self.counters[START_BEAT + process] += 1

    def start_beats(self, process: ProcessIndex) -> int:
        """The start beat counter of `process`."""
        return self.counters[START_BEAT + process]
