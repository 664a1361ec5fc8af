"""TimerPut: timer messages that the broker itself stores (recalls, check points and acks of pop).

Loop thread of `remoting`. Builds the record, asks TimerHook, and hands it to the append queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.append.append_queue import AppendQueue, OneRecord
from broker.timer.timer_hook import TimerHook
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, own_record
from store.errors import MessageIllegalError

OnDone = Callable[[ResponseCode, int], None]
"""(SUCCESS, the record's end in the log) once it has its place there; (why not, -1) otherwise."""
_NOWHERE: Final = -1


class TimerPut:
    """See the module. Owned by: the loop thread."""

    def __init__(self, hook: TimerHook, commit_log: CommitLog, append_queue: AppendQueue) -> None:
        self._hook = hook
        self._log = commit_log
        self._append_queue = append_queue

    def put(self, topic: str, queue_id: int, body: bytes, properties: str, on_done: OnDone) -> None:
        """Store a message for `topic` that is delivered at the time its properties name.

        properties: name U+0001 value, separated by U+0002. on_done runs now or in a later turn.
        """
        record = own_record(
            queue_id,
            body,
            properties.encode(),
            now_ms=self._log.now_ms,
            store_host=self._log.store_host,
            store_host_flag=self._log.store_host_flag,
        )
        try:
            topic, record = self._hook.divert_record(topic, record)
            entry = self._log.topic(topic)
        except RequestError as error:
            on_done(ResponseCode(error.code), _NOWHERE)
            return
        except MessageIllegalError:
            on_done(ResponseCode.MESSAGE_ILLEGAL, _NOWHERE)
            return
        append = OneRecord(
            entry,
            record,
            lambda _phy_offset, _queue_offset: on_done(ResponseCode.SUCCESS, self._log.position),
            lambda code, _remark: on_done(code, _NOWHERE),
        )
        self._append_queue.append(append)
