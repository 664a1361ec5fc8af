"""broker.topic.system_topics: names, their checks, the words of refusals."""

from __future__ import annotations

import pytest

from broker.topic.system_topics import (
    SYSTEM_GROUPS,
    SystemTopics,
    check_send_allowed,
    dlq_topic,
    is_system_group,
    reply_topic,
    retry_topic,
)
from remoting.errors import RequestError
from remoting.response_code import ResponseCode


@pytest.mark.parametrize(
    ("topic", "is_system"),
    [
        ("TBW102", True),
        ("SCHEDULE_TOPIC_XXXX", True),
        ("BenchmarkTest", True),
        ("rmq_sys_anything", True),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", True),
        ("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", True),
        ("RMQ_SYS_anything", False),
        ("MyCluster", True),
        ("MyBroker", False),
        ("orders", False),
    ],
)
def test_system_topics(topic: str, is_system: bool) -> None:
    topics = SystemTopics("MyCluster")
    assert topics.is_system_topic(topic) is is_system
    if is_system:
        with pytest.raises(RequestError, match=f"The topic\\[{topic}\\] is conflict with system"):
            topics.check_not_system(topic)
    else:
        topics.check_not_system(topic)


def test_system_topics_belong_to_one_broker() -> None:
    one, other = SystemTopics(), SystemTopics()
    one.add("cluster-a")
    assert one.is_system_topic("cluster-a")
    assert not other.is_system_topic("cluster-a")
    assert set(one.names()) - set(other.names()) == {"cluster-a"}


@pytest.mark.parametrize(
    "topic",
    [
        *("SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
    ],
)
def test_forbidden_to_send(topic: str) -> None:
    with pytest.raises(RequestError, match="is forbidden") as caught:
        check_send_allowed(topic)
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_allowed_to_send() -> None:
    for topic in ("TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "x"):
        check_send_allowed(topic)


def test_made_names() -> None:
    assert (retry_topic("g"), dlq_topic("g")) == ("%RETRY%g", "%DLQ%g")
    assert reply_topic("c") == "c_REPLY_TOPIC"


def test_system_groups() -> None:
    assert len(SYSTEM_GROUPS) == 7
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("g")
