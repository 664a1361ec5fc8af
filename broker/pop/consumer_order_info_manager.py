"""ConsumerOrderInfoManager: what ordered pops have handed out (consumerOrderInfo.json).

Used on the loop thread; saved, and cleaned of what nobody uses, on the scheduled executor: one lock
guards the table. A queue that a group pops in order stays closed to it until every message that was
handed out is acknowledged or visible again; then it is popped again from the first one that was not
acknowledged. Neither check points nor the retry topic are used. Follows ConsumerOrderInfoManager of
RocketMQ 5, with one difference: a waiting request is woken when the whole queue is free, not when
its first message is visible again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import JsonConfigManager
from broker.pop.order_infos import (
    ILLEGAL,
    NO_COMMIT,
    FreeTimes,
    acknowledged,
    following_offset,
    free_ms,
    handed_out,
    is_out,
    is_same_attempt,
    visible_at,
)
from broker.topic.table_protocols import FindGroup, FindTopic
from ipc.clock import Clock
from remoting.body.consumer_order_info import ConsumerOrderInfoWrapper, OrderInfo
from remoting.headers.extra_info_util import offset_count_item, queue_count_item, retry_flag

log = logging.getLogger(__name__)

CLEAN_SPAN_MS: Final = 24 * 3600 * 1000
"""A queue that was not popped for so long is forgotten."""

QueueFree = Callable[[str, str, int], None]
"""(topic, group, queue id): the queue may be popped again."""


class ConsumerOrderInfoManager(JsonConfigManager):
    """See the module. Owned by: `_lock`; `_free` by the loop thread."""

    def __init__(
        self, path: Path, clock: Clock, find_topic: FindTopic, find_group: FindGroup
    ) -> None:
        super().__init__(path)
        self._clock = clock
        self._find_topic = find_topic
        self._find_group = find_group
        self._lock = threading.Lock()
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._free: FreeTimes[tuple[str, str, int]] = FreeTimes()
        self._odd: tuple[str, str, int, int] | None = None
        """The queue and pop time of the last request that was logged: a batch has 8,192 acks."""
        self._on_free: QueueFree | None = None

    # -- pops and acks (loop thread) -----------------------------------------------------------

    def check_block(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        invisible_time_ms: int,
    ) -> bool:
        """Whether messages handed out earlier keep the queue closed. A request with the same
        attempt id gets them again. invisible_time_ms: for a table row without one."""
        info = self._find(topic, group, queue_id)
        if info is None or is_same_attempt(info, attempt_id):
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info = replace(info, invisible_time=invisible_time_ms)
            self._put(topic, group, queue_id, info)
        return free_ms(info) > self._clock.now_ms()

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time_ms: int,
        invisible_time_ms: int,
        offsets: list[int],
        order_info: list[str],
    ) -> None:
        """`offsets` (at least one) are handed out now. Adds to `order_info` the items of
        orderCountInfo: how often each was handed out before, and the least of these."""
        old, now_ms = self._find(topic, group, queue_id), self._clock.now_ms()
        info = handed_out(old, attempt_id, pop_time_ms, invisible_time_ms, offsets, now_ms)
        self._put(topic, group, queue_id, info)
        counts, flag = info.offset_consumed_count or {}, retry_flag(topic)
        order_info += [
            offset_count_item(flag, queue_id, offset, count) for offset, count in counts.items()
        ]
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        order_info.append(queue_count_item(flag, queue_id, least))

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, committed: int
    ) -> int:
        """A message is acknowledged: the consumer offset to commit; ILLEGAL: it is none of those
        that were handed out; NO_COMMIT: it was handed out again meanwhile.

        committed: the group's offset. Where nothing is known of what was handed out (the broker was
        killed before it was saved, or cleaned it), only the message there may be passed: those
        between may be unacknowledged. (RocketMQ passes over them.)
        """
        info = self._find(topic, group, queue_id)
        if info is None:
            return offset + 1 if offset == committed else NO_COMMIT
        offsets = info.queue_offsets
        if not offsets:
            return ILLEGAL
        if pop_time_ms != info.pop_time:
            if self._is_news(topic, group, queue_id, pop_time_ms):
                log.info(
                    "ordered pop: %s %s/%s: ignoring the ack of %s: popped at %s, last pop at %s",
                    group, topic, queue_id, offset, pop_time_ms, info.pop_time,
                )  # fmt: skip
            return NO_COMMIT
        if offset not in offsets:
            if self._is_news(topic, group, queue_id, pop_time_ms):
                log.warning(
                    "ordered pop: %s %s/%s: ack of %s, which was not handed out: %s",
                    group, topic, queue_id, offset, offsets,
                )  # fmt: skip
            return ILLEGAL
        info = acknowledged(info, offset)
        self._put(topic, group, queue_id, info)
        return following_offset(info)

    def update_next_visible_time(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time_ms: int,
        next_visible_ms: int,
    ) -> None:
        """A message becomes visible again at another time; nothing happens if it was handed out
        again meanwhile, or is none of those that are."""
        info = self._find(topic, group, queue_id)
        if info is None or not is_out(info, offset, pop_time_ms):
            if self._is_news(topic, group, queue_id, pop_time_ms):
                log.info(
                    "ordered pop: %s %s/%s: no visible time for %s of the pop of %s",
                    group, topic, queue_id, offset, pop_time_ms,
                )  # fmt: skip
            return
        self._put(topic, group, queue_id, visible_at(info, offset, next_visible_ms))

    def _is_news(self, *popped: *tuple[str, str, int, int]) -> bool:
        """Whether the request before was another one's."""
        before, self._odd = self._odd, popped
        return popped != before

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """The queue's offset was set: nothing is handed out."""
        with self._lock:
            queues = self._table.get(_key(topic, group))
            if queues is not None and queues.pop(queue_id, None) is not None:
                self.mark_changed()

    def _find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        with self._lock:
            queues = self._table.get(_key(topic, group))
            return None if queues is None else queues.get(queue_id)

    def _put(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        with self._lock:
            self._table.setdefault(_key(topic, group), {})[queue_id] = info
            self.mark_changed()
        self._note_free(topic, group, queue_id, info)

    # -- queues that become free (loop thread) --------------------------------------------------

    def watch_free_queues(self, on_free: QueueFree) -> None:
        """Call `on_free` from `tell_free_queues` for each queue that became free, those of the
        loaded file, too."""
        self._on_free = on_free
        for key, queues in self._table.items():
            topic, _, group = key.rpartition("@")
            for queue_id, info in queues.items():
                self._note_free(topic, group, queue_id, info)

    def _note_free(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        """With all acknowledged, it is free now."""
        if self._on_free is not None:
            self._free.note((topic, group, queue_id), free_ms(info))

    def tell_free_queues(self) -> bool:
        """A watch of the loop. True: another queue is free within a second."""
        now_ms = self._clock.now_ms()
        while (queue := self._free.take(now_ms)) is not None:
            if self._on_free is not None and self._find(*queue) is not None:
                self._on_free(*queue)
        return self._free.is_soon(now_ms)

    # -- file ----------------------------------------------------------------------------------

    def save_if_changed(self) -> bool:
        """Clean, then save when something changed."""
        self.clean()
        return super().save_if_changed()

    def clean(self) -> None:
        """Forget topics, groups and queues that are gone, and queues that were not popped for a
        day."""
        with self._lock:
            for key, queues in list(self._table.items()):
                for queue_id, info in list(queues.items()):
                    reason = self._why_gone(key, queue_id, info)
                    if reason is not None:
                        log.info("ordered pop: forgetting %s queue %s: %s", key, queue_id, reason)
                        del queues[queue_id]
                        self.mark_changed()
                if not queues:
                    del self._table[key]

    def limit_to(self, queue_ends: Callable[[str, int], int | None]) -> None:
        """A start: forget pops of messages that their queue lacks. queue_ends: (topic, queue id) to
        its end, None: it has no message. Power was lost, and the log with the end of the queue:
        others get their offsets, and what was noted as acknowledged would pass over these."""
        with self._lock:
            for key, queues in self._table.items():
                topic = key.rpartition("@")[0]
                for queue_id, info in list(queues.items()):
                    end = queue_ends(topic, queue_id) or 0
                    if max(info.queue_offsets, default=-1) >= end:
                        log.warning(
                            "ordered pop: %s queue %s is forgotten: it ends at %s, handed out: %s",
                            key, queue_id, end, info.queue_offsets,
                        )  # fmt: skip
                        del queues[queue_id]
                        self.mark_changed()

    def _why_gone(self, key: str, queue_id: int, info: OrderInfo) -> str | None:
        name, _, group = key.rpartition("@")
        topic = self._find_topic(name)
        if topic is None:
            return "no such topic"
        if self._find_group(group) is None:
            return "no such group"
        if queue_id >= topic.read_queue_nums:
            return "no such queue"
        if self._clock.now_ms() - info.last_consume_timestamp > CLEAN_SPAN_MS:
            return "not popped for a day"
        return None

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's. Raises ValueError."""
        table = ConsumerOrderInfoWrapper.from_json(value).table
        with self._lock:
            self._table = table

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        with self._lock:
            table = {key: dict(queues) for key, queues in self._table.items()}
        return ConsumerOrderInfoWrapper(table=table).to_json()


def _key(topic: str, group: str) -> str:
    return f"{topic}@{group}"
