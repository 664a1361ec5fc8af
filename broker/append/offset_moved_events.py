"""OffsetMovedEvents: stores a message for each pull whose offset the broker corrected.

Runs on the loop thread of `remoting`, on masters. The messages go to OFFSET_MOVED_EVENT, queue 0,
where monitors read them (mqadmin startMonitoring). Follows generateOffsetMovedEvent of
PullMessageProcessor in 4.9 (5.x has the topic but never writes to it).

    body: OffsetMovedEvent as JSON; KEYS and TAGS: the consumer group
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.append.admitted_properties import as_value
from broker.append.append_queue import AppendQueue, OneRecord
from broker.topic.system_topics import OFFSET_MOVED_EVENT_TOPIC
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import OffsetMovedEvent
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, own_record
from store.record import Record

log = logging.getLogger(__name__)

_QUEUE_ID: Final = 0


class OffsetMovedEvents:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        append_queue: AppendQueue,
        broker_name: str,
        *,
        is_slave: Callable[[], bool],
    ) -> None:
        """is_slave: whether this broker does not write its log now."""
        self._log = commit_log
        self._append_queue = append_queue
        self._broker_name = broker_name
        self._is_slave = is_slave

    def add(self, group: str, topic: str, queue_id: int, asked: int, corrected: int) -> None:
        """A pull of `group` requested queue offset `asked` and was redirected to `corrected`."""
        log.warning(
            "group %s: %s@%s: offset %s is outside the queue, corrected to %s",
            group,
            topic,
            queue_id,
            asked,
            corrected,
        )
        if self._is_slave():
            return
        queue = MessageQueue(broker_name=self._broker_name, queue_id=queue_id, topic=topic)
        event = OffsetMovedEvent(
            consumer_group=group, message_queue=queue, offset_request=asked, offset_new=corrected
        )
        place = self._log.topic(OFFSET_MOVED_EVENT_TOPIC)
        refused = partial(_on_refused, group)
        self._append_queue.append(OneRecord(place, self._record(event), _on_placed, refused))

    def _record(self, event: OffsetMovedEvent) -> Record:
        group, commit_log = as_value(event.consumer_group), self._log
        return own_record(
            _QUEUE_ID,
            event.to_json_bytes(),
            f"KEYS\x01{group}\x02DELAY\x010\x02TAGS\x01{group}".encode(),
            now_ms=commit_log.now_ms,
            store_host=commit_log.store_host,
            store_host_flag=commit_log.store_host_flag,
        )


def _on_placed(_phy_offset: int, _queue_offset: int) -> None:
    """Nobody waits for an event."""


def _on_refused(group: str, _code: ResponseCode, remark: str) -> None:
    log.warning("group %s: could not store the event of a corrected pull: %s", group, remark)
