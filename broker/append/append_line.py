"""AppendLine: how every record but those of the send fast path gets its place in the log.

Runs on the loop thread of `remoting`, the log's one writer. Sends of the general path, messages
that come back, due delayed messages and transactions all append here, in the order in which they
came. While the next commit log file is being created they wait, nobody overtakes, and whoever has
waited too long is refused: what a client may send again early, as BrokerFastFailure judges, with
the original's words (`[TIMEOUT_CLEAN_QUEUE]` for one that was late, `[PCBUSY_CLEAN_QUEUE]` for
all when the log stands still, `[REJECTREQUEST]` for those that come then, `[OVERLOAD]` when too
many wait); everything else, and everything while `store` is away, after five seconds. It publishes
nothing: that is CommitLog.commit at the end of the turn. Knows no request and no feature.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.latency.broker_fast_failure import BrokerFastFailure
from ipc.clock import Clock
from remoting.remoting_server import cleaned_remark
from remoting.request_dispatcher import OVERLOAD
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, NextFileNotReadyError, Record, TopicLog
from store.errors import MessageIllegalError, StoreError

log = logging.getLogger(__name__)

_FILE_WAIT_MS: Final = 5_000
"""Long enough for a killed `store` process to come back: its clients are not to notice. The
original, too, waits as long for a file."""
REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class Append(Protocol):
    """Records of one topic that go into the log together, and who hears of it (loop thread)."""

    @property
    def topic(self) -> TopicLog:
        """Where they are stored."""

    @property
    def records(self) -> Sequence[Record]:
        """At least one."""

    def placed(self, places: list[tuple[int, int]]) -> None:
        """They have their (phy_offset, queue_offset) each; durable nowhere yet."""

    def refused(self, code: ResponseCode, remark: str) -> None:
        """None of them was stored."""


class Held(NamedTuple):
    """One that waits for the next file; came_ms is monotonic."""

    append: Append
    came_ms: int
    fails_fast: bool


class AppendLine:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        clock: Clock,
        fast_failure: BrokerFastFailure,
        why_not_writable: Callable[[], str],
        *,
        capacity: int,
    ) -> None:
        """capacity: at so many that wait nothing that fails fast is let in."""
        self._log = commit_log
        self._clock = clock
        self._fast_failure = fast_failure
        self._why_not_writable = why_not_writable
        self._capacity = capacity
        self._refused = 0
        """So many were refused early since the log had room."""
        self.held: Final[deque[Held]] = deque()
        """Those that wait for the next file, in the order in which they came."""

    def append(self, append: Append, *, fails_fast: bool = False) -> None:
        """Place it now, or behind those that wait. It hears of it now or later.

        fails_fast: a client waits for it, who can send it elsewhere.
        """
        if not self.held and self._place(append):
            return
        self._fast_failure.note_blocked()
        if fails_fast and self._fast_failure.is_busy():
            self._refuse_early(append, REJECTED)
        elif fails_fast and len(self.held) >= self._capacity:
            self._refuse_early(append, OVERLOAD)
        else:
            self.held.append(Held(append, self._clock.monotonic_ms(), fails_fast))

    def retry(self) -> None:
        """Once a turn while somebody waits: the next file may be there, or the time be up."""
        held = self.held
        while held and self._place(held[0].append):
            held.popleft()
        now_ms = self._clock.monotonic_ms()
        while held and now_ms - held[0].came_ms > _FILE_WAIT_MS:
            remark = "the next commit log file could not be created in time; see store.log"
            held.popleft().append.refused(ResponseCode.SYSTEM_ERROR, remark)
        if held:
            self._fast_failure.note_blocked()
            self._refuse_late(now_ms)

    def look(self) -> None:
        """Some times a second: whether `store` works is to be known before somebody waits."""
        self._fast_failure.look()
        if not self.held and not self._fast_failure.blocked_ms():
            self._note_room()

    def refuse_topic(self, topic: str, code: ResponseCode, remark: str) -> None:
        """Refuse those that wait and would be stored in `topic`."""
        for gone in self._take_out(lambda held: held.append.topic.name == topic):
            gone.append.refused(code, remark)

    def head_wait_ms(self) -> int:
        """How long the first of those that wait has done so; 0: nobody does. Any thread."""
        try:
            came_ms = self.held[0].came_ms
        except IndexError:
            return 0
        return self._clock.monotonic_ms() - came_ms

    def blocked_ms(self) -> int:
        """For how long the log has had no room; 0: it has. Any thread."""
        return self._fast_failure.blocked_ms()

    def _refuse_late(self, now_ms: int) -> None:
        """Refuse those that fail fast and have waited for too long, or all when the log is busy."""
        fast_failure = self._fast_failure
        oldest = next((held for held in self.held if held.fails_fast), None)
        is_busy = fast_failure.is_busy()
        if oldest is None or not (is_busy or fast_failure.is_late(oldest.came_ms)):
            return
        late = self._take_out(
            lambda held: held.fails_fast and (is_busy or fast_failure.is_late(held.came_ms))
        )
        left = len(self.held) + len(late)
        for held in late:
            left -= 1
            remark = cleaned_remark("PCBUSY" if is_busy else "TIMEOUT", now_ms - held.came_ms, left)
            self._refuse_early(held.append, remark)

    def _refuse_early(self, append: Append, remark: str) -> None:
        if not self._refused:
            log.warning("the next commit log file is late, sends are refused: %s", remark)
        self._refused += 1
        append.refused(ResponseCode.SYSTEM_BUSY, remark)

    def _take_out(self, condition: Callable[[Held], bool]) -> list[Held]:
        """Those of the line that meet it, in their order; the others stay."""
        waiting = list(self.held)
        self.held.clear()
        taken: list[Held] = []
        for held in waiting:
            (taken if condition(held) else self.held).append(held)
        return taken

    def _place(self, append: Append) -> bool:
        """False while the next file is not ready."""
        if not self._log.writable:
            append.refused(ResponseCode.SERVICE_NOT_AVAILABLE, self._why_not_writable())
            return True
        try:
            places = self._log.put_batch(append.topic, append.records)
        except NextFileNotReadyError:
            return False
        except MessageIllegalError as error:
            append.refused(ResponseCode.MESSAGE_ILLEGAL, str(error))
        except StoreError as error:
            log.error("topic %s: nothing could be stored: %s", append.topic.name, error)
            append.refused(ResponseCode.SYSTEM_ERROR, str(error))
        else:
            self._note_room()
            append.placed(places)
        return True

    def _note_room(self) -> None:
        """The log takes records (again)."""
        if self._refused:
            log.info("the log takes records again; %s were refused early", self._refused)
            self._refused = 0
        self._fast_failure.note_room()
