"""The permissions that a request needs, by topic and group. Pure, any thread.

Each function returns resource -> permission. A topic is named by its name, a group by its retry
topic (a retry topic stands for its group and needs SUB). A missing field needs no permission; the
processor rejects the request. Raises RequestError for a body that cannot be read. Follows
PlainAccessResource and PlainAccessValidator.parse of RocketMQ, and also checks what they let
through: batches, lookups of offsets, locks, subscription checks, replies, and sends to another
group's retry topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.acl.permission import Permission, is_group
from broker.topic.system_topics import retry_topic
from remoting.body.batch_ack import BatchAckMessageRequestBody
from remoting.body.heartbeat import CheckClientRequestBody, HeartbeatData
from remoting.body.lite import LiteSubscriptionCtlRequestBody
from remoting.body.lock_batch import LockBatchRequestBody
from remoting.body.message_request_mode import QueryAssignmentRequestBody
from remoting.key_builder import parse_normal_topic
from remoting.remoting_command import RemotingCommand

Resources = dict[str, Permission]
ResourcesOf = Callable[[RemotingCommand], Resources]

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
"""Suffix of the topic that carries request-reply responses; open to every account."""


def send(request: RemotingCommand) -> Resources:
    """10, and 370, with long names."""
    return _publish(request.ext_fields, "topic")


def send_v2(request: RemotingCommand) -> Resources:
    """310 and 320, with letters."""
    return _publish(request.ext_fields, "b")


def reply(request: RemotingCommand) -> Resources:
    """324: the recipient of a request may always reply."""
    return _but_replies(send(request))


def reply_v2(request: RemotingCommand) -> Resources:
    """325."""
    return _but_replies(send_v2(request))


def pull(request: RemotingCommand) -> Resources:
    """11, 361, and the offsets of a group: 14, 15."""
    fields = request.ext_fields
    return _subscribe(fields.get("consumerGroup"), fields.get("topic"))


def popped(request: RemotingCommand) -> Resources:
    """200050 to 200055, 200070: its own pop retry topic stands for the topic that it is of."""
    group, topic = (request.ext_fields.get(name) for name in ("consumerGroup", "topic"))
    if group is not None and topic is not None:
        topic = parse_normal_topic(topic, group)
    return _subscribe(group, topic)


def batch_ack(request: RemotingCommand) -> Resources:
    """200151: every group and topic of its entries."""
    resources: Resources = {}
    if request.body:
        for entry in BatchAckMessageRequestBody.from_request(request.body).acks:
            resources |= _subscribe(entry.consumer_group, entry.topic)
    return resources


def lite_subscriptions(request: RemotingCommand) -> Resources:
    """200071: every group and parent topic of its changes."""
    resources: Resources = {}
    if request.body:
        for change in LiteSubscriptionCtlRequestBody.from_request(request.body).subscription_set:
            resources |= _subscribe(change.group or None, change.topic or None)
    return resources


def assignment(request: RemotingCommand) -> Resources:
    """400."""
    if not request.body:
        return {}
    body = QueryAssignmentRequestBody.from_request(request.body)
    return _subscribe(body.consumer_group or None, body.topic or None)


def send_back(request: RemotingCommand) -> Resources:
    """36."""
    return _subscribe(request.ext_fields.get("group"))


def consumer_group(request: RemotingCommand) -> Resources:
    """35, 38."""
    return _subscribe(request.ext_fields.get("consumerGroup"))


def query(request: RemotingCommand) -> Resources:
    """12, and 33 of 5.x, which also names the topic."""
    return _subscribe(None, request.ext_fields.get("topic"))


def bounds(request: RemotingCommand) -> Resources:
    """29, 30, 31, 32: sent by producers as well as consumers."""
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
    for consumer in HeartbeatData.from_request(request.body).consumer_data_set:
        topics = [subscription.topic for subscription in consumer.subscription_data_set]
        resources |= _subscribe(consumer.group_name, *topics)
    return resources


def check_client(request: RemotingCommand) -> Resources:
    """46."""
    body = CheckClientRequestBody.from_request(request.body)
    subscription = body.subscription_data
    return _subscribe(body.group, None if subscription is None else subscription.topic)


def lock(request: RemotingCommand) -> Resources:
    """41, 42."""
    return _subscribe(LockBatchRequestBody.from_request(request.body).consumer_group)


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
    """A retry topic with this suffix is no reply topic: %RETRY%<group>_X_REPLY_TOPIC is pop's."""
    return {
        name: needed
        for name, needed in resources.items()
        if is_group(name) or not name.endswith(REPLY_TOPIC_SUFFIX)
    }
