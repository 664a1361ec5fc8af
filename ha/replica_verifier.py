"""ReplicaVerifier: asks whether a slave's log is ours up to the offset that it reports.

A thread of process `ha`. A first report above honest_max (ha/honest_max.py) may come from a store
that was seeded with a copy of the master's files, or from another history. Whoever admits slaves
asks `find_out`, which never waits: the question goes to this thread, the slave is refused, and when
it comes back (5 s later) the answer is there. How records are compared is the affair of `verify`.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ha.asking_service import AskingService
from ipc.clock import Clock
from ipc.service_thread import FailureHandler

log = logging.getLogger(__name__)

MAX_QUESTIONS: Final = 64
"""More slaves than that have to come back until there is room."""
REMEMBERED_MS: Final = 60_000
_MAX_ANSWERS: Final = 256
_LONGEST_SLEEP_MS: Final = 10_000

VerifyReplica = Callable[[str, int], bool | None]
"""(ip, offset) -> the registered slave at `ip` holds our bytes up to `offset`: True; others: False;
None: it could not be asked. May block for seconds, never raises."""


class Answer(enum.Enum):
    """What is known of a slave's log up to an offset."""

    PENDING = enum.auto()
    """It is being found out."""
    SAME = enum.auto()
    """It holds our bytes."""
    OTHER = enum.auto()
    """It holds others."""
    UNKNOWN = enum.auto()
    """It could not be asked a moment ago, and is asked again."""


_ANSWER_OF: Final = {True: Answer.SAME, False: Answer.OTHER, None: Answer.UNKNOWN}
_TEXT_OF: Final = {
    Answer.SAME: "slave at %s: holds our records up to %s: it is served when it comes back",
    Answer.OTHER: "slave at %s: does not hold our records up to %s: it is not served",
    Answer.UNKNOWN: "slave at %s: could not be asked for what it holds up to %s: asked again when "
    "it comes back",
}


class ReplicaVerifier(AskingService):
    """See the module. Guarded by: its lock."""

    def __init__(
        self, verify: VerifyReplica, clock: Clock, *, on_failure: FailureHandler | None = None
    ) -> None:
        """`verify` runs on the thread of this service only."""
        super().__init__("ReplicaVerifier", on_failure=on_failure)
        self._verify = verify
        self._clock = clock
        self._lock: Final = threading.Lock()
        self._questions: dict[tuple[str, int], None] = {}
        """In the order in which they came, the one that is being asked first."""
        self._answers: OrderedDict[tuple[str, int], tuple[Answer, int]] = OrderedDict()
        """With the moment up to which each is believed, the oldest first."""

    def find_out(self, ip: str, offset: int) -> Answer:
        """What is known of the log of the slave at `ip` up to `offset`. Any thread, does not
        wait; answers are kept for a minute."""
        key = ip, offset
        with self._lock:
            answer, until_ms = self._answers.get(key, (Answer.PENDING, 0))
            if self._clock.monotonic_ms() >= until_ms:
                answer = Answer.PENDING
            if answer in (Answer.SAME, Answer.OTHER):
                return answer
            if len(self._questions) < MAX_QUESTIONS:
                self._questions[key] = None
        self.wakeup()
        return answer

    def step(self) -> None:
        """One question, or a sleep until there is one."""
        with self._lock:
            key = next(iter(self._questions), None)
        if key is None:
            self.wait_for_running(_LONGEST_SLEEP_MS)
            return
        answer = _ANSWER_OF[self._verify(*key)]
        with self._lock:
            del self._questions[key]
            self._answers[key] = answer, self._clock.monotonic_ms() + REMEMBERED_MS
            self._answers.move_to_end(key)
            if len(self._answers) > _MAX_ANSWERS:
                self._answers.popitem(last=False)
        ip, offset = key
        level = logging.INFO if answer is Answer.SAME else logging.WARNING
        log.log(level, _TEXT_OF[answer], ip, offset)
