"""RetryQueues: the queue of a pop retry topic that a message comes back in.

Runs on the loop thread of `remoting`. Makes a group's retry topic when its first message comes back
(its name: remoting/key_builder.py), and lets the group begin at the first message of each queue.
One queue is enough for all; with useSeparateRetryQueue there are as many as the topic has for
writing, and a message comes back in the queue that it had, which is its priority. A topic that has
grown lets its retry topics grow; none shrinks, since messages may be in all queues (RocketMQ's
does, and pops no longer look into what it cuts off).

Tested by tests/broker/pop/test_retry_queues.py.
"""

from __future__ import annotations

import logging

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.topic.table_protocols import FindTopic
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.key_builder import parse_normal_topic

log = logging.getLogger(__name__)


class RetryQueues:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self, topics: TopicConfigManager, find_topic: FindTopic, offsets: ConsumerOffsetManager
    ) -> None:
        self._topics = topics
        self._find_topic = find_topic
        self._offsets = offsets

    def find_or_create(self, name: str, group: str, queue_id: int, *, separate: bool) -> int | None:
        """The queue in which a message comes back that is in queue `queue_id` of the group's topic,
        or of its retry topic `name`; None: there is no retry topic, and none can be made now.

        separate: useSeparateRetryQueue. Raises RequestError for a name that no topic may have.
        """
        wanted = self._queues_of(parse_normal_topic(name, group)) if separate else 1
        found = self._find_topic(name)
        if found is None or found.write_queue_nums < wanted or found.read_queue_nums < wanted:
            found = self._topics.create_pop_retry(name, wanted)
            if found is None:
                return None
            for number in range(wanted):
                if self._offsets.query_offset(group, name, number) is None:
                    self._offsets.commit_own_offset("initPopRetryOffset", group, name, number, 0)
        if not separate:
            return 0
        if queue_id < min(found.write_queue_nums, found.read_queue_nums):
            return queue_id
        log.warning(
            "topic %s: has no queue %s for a message that comes back: it comes in queue 0",
            name, queue_id,
        )  # fmt: skip
        return 0

    def _queues_of(self, topic: str) -> int:
        found = self._find_topic(topic)
        return 1 if found is None else max(found.write_queue_nums, 1)
