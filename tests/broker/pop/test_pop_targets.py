"""pop_targets: codes and words of RocketMQ's PopMessageProcessor, as its clients see them."""

from __future__ import annotations

import pytest

from broker.pop.pop_targets import check_queue_id, consuming_group, readable_topic
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError


def refusal(error: pytest.ExceptionInfo[RequestError]) -> tuple[int, str | None]:
    return int(error.value.code), error.value.remark


@pytest.mark.parametrize("perm", [4, 6])
def test_what_may_be_read_and_consumed(perm: int) -> None:
    topic = TopicConfig(topic_name="T", read_queue_nums=2, perm=perm)
    group = SubscriptionGroupConfig(group_name="G")
    assert readable_topic(topic, "T") is topic
    assert consuming_group(group, "G") is group
    for queue_id in (-1, 0, 1):
        check_queue_id(topic, "T", queue_id, "c")


def test_a_topic_that_is_not_there_or_not_readable() -> None:
    with pytest.raises(RequestError) as error:
        readable_topic(None, "T")
    assert refusal(error) == (17, "topic[T] not exist, apply first please!")
    with pytest.raises(RequestError) as error:
        readable_topic(TopicConfig(topic_name="T", perm=2), "T")
    assert refusal(error) == (16, "the topic[T] peeking message is forbidden")


def test_a_queue_that_is_not_there() -> None:
    topic = TopicConfig(topic_name="T", read_queue_nums=2)
    with pytest.raises(RequestError) as error:
        check_queue_id(topic, "T", 2, "10.0.0.1:9")
    assert refusal(error) == (
        29,
        "queueId[2] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[10.0.0.1:9]",
    )


def test_a_group_that_is_not_there_or_does_not_consume() -> None:
    with pytest.raises(RequestError) as error:
        consuming_group(None, "G")
    assert refusal(error) == (26, "subscription group [G] does not exist")
    with pytest.raises(RequestError) as error:
        consuming_group(SubscriptionGroupConfig(group_name="G", consume_enable=False), "G")
    assert refusal(error) == (16, "subscription group no permission, G")
