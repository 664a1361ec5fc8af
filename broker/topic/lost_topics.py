"""LostTopics: topics that a message needs which was taken before this broker led.

A topic that was made a moment before its master was lost is not in the table that its successor has
copied. Where messages are in its queues, the lead begins with putting it back (lost_tables.py). Of
one that has only messages which wait (halves, delayed ones), nothing tells before the first of them
is due: then it is put back here. A message that this broker took itself had a topic in this table;
one that is missing now was deleted, and stays so. Loop thread. RocketMQ stores such a message in a
queue that nobody can read.

Tested by tests/broker/topic/test_lost_topics.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.topic.system_topics import is_internal_topic
from broker.topic.topic_config_manager import TopicConfigManager
from store.commit_log import CommitLog

log = logging.getLogger(__name__)

PutBackTopic = Callable[[str, int, int], bool]
"""LostTopics.put_back."""


class LostTopics:
    """See the module. Owned by: the loop thread."""

    def __init__(self, topics: TopicConfigManager, commit_log: CommitLog) -> None:
        self._topics = topics
        self._log = commit_log

    def put_back(self, topic: str, queue_id: int, phy_offset: int) -> bool:
        """Whether the topic is there, now. queue_id: of the message that is due. phy_offset: where
        it waited. Raises MessageIllegalError for a topic of which nothing can be stored."""
        if self._topics.find(topic) is not None or is_internal_topic(topic):
            return True
        if phy_offset >= self._log.opened_at:
            return False
        self._log.topic(topic)
        made = self._topics.put_back(topic, queue_id)
        log.error(
            "topic %s: is not in the table of this broker, but the message at %s, taken before it "
            "led, belongs to it: put back with %s queues, permission 6. Lost are its own settings: "
            "set them by mqadmin updateTopic; if it was deleted, delete it again",
            ascii(topic)[1:-1],
            phy_offset,
            made.read_queue_nums,
        )
        return True
