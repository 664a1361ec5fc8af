"""The topics that a broker has from the start.

Pure; called by TopicConfigManager when it is constructed. Corresponds to the constructor of
RocketMQ's TopicConfigManager.
"""

from __future__ import annotations

from typing import Final

from broker.settings.broker_config import BrokerConfig
from broker.topic.system_topics import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT_TOPIC,
    PERM_INHERIT,
    PERM_READ_WRITE,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    member_topic,
    reply_topic,
    revive_topic,
)
from remoting.body.topic_config import TopicConfig

SCHEDULE_TOPIC_QUEUE_NUM: Final = 18
BENCHMARK_TOPIC_QUEUE_NUM: Final = 1024


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The built-in topics of this broker's settings."""

    def topic(name: str, queue_nums: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
        )

    topics = [topic(SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic_enable:
        nums = config.default_topic_queue_nums
        topics.append(topic(AUTO_CREATE_TOPIC_KEY_TOPIC, nums, PERM_INHERIT | PERM_READ_WRITE))
    cluster_perm = PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0)
    broker_perm = PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0)
    topics += [
        topic(BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUM),
        topic(config.broker_cluster_name, 16, cluster_perm),
        topic(config.broker_name, 1, broker_perm),
        topic(OFFSET_MOVED_EVENT_TOPIC, 1),
        topic(SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM),
    ]
    if config.trace_topic_enable:
        topics.append(topic(config.msg_trace_topic_name, 1))
    topics.append(topic(revive_topic(config.broker_cluster_name), config.revive_queue_num))
    if config.enable_slave_acting_master:
        # In its route Java brokers of the group look for the members, by default.
        topics.append(topic(member_topic(config.broker_name), 1, PERM_INHERIT))
    topics.append(topic(reply_topic(config.broker_cluster_name), 1))
    return topics
