"""LiteAcks: messages of lite topics are acknowledged, or are to come again at another time.

Loop thread; called by the processors of 200051 and 200053, whose checks of the parent's queue and
of the handle's numbers come first. A handle is a client's word: what counts is what is out to the
group (MemoryConsumerOrderInfoManager). Checks, codes and words follow AckMessageProcessor.ackLite
and ChangeInvisibleTimeProcessor of RocketMQ 5.5.

A client of 5.2 does not say of which lite topic a failed message is that it wants again (200053
with an empty liteTopic; RocketMQ then does nothing, and the message comes when its invisible time
is over). Its proxy wrote into the handle where the message is in the log: if a message at that
place is out to that group, its light queue is known.

Tested by tests/broker/lite/test_lite_acks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.lite.lite_event_dispatcher import LiteEventDispatcher
from broker.lite.lite_metadata_util import find_lite_group
from broker.lite.lite_queues import LiteQueues
from broker.pop.order_infos import ILLEGAL
from broker.topic.table_protocols import FindGroup
from remoting.errors import RequestError
from remoting.headers.extra_info_util import ExtraInfo
from remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from remoting.lite_names import to_lmq_name
from remoting.response_code import ResponseCode

_PLACE_PART: Final = 8
"""Of a handle, from 0: a proxy's addition, the message's offset in the log."""
_LONGEST_NUMBER: Final = 19


class LiteAcks:
    """A LiteHandles."""

    def __init__(
        self,
        queues: LiteQueues,
        dispatcher: LiteEventDispatcher,
        find_group: FindGroup,
        now_ms: Callable[[], int],
    ) -> None:
        """find_group: of known groups; makes none. now_ms: wall clock."""
        self._queues = queues
        self._dispatcher = dispatcher
        self._find_group = find_group
        self._now_ms = now_ms

    def serves(self, group: str, topic: str) -> bool:
        """See LiteHandles."""
        lite_group = find_lite_group(self._find_group(group))
        return lite_group is not None and lite_group.topic == topic

    def ack(self, remote: str, header: AckMessageRequestHeader, info: ExtraInfo) -> None:
        """See LiteHandles."""
        group, lmq = header.consumer_group, to_lmq_name(header.topic, header.lite_topic or "")
        self._check(group, header.topic)
        end = self._queues.end(lmq)
        if header.offset > end:
            raise RequestError(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        if header.queue_id or not info.is_order:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        queues, committed = self._queues, self._queues.committed(group, lmq)
        if header.offset < committed:
            return
        following = queues.order.commit_and_next(
            (lmq, group), header.offset, info.pop_time_ms, committed
        )
        if following == ILLEGAL or following > end:  # Nobody has got what is to come.
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if following >= 0:
            if not queues.has_reset(group, lmq):
                queues.commit(remote, group, lmq, following)
            self._dispatcher.freed(header.topic, group, lmq)

    def change(
        self, header: ChangeInvisibleTimeRequestHeader, info: ExtraInfo
    ) -> ChangeInvisibleTimeResponseHeader | None:
        """See LiteHandles."""
        group = header.consumer_group
        self._check(group, header.topic)
        next_visible_ms = self._now_ms() + header.invisible_time
        answer = ChangeInvisibleTimeResponseHeader(
            invisible_time=next_visible_ms - info.pop_time_ms,
            pop_time=info.pop_time_ms,
            revive_qid=info.revive_queue_id,
        )
        lmq = self._lmq_of(header)
        if lmq is None:
            return answer  # It is not out to the group, or the handle does not tell its place.
        if header.offset > self._queues.end(lmq):
            raise RequestError(ResponseCode.NO_MESSAGE, "change offset illegal.")
        if header.offset < self._queues.committed(group, lmq):
            return None
        order = self._queues.order
        change = order.suspend if header.suspend else order.update_next_visible_time
        change((lmq, group), header.offset, info.pop_time_ms, next_visible_ms)
        self._dispatcher.freed(header.topic, group, lmq)
        return answer

    def _check(self, group: str, topic: str) -> None:
        if not self.serves(group, topic):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, "group type or bind topic not match."
            )

    def _lmq_of(self, header: ChangeInvisibleTimeRequestHeader) -> str | None:
        if header.lite_topic:
            return to_lmq_name(header.topic, header.lite_topic)
        parts = header.extra_info.split(" ", _PLACE_PART + 1)
        place = parts[_PLACE_PART] if len(parts) > _PLACE_PART else ""
        if len(place) > _LONGEST_NUMBER or not (place.isascii() and place.isdecimal()):
            return None
        return self._queues.order.lmq_of(header.consumer_group, int(place))
