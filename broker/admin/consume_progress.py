"""ConsumeProgress: how far groups have consumed the queues of topics, as operators are told.

Stateless, any thread of the pools: it puts what the tables of offsets and of live consumers say
beside what the store has.

Tested by tests/broker/admin/test_admin_consume_stats_processor.py.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from broker.client.consumer_manager import ConsumerManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.queue_times import QueueTimes
from broker.store_access.store_access import StoreAccess
from ipc.clock import Clock
from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import QueueTimeSpan
from remoting.body.stats import OffsetWrapper


class ConsumeProgress:
    """See the module."""

    def __init__(
        self,
        clock: Clock,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        store: StoreAccess,
        static_topics: Container[str],
    ) -> None:
        self._clock = clock
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._store = store
        self._times = QueueTimes(store)
        self._static_topics = static_topics

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has offsets."""
        return self._consumer_offsets.topics_of_group(group)

    def counts(self, group: str, topic: str) -> bool:
        """False for a topic that a live group no longer subscribes to."""
        return (
            self._consumers.find_subscription(group, topic) is not None
            or self._consumers.subscription_count(group) == 0
        )

    def offsets(self, group: str, queue: MessageQueue, *, for_5x: bool) -> OffsetWrapper:
        """The group's offset beside the queue's end. 5.x shows pullOffset - consumerOffset as "in
        flight"."""
        topic, queue_id = queue.topic, queue.queue_id
        _, broker_offset = self._store.offsets(topic, queue_id)
        stored = self._consumer_offsets.query_offset(group, topic, queue_id)
        # -1 for a static topic: whether the group has come to this physical queue counts there.
        least = -1 if topic in self._static_topics else 0
        consumer_offset = max(least, least if stored is None else stored)
        last_ms = self._times.store_timestamp(topic, queue_id, consumer_offset - 1)
        pulled = self._consumer_offsets.query_pull_offset(group, topic, queue_id) or 0
        return OffsetWrapper(
            broker_offset=max(0, broker_offset),
            consumer_offset=consumer_offset,
            last_timestamp=max(0, last_ms),
            pull_offset=max(consumer_offset, pulled) if for_5x else None,
        )

    def time_span(self, group: str, queue: MessageQueue) -> QueueTimeSpan:
        """The times of the queue's first, last and consumed message."""
        topic, queue_id, times = queue.topic, queue.queue_id, self._times
        _, max_offset = self._store.offsets(topic, queue_id)
        stored = self._consumer_offsets.query_offset(group, topic, queue_id)
        consumer_offset = -1 if stored is None else stored
        min_ms = times.earliest(topic, queue_id)
        max_ms = times.store_timestamp(topic, queue_id, max_offset - 1)
        consume_ms = min_ms
        if consumer_offset > 0:
            consume_ms = times.store_timestamp(topic, queue_id, consumer_offset - 1)
        delay_ms = 0
        if consumer_offset < max_offset:
            # RocketMQ uses -1 as the time of a missing message, so for a queue that was
            # never consumed it shows the time since 1970 as its delay.
            next_ms = times.store_timestamp(topic, queue_id, consumer_offset)
            delay_ms = self._clock.now_ms() - next_ms
        return QueueTimeSpan(
            message_queue=queue,
            min_time_stamp=min_ms,
            max_time_stamp=max_ms,
            consume_time_stamp=consume_ms,
            delay_time=delay_ms,
            min_time_stamp_str=java_time_text(min_ms),
            max_time_stamp_str=java_time_text(max_ms),
            consume_time_stamp_str=java_time_text(consume_ms),
        )


def java_time_text(timestamp_ms: int) -> str:
    """yyyy-MM-dd#HH:mm:ss:SSS in the local time zone, RocketMQ's format for operators."""
    seconds, millis = divmod(timestamp_ms, 1000)
    moment = datetime.fromtimestamp(seconds).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{millis:03d}"
