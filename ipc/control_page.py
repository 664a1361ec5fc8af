"""The control page: 8-byte counters in shared memory through which our processes follow each other.

The mapped files are the message passing (design.md, rule 2); this page says how far they may be
read. Each counter has ONE writer; everybody reads. It lives in a memfd that the supervisor makes
and every child inherits, so it outlives any child and dies with the last of them. It knows no
files and no sockets.

    slot  writer        meaning (bytes are positions in the commit log)
    1     log writer    append_end: where the batch that is being copied will end
    2     log writer    max_phy_offset: whole records end here; readers read up to here
    3     log writer    store timestamp (ms) of the newest record
    4     log writer    sync_flush_wanted: an answer waits until this offset is flushed
    5     remoting      monotonic ms at which a pull was last held: somebody waits for dispatch
    8     store         min_phy_offset: start of the oldest file
    9     store         dispatched_offset: consumequeue and index are built up to here
    10    store         flushed_offset: on disk up to here
    11    store         allocated_end: end of the last file that is ready to be written
    12    store         state (StoreState)
    13    store         running flags (store/running_flags.py): why writing is refused, 0 = writable
    14    store         queue moves: counts entries of the queue table's ring of moved rows
    16    ha            replicated_offset: enough live replicas have acknowledged up to here
    17    ha            distinct live replicas that are not further back than haSlaveFallbehindMax
    18    store         log_opened: 1 + the log's end when the store was opened; 0: not known yet
    19    ha            highest_sent: the highest offset sent to a slave since the store was opened
    20    store         version of the reason below; odd while it is being written
    24+p  process p     beat: grows while the process' main loop turns
    32+p  process p     1 while it sleeps, 2 while it sleeps and no queue's move is work (Bell)
    40+p  supervisor    how often process p was started
    48    remoting      1 once it serves requests
    56+p  process p     start beat: grows while it starts and waits for others, or works on files
    64+r  ha            replication links refused or closed for reason r (ha/refusals.py)
    96+k  remoting      slave sync of kind k (0 topics, 1 offsets, 2 delay offsets, 3 groups): wall
                        clock ms of the last success
    100+k remoting      slave sync of kind k: failures

    from byte 2048 on, by store: why writing is refused (slot 13), a length of 2 bytes and UTF-8.
"""

from __future__ import annotations

import enum
import mmap
import os
import select
import threading
from typing import Final

APPEND_END: Final = 1
MAX_PHY_OFFSET: Final = 2
STORE_TIMESTAMP: Final = 3
SYNC_FLUSH_WANTED: Final = 4
PULL_HELD_MS: Final = 5
MIN_PHY_OFFSET: Final = 8
DISPATCHED_OFFSET: Final = 9
FLUSHED_OFFSET: Final = 10
ALLOCATED_END: Final = 11
STORE_STATE: Final = 12
RUNNING_FLAGS: Final = 13
QUEUE_MOVES: Final = 14
REPLICATED_OFFSET: Final = 16
REPLICA_COUNT: Final = 17
LOG_OPENED: Final = 18
HIGHEST_SENT: Final = 19
REFUSAL_VERSION: Final = 20
BEAT: Final = 24
SLEEPS: Final = 32
STARTS: Final = 40
REMOTING_READY: Final = 48
START_BEAT: Final = 56
HA_REFUSALS: Final = 64
SLAVE_SYNC_SUCCESS: Final = 96
SLAVE_SYNC_FAILURES: Final = 100
PAGE_SIZE: Final = 4096
_SLEEPS_FOR_ALL: Final = 1
_SLEEPS_FOR_ANSWERS: Final = 2
_REFUSAL_LENGTH: Final = slice(2048, 2050)
_REFUSAL_TEXT: Final = 2050
_REFUSAL_READS: Final = 3
_UNREADABLE_REFUSAL: Final = "see store.log"


class ProcessIndex(enum.IntEnum):
    """Which process a beat, a sleep flag or a bell belongs to."""

    SUPERVISOR = 0
    STORE = 1
    REMOTING = 2
    HA = 3
    NAMESRV = 4


