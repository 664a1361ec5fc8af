"""AppendLine: how every record but those of the send fast path gets its place in the log.

Runs on the loop thread of `remoting`, the log's one writer. Sends of the general path, messages
that come back, due delayed messages and transactions all append here, in the order in which they
came. While the next commit log file is being created they wait, nobody overtakes, and whoever has
waited too long is refused. It publishes nothing: that is CommitLog.commit at the end of the turn.
Knows no request and no feature.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, NextFileNotReadyError, Record, TopicLog
from store.errors import MessageIllegalError, StoreError

log = logging.getLogger(__name__)

_FILE_WAIT_MS: Final = 5_000
"""Long enough for a killed `store` process to come back: its clients are not to notice."""


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


class AppendLine:
    """See the module. Owned by: the loop thread."""

    def __init__(self, commit_log: CommitLog, why_not_writable: Callable[[], str]) -> None:
        self._log = commit_log
        self._why_not_writable = why_not_writable
        self.held: Final[deque[tuple[Append, int]]] = deque()
        """Those that wait for the next file, with when they came (wall clock ms)."""

    def append(self, append: Append) -> None:
        """Place it now, or behind those that wait. It hears of it now or later."""
        if self.held or not self._place(append):
            self.held.append((append, self._log.now_ms))

    def retry(self) -> None:
        """Once a turn while somebody waits: the next file may be there, or the time be up."""
        held = self.held
        while held and self._place(held[0][0]):
            held.popleft()
        while held and self._log.now_ms - held[0][1] > _FILE_WAIT_MS:
            remark = "the next commit log file could not be created in time; see store.log"
            held.popleft()[0].refused(ResponseCode.SYSTEM_ERROR, remark)

    def refuse_topic(self, topic: str, code: ResponseCode, remark: str) -> None:
        """Refuse those that wait and would be stored in `topic`."""
        waiting = list(self.held)
        self.held.clear()
        for append, since_ms in waiting:
            if append.topic.name == topic:
                append.refused(code, remark)
            else:
                self.held.append((append, since_ms))

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
            append.placed(places)
        return True
