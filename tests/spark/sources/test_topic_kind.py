"""What kind a topic is, by what its broker tells of it."""

from __future__ import annotations

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from spark.sources.topic_kind import has_holes, selects_tags
from tests.spark.sources.fake_queues import FakeQueues

QUEUE = MessageQueue(topic="T", broker_name="broker-g", queue_id=0)


def tell(stored: FakeQueues, **attributes: str) -> None:
    named = {name.replace("_", "."): value for name, value in attributes.items()}
    config = TopicConfigAndQueueMapping(topic_name="T", attributes=named)
    stored.cluster.always(RequestCode.GET_TOPIC_CONFIG, body=config.to_json_bytes())


def test_of_a_broker_of_4_9(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 1)
    assert not has_holes(client, QUEUE)
    assert selects_tags(client, "T")


@pytest.mark.parametrize(
    ("attributes", "holes", "tags"),
    [
        ({}, False, True),
        ({"queue_type": "SimpleCQ", "cleanup_policy": "DELETE"}, False, True),
        ({"queue_type": "BatchCQ"}, False, False),
        ({"cleanup_policy": "COMPACTION"}, True, False),
    ],
)
def test_of_5_x(
    client: Cluster, stored: FakeQueues, attributes: dict[str, str], holes: bool, tags: bool
) -> None:
    stored.plain("T", 1)
    tell(stored, **attributes)
    assert has_holes(client, QUEUE) == holes
    assert selects_tags(client, "T") == tags


def test_of_a_broker_that_does_not_tell(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 1)
    stored.cluster.always(RequestCode.GET_TOPIC_CONFIG, 16, "no right")
    assert not has_holes(client, QUEUE)
    assert not selects_tags(client, "T")
    stored.cluster.always(RequestCode.GET_TOPIC_CONFIG, body=b"{")
    assert not selects_tags(client, "T")


def test_topics_of_brokers(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("SCHEDULE_TOPIC_XXXX", 1)
    assert not selects_tags(client, "SCHEDULE_TOPIC_XXXX")
