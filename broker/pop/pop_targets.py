"""The topic, the queue and the group that a pop, a peek or a notification names: may it?

Pure, loop thread. For 200050, 200052, 200054 and 200070 alike; codes and words are those of
RocketMQ's PopMessageProcessor. Each is told what was found under the name. Knows no request.

Tested by tests/broker/pop/test_pop_targets.py.
"""

from __future__ import annotations

from typing import Final

from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

_PERM_READ: Final = 4


def readable_topic(found: TopicConfig | None, name: str) -> TopicConfig:
    """The topic. Raises RequestError (17, 16)."""
    if found is None:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
        )
    if not found.perm & _PERM_READ:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
        )
    return found


def check_queue_id(topic: TopicConfig, name: str, queue_id: int, remote: str) -> None:
    """One of the topic's queues; -1: all of them. remote: who asks. Raises RequestError (29)."""
    if queue_id >= topic.read_queue_nums:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{remote}]",
        )


def consuming_group(found: SubscriptionGroupConfig | None, name: str) -> SubscriptionGroupConfig:
    """The group. Raises RequestError (26, 16)."""
    if found is None:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist",
        )
    if not found.consume_enable:
        raise RequestError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
    return found
