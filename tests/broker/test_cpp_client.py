"""A consumer of apache/rocketmq-client-cpp against a real broker of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from remoting.body.client_connection import ConsumerConnection
from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from remoting.body.message_queue import MessageQueue
from store.message_codec import decode_record
from tests.support import cpp_client
from tests.support.cpp_client import CppClient
from tests.support.our_broker import FrameClient, OurBroker

CLIENT_ID, GROUP, TOPIC = "127.0.0.1@4711", "CppGroup", "CppTopic"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    with OurBroker(tmp_path_factory.mktemp("cpp"), brokerName="broker-a") as broker:
        yield broker.start()


@pytest.fixture
def client(broker: OurBroker) -> Iterator[CppClient]:
    with CppClient(broker.ports["main"]) as client:
        yield client
        client.call(35, {"clientID": CLIENT_ID, "producerGroup": "", "consumerGroup": GROUP})


@pytest.fixture
def observer(broker: OurBroker) -> Iterator[FrameClient]:
    with broker.client() as observer:
        yield observer


def members(observer: FrameClient) -> list[str]:
    answer = observer.call(38, {"consumerGroup": GROUP})
    ids: list[str] = json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
    return ids


def pull_until(client: CppClient, count: int) -> list[bytes]:
    """The bodies of the first `count` messages of its tags; its pulls wait at the broker."""
    bodies: list[bytes] = []
    offset = 0
    while len(bodies) < count:
        pulled = client.call(11, cpp_client.pull_fields(GROUP, TOPIC, 1, offset, "TagA || TagB"))
        assert pulled.code in (0, 20), pulled.remark  # 20: only messages of other tags so far.
        offset = int(pulled.fields["nextBeginOffset"])
        position = 0
        while position < len(pulled.body):
            message, size = decode_record(pulled.body, position)
            bodies.append(message.body)
            position += size
    return bodies


def test_a_push_consumer_gets_its_messages(client: CppClient, observer: FrameClient) -> None:
    for tag in ("TagA", "TagC", "TagB"):
        properties = f"TAGS\x01{tag}\x02"
        sent = client.call(310, cpp_client.send_fields(TOPIC, 1, properties), tag.encode())
        assert (sent.code, sent.remark) == (0, None)
    answer = client.call(34, {}, cpp_client.HEARTBEAT)
    assert (answer.code, answer.remark) == (0, None)

    assert members(observer) == [CLIENT_ID]
    listed = client.call(38, {"consumerGroup": GROUP})
    assert json.loads(listed.body) == {"consumerIdList": [CLIENT_ID]}
    assert pull_until(client, 2) == [b"TagA", b"TagB"]


def test_what_an_operator_sees_of_it(client: CppClient, observer: FrameClient) -> None:
    assert client.call(34, {}, cpp_client.HEARTBEAT).code == 0
    answer = observer.call(203, {"consumerGroup": GROUP})
    seen = ConsumerConnection.from_json_bytes(answer.body)
    assert (seen.consume_type, seen.message_model, seen.consume_from_where) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    assert [(each.client_id, each.language) for each in seen.connection_set] == [(CLIENT_ID, "CPP")]
    topic = seen.subscription_table[TOPIC]
    assert (topic.tags_set, topic.sub_version) == (["TagA", "TagB"], 1_700_000_000_000)
    assert topic.expression_type == "TAG"
    assert seen.subscription_table[f"%RETRY%{GROUP}"].sub_string == "*"


def test_its_locks_and_its_leave(client: CppClient, observer: FrameClient) -> None:
    assert client.call(34, {}, cpp_client.HEARTBEAT).code == 0
    locked = client.call(41, {}, cpp_client.LOCK_BATCH)
    assert (locked.code, json.loads(locked.body)) == (
        0,
        {"lockOKMQSet": json.loads(cpp_client.LOCK_BATCH)["mqSet"]},
    )
    other = cpp_client.LOCK_BATCH.replace(b"4711", b"4712")
    assert json.loads(client.call(41, {}, other).body) == {"lockOKMQSet": []}
    assert client.call(42, {}, cpp_client.LOCK_BATCH).code == 0
    assert len(json.loads(client.call(41, {}, other).body)["lockOKMQSet"]) == 2
    left = client.call(35, {"clientID": CLIENT_ID, "producerGroup": "", "consumerGroup": GROUP})
    assert left.code == 0
    assert members(observer) == []


@pytest.mark.parametrize("body", [cpp_client.RUNNING_INFO, cpp_client.EMPTY_RUNNING_INFO])
def test_its_running_info_is_passed_on(
    client: CppClient, observer: FrameClient, body: bytes
) -> None:
    assert client.call(34, {}, cpp_client.HEARTBEAT).code == 0

    def answer() -> None:
        client.answer(client.await_request([307]), body)

    helper = threading.Thread(target=answer)
    helper.start()
    try:
        asked = {"consumerGroup": GROUP, "clientId": CLIENT_ID, "jstackEnable": "false"}
        assert observer.call(307, asked).body == body
    finally:
        helper.join(10)


def test_its_running_info_is_understood() -> None:
    info = ConsumerRunningInfo.from_json_bytes(cpp_client.RUNNING_INFO)
    queue = MessageQueue(broker_name="broker-a", queue_id=1, topic=TOPIC)
    assert info.mq_table == {
        queue: ProcessQueueInfo(
            commit_offset=7,
            locked=True,
            last_lock_timestamp=123,
            last_pull_timestamp=1_700_000_000_003,
            last_consume_timestamp=1_700_000_000_002,
        )
    }
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert [each.sub_version for each in info.subscription_set] == [1_700_000_000_000]


def test_the_texts_are_those_of_jsoncpp() -> None:
    for text in (cpp_client.HEARTBEAT, cpp_client.LOCK_BATCH):
        assert cpp_client.fast_json(json.loads(text)) == text


def test_a_producer_that_leaves_makes_no_group_of_an_empty_name(
    client: CppClient, observer: FrameClient
) -> None:
    leaving = {"clientID": CLIENT_ID, "producerGroup": "CppProducers", "consumerGroup": ""}
    assert client.call(34, {}, cpp_client.HEARTBEAT).code == 0
    assert client.call(35, leaving).code == 0
    groups = json.loads(observer.call(201, {}).body)["subscriptionGroupTable"]
    assert GROUP in groups
    assert "" not in groups