class StoreState(enum.IntEnum):
    """How far the `store` process is: only from READY on may the log be written."""

    STARTING = 0
    RECOVERING = 1
    READY = 2
    STOPPED = 3


class ControlPage:
    """The page itself. `counters[slot]` is the hot access; the names above are the slots."""

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

    def refuse_writes(self, flags: int, reason: str) -> None:
        """Publish the running flags and why; `flags` 0: writing is allowed. Process `store` only,
        one thread at a time."""
        text = reason.encode(errors="replace")[: PAGE_SIZE - _REFUSAL_TEXT]
        # Odd already if a predecessor was killed in here.
        writing = self.counters[REFUSAL_VERSION] | 1
        self.counters[REFUSAL_VERSION] = writing
        self._map[_REFUSAL_LENGTH] = len(text).to_bytes(2, "little")
        self._map[_REFUSAL_TEXT : _REFUSAL_TEXT + len(text)] = text
        self.counters[REFUSAL_VERSION] = writing + 1
        self.counters[RUNNING_FLAGS] = flags

    def refusal(self) -> str:
        """Why the store refuses writes; empty when it does not."""
        for _ in range(_REFUSAL_READS):
            if not self.counters[RUNNING_FLAGS]:
                return ""
            before = self.counters[REFUSAL_VERSION]
            size = int.from_bytes(self._map[_REFUSAL_LENGTH], "little")
            text = self._map[_REFUSAL_TEXT : _REFUSAL_TEXT + size]
            if before % 2 == 0 and self.counters[REFUSAL_VERSION] == before and text:
                return text.decode(errors="ignore")
        return _UNREADABLE_REFUSAL

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


class Fence:
    """A full memory fence: an uncontended lock, taken and released (an atomic exchange on x86)."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Orders every store before the call before every load after it."""
        with self._lock:
            pass


class Bell:
    """Wakes one sleeping process. Many ring it; only its owner sleeps on it.

    "Publish, then look whether it sleeps" (ring) against "say that I sleep, then look again"
    (the owner) needs a full fence on both sides; and no sleep is unbounded.
    """

    def __init__(self, page: ControlPage, owner: ProcessIndex, event_fd: int) -> None:
        """`event_fd` is a non-blocking eventfd that the supervisor made."""
        self.event_fd = event_fd
        self._counters = page.counters
        self._slot = SLEEPS + owner
        self._fence = Fence()
        self._poll = select.poll()
        self._poll.register(event_fd, select.POLLIN)

    @staticmethod
    def create() -> int:
        """An eventfd for a bell; children inherit it."""
        return os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor that becomes readable when the bell rings, for a selector."""
        return self.event_fd

    def ring(self) -> None:
        """Wake the owner if it sleeps. What it shall see was published before."""
        self._fence()
        if self._counters[self._slot]:
            os.eventfd_write(self.event_fd, 1)

    def ring_for_moves(self) -> None:
        """Wake the owner if it sleeps and waits for queues to move."""
        self._fence()
        if self._counters[self._slot] == _SLEEPS_FOR_ALL:
            os.eventfd_write(self.event_fd, 1)

    def lie_down(self, *, for_moves: bool = True) -> None:
        """Owner: say that I sleep. Look again for work after this, then wait.

        for_moves False: a queue that moves is no work for me now.
        """
        self._counters[self._slot] = _SLEEPS_FOR_ALL if for_moves else _SLEEPS_FOR_ANSWERS
        self._fence()

    def get_up(self) -> None:
        """Owner: say that I am awake."""
        self._counters[self._slot] = 0

    def drain(self) -> None:
        """Owner: forget the rings so far."""
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            return

    def wait(self, timeout_ms: float) -> None:
        """Owner without a selector: sleep until rung or `timeout_ms`; between lie_down and here
        the owner has looked for work and found none."""
        if self._poll.poll(timeout_ms):
            self.drain()
        self.get_up()
