"""Which rights on which topics and groups a request needs, from its fields. Pure, any thread.

Each function gives resource -> permission: a topic by its name, a group by its retry topic (a
retry topic stands for its group: SUB). Fields that are missing ask for nothing, the processor
refuses them. Raises RequestError for a body that cannot be read. Follows PlainAccessResource and
PlainAccessValidator.parse of the original, and asks for what those let through: batches, lookups
of offsets, locks, subscription checks, replies, and sends to another group's retry topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.acl.permission import Permission, is_group
from broker.topic.system_topics import retry_topic
from remoting.body.heartbeat import CheckClientRequestBody, HeartbeatData
from remoting.body.lock_batch import LockBatchRequestBody
from remoting.remoting_command import RemotingCommand

Resources = dict[str, Permission]
ResourcesOf = Callable[[RemotingCommand], Resources]

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
"""Of the topic through which answers of request-reply go; open to every account."""


def send(request: RemotingCommand) -> Resources:
    """10, with long names."""
    return _publish(request.ext_fields, "topic")


def send_v2(request: RemotingCommand) -> Resources:
    """310 and 320, with letters."""
    return _publish(request.ext_fields, "b")


def reply(request: RemotingCommand) -> Resources:
    """324: whoever was asked may answer."""
    return _but_replies(send(request))


def reply_v2(request: RemotingCommand) -> Resources:
    """325."""
    return _but_replies(send_v2(request))


def pull(request: RemotingCommand) -> Resources:
    """11, 361, and the offsets of a group: 14, 15."""
    fields = request.ext_fields
    return _subscribe(fields.get("consumerGroup"), fields.get("topic"))


def send_back(request: RemotingCommand) -> Resources:
    """36."""
    return _subscribe(request.ext_fields.get("group"))


def consumer_group(request: RemotingCommand) -> Resources:
    """35, 38."""
    return _subscribe(request.ext_fields.get("consumerGroup"))


def query(request: RemotingCommand) -> Resources:
    """12; 33 of 5.x names its topic, too."""
    return _subscribe(None, request.ext_fields.get("topic"))


def bounds(request: RemotingCommand) -> Resources:
    """29, 30, 31, 32: producers ask as well as consumers."""
    topic = request.ext_fields.get("topic")
    if topic is None:
        return {}
    return {topic: Permission.SUB if is_group(topic) else Permission.ANY}


def end_transaction(request: RemotingCommand) -> Resources:
    """37: 5.x names the topic; for 4.9 the half message was checked when it was sent."""
    return _publish(request.ext_fields, "topic")


def heartbeat(request: RemotingCommand) -> Resources:
    """34: every consumer group and every topic that it subscribes to."""
    resources: Resources = {}
    for consumer in HeartbeatData.from_json_bytes(request.body).consumer_data_set:
        topics = [subscription.topic for subscription in consumer.subscription_data_set]
        resources |= _subscribe(consumer.group_name, *topics)
    return resources


def check_client(request: RemotingCommand) -> Resources:
    """46."""
    body = CheckClientRequestBody.from_json_bytes(request.body)
    subscription = body.subscription_data
    return _subscribe(body.group, None if subscription is None else subscription.topic)


def lock(request: RemotingCommand) -> Resources:
    """41, 42."""
    return _subscribe(LockBatchRequestBody.from_json_bytes(request.body).consumer_group)


def _publish(fields: Mapping[str, str], topic_field: str) -> Resources:
    topic = fields.get(topic_field)
    if topic is None:
        return {}
    return {topic: Permission.SUB if is_group(topic) else Permission.PUB}


def _subscribe(group: str | None, *topics: str | None) -> Resources:
    names = [] if group is None else [retry_topic(group)]
    names += [topic for topic in topics if topic is not None]
    return dict.fromkeys(names, Permission.SUB)


def _but_replies(resources: Resources) -> Resources:
    return {
        name: needed for name, needed in resources.items() if not name.endswith(REPLY_TOPIC_SUFFIX)
    }
