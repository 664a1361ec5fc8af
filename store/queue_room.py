"""QueueRoom: whether the queue table has room for one more queue, before a record makes it.

Owned by the one thread that puts records (the loop of `remoting`). Process `store` gives a queue
its row when it dispatches the first record, which may be long after this process has put it: what
was put since counts here. A queue without a row could not be read by anybody, and its offsets would
begin again at zero, so the record that would make it is refused. Rows come back with a restart
of the broker, those of deleted topics. Some are kept for the broker's own queues in which others
wait: without them a message would wait in whatever level there is, and be stored anew each second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ipc.queue_table import QueueTableReader
from store.errors import QueueTableFullError

log = logging.getLogger(__name__)

RESERVED_ROWS: Final = 64
"""For the queues of _OWN_TOPICS: one for each delay level, and three more."""
_OWN_TOPICS: Final = frozenset(
    {
        *("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
        *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    }
)
"""Those in which messages wait. Only the broker writes to them."""
_OWN_NAME_BYTES: Final = max(len(name) for name in _OWN_TOPICS)
_LOOK_AT_MOST: Final = 1_024


class QueueRoom:
    """See the module."""

    def __init__(
        self,
        rows: QueueTableReader,
        *,
        reserved: int = 0,
        on_make: Callable[[str, int], None] | None = None,
    ) -> None:
        """reserved: rows that are left for the broker's own queues. on_make: told of each queue
        (topic, queue id) that a record is about to make; may be told of it twice."""
        self._rows = rows
        self._on_make = on_make
        self._reserved = reserved
        self._new: dict[tuple[str, int], int] = {}
        """Queues that were made here and had no row when last looked for it; bytes of the name."""
        self._name_bytes = 0
        self._look_at = _LOOK_AT_MOST
        self._is_full = False

    def take(self, topic: str, queue_id: int) -> None:
        """A record is about to make this queue, unless it was there before. Raises
        QueueTableFullError; may be asked again for the same queue."""
        self._take(topic, queue_id)
        if self._on_make is not None:
            self._on_make(topic, queue_id)

    def _take(self, topic: str, queue_id: int) -> None:
        queue = topic, queue_id
        if queue in self._new or self._rows.find_row(topic, queue_id) is not None:
            return
        size = len(topic.encode())
        if len(self._new) >= self._look_at or not self._fits([topic]):
            self._forget_seen()
            if not self._fits([topic]):
                raise self._full(topic, queue_id)
        self._is_full = False
        self._add(queue, size)

    def note(self, topic: str, queue_id: int) -> None:
        """A record has made this queue, for which `has_room` was asked before."""
        queue = topic, queue_id
        if queue not in self._new and self._rows.find_row(topic, queue_id) is None:
            self._add(queue, len(topic.encode()))

    def check(self, topic: str, queue_id: int) -> None:
        """Whether a record that comes later may make this queue; takes no room for it. Raises
        QueueTableFullError."""
        queue = topic, queue_id
        is_there = queue in self._new or self._rows.find_row(topic, queue_id) is not None
        if not is_there and not self.has_room([topic]):
            raise self._full(topic, queue_id)

    def has_room(self, topics: list[str]) -> bool:
        """Whether a new queue of each of these topics fits."""
        if self._fits(topics):
            return True
        self._forget_seen()
        return self._fits(topics)

    def _add(self, queue: tuple[str, int], size: int) -> None:
        self._new[queue] = size
        self._name_bytes += size

    def _fits(self, topics: list[str]) -> bool:
        queues, name_bytes = len(topics), sum(len(topic.encode()) for topic in topics)
        if not _OWN_TOPICS.issuperset(topics):
            queues += self._reserved
            name_bytes += self._reserved * _OWN_NAME_BYTES
        return self._rows.has_room(len(self._new) + queues, self._name_bytes + name_bytes)

    def _forget_seen(self) -> None:
        """Those that have a row now are counted by the table."""
        find_row = self._rows.find_row
        self._new = {queue: size for queue, size in self._new.items() if find_row(*queue) is None}
        self._name_bytes = sum(self._new.values())
        self._look_at = 2 * len(self._new) + _LOOK_AT_MOST

    def _full(self, topic: str, queue_id: int) -> QueueTableFullError:
        self._say_full()
        return QueueTableFullError(
            f"queue {queue_id} of topic {topic} would be a new one, and the queue table is full: "
            "delete unused topics and restart the broker"
        )

    def _say_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            log.error(
                "the queue table is full: messages for queues that have none yet are refused; "
                "delete unused topics and restart the broker"
            )
