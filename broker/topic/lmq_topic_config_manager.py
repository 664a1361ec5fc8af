"""LmqTopicConfigManager: the topic table of a broker with light message queues (enableLmq).

Threads as TopicConfigManager. A topic named %LMQ%… always exists, with one queue, readable and
writable; it is in no table, no file and no registration, and cannot be changed. Corresponds to
RocketMQ's LmqTopicConfigManager.
"""

from __future__ import annotations

from broker.topic.system_topics import PERM_READ_WRITE
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.topic_config import TopicConfig
from remoting.resource_names import validate_topic
from store.lmq_places import is_lmq


class LmqTopicConfigManager(TopicConfigManager):
    """See the module."""

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration; None if it does not exist."""
        found = super().find(topic)
        return _light_topic(topic) if found is None and is_lmq(topic) else found

    def prepare_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit_mode: bool, remote: str
    ) -> TopicConfig:
        """A light queue takes messages that are sent to it. Raises RequestError."""
        if is_lmq(topic):
            validate_topic(topic)
            return _light_topic(topic)
        return super().prepare_for_send(
            topic, default_topic, queue_nums, unit_mode=unit_mode, remote=remote
        )

    def update(self, *wanted: TopicConfig) -> bool:
        """Light topics stay as they are, which is no error (as in RocketMQ)."""
        ordinary = [config for config in wanted if not is_lmq(config.topic_name)]
        return super().update(*ordinary) if ordinary else True


def _light_topic(topic: str) -> TopicConfig:
    return TopicConfig(
        topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=PERM_READ_WRITE
    )
