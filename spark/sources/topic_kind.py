"""What a reader must know of a topic: whether its queues may have holes, and whether brokers select
messages by tag in them as consumers expect.

Driver and executors; asks a broker for the topic's settings, which those of 4.9 do not tell: they
have only one kind.

Tested by tests/spark/sources/test_topic_kind.py.
"""

from __future__ import annotations

from typing import Final

from remoting.body.message_queue import MessageQueue
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.errors import RequestError
from remoting.headers.topic import GetTopicConfigRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from spark.sources.cluster import Cluster
from spark.sources.errors import SourceError

_POLICY: Final = "cleanup.policy"
_COMPACTION: Final = "COMPACTION"
_INTERNAL: Final = ("SCHEDULE_TOPIC_", "RMQ_SYS_", "rmq_sys_", "%LMQ%")
"""Brokers use the tags' places of these topics' units for something else."""


def has_holes(cluster: Cluster, queue: MessageQueue) -> bool:
    """Whether offsets may be missing without a loss: in compacted topics, and in static topics,
    whose queues leave a gap where they were moved."""
    if cluster.route(queue.topic).topic_queue_mapping_by_broker:
        return True
    attributes = _attributes(cluster, queue)
    return attributes is not None and attributes.get(_POLICY) == _COMPACTION


def selects_tags(cluster: Cluster, topic: str) -> bool:
    """Whether the brokers' selection by tags leaves out nothing that is wanted. In batch queues
    (5.x) it would: they know no tags of the messages within a batch."""
    if topic.startswith(_INTERNAL) or cluster.route(topic).topic_queue_mapping_by_broker:
        return False
    first_queues = {queue.broker_name: queue for queue in reversed(cluster.queues(topic))}
    return all(_is_usual(_attributes(cluster, queue)) for queue in first_queues.values())


def _is_usual(attributes: dict[str, str] | None) -> bool:
    return (
        attributes is not None
        and attributes.get("queue.type", "SimpleCQ") == "SimpleCQ"
        and attributes.get(_POLICY, "DELETE") == "DELETE"
    )


def _attributes(cluster: Cluster, queue: MessageQueue) -> dict[str, str] | None:
    """The topic's attributes at the queue's broker; None: it does not tell."""
    header = GetTopicConfigRequestHeader(topic=queue.topic)
    accept = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    try:
        answer = cluster.ask(queue, RequestCode.GET_TOPIC_CONFIG, header, accept=accept)
        if answer.response.code != ResponseCode.SUCCESS:
            return {}
        found = TopicConfigAndQueueMapping.from_json_bytes(answer.response.body)
    except (SourceError, RequestError):
        return None
    return found.attributes or {}
