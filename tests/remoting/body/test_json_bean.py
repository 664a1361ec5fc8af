"""What the bean reader tolerates, what it refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.body.client_connection import ConsumerConnection
from remoting.body.consumer_offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from remoting.body.data_version import DataVersion
from remoting.body.heartbeat import ConsumerData, ConsumeType, HeartbeatData, SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import GetConsumerStatusBody, ResetOffsetBody
from remoting.body.route import TopicRouteData
from remoting.body.stats import ConsumeStats, OffsetWrapper, TopicStatsTable
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper, TopicFilterType
from remoting.errors import BodyError
from remoting.response_code import ResponseCode

QUEUE = MessageQueue(broker_name="b", queue_id=1, topic="T")


def test_java_defaults_for_missing_and_null_members() -> None:
    topic = TopicConfig.from_json_bytes(b'{"topicName":"T","perm":null,"topicSynFlag":3}')
    assert topic == TopicConfig(topic_name="T")
    assert (topic.read_queue_nums, topic.perm, topic.topic_sys_flag) == (16, 6, 0)
    group = SubscriptionGroupConfig.from_json_bytes(b"{groupName:'g'}")
    assert (group.retry_max_times, group.which_broker_when_consume_slowly) == (16, 1)
    data = HeartbeatData.from_json_bytes(b'{"clientID":"c"}')
    assert data.consumer_data_set == []
    assert data.producer_data_set == []
    assert TopicRouteData.from_json_bytes(b"{}").to_json_bytes() == (
        b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    )


@pytest.mark.parametrize("others", [{}, {"x": 1}, {"a\0topic_name": 1, "\0": 2}, {"topicname": 9}])
def test_other_spellings_among_unknown_members(others: dict[str, int]) -> None:
    """An exact name counts first, then the first of the others."""
    tree = {"topic-name": "first", **others, "TOPIC_NAME": "second", "IsOrder": True}
    topic = TopicConfig.from_json(tree)
    assert (topic.topic_name, topic.order) == ("first", True)
    assert TopicConfig.from_json({**tree, "topicName": "exact"}).topic_name == "exact"


def test_loose_requests_are_bounded() -> None:
    """Strict JSON is read by a decoder of its own; each word of the rest takes 0.4 us of a turn."""
    few, many = 40_000, 60_000
    strict = b'{"topicName":"T","x":[' + b"1," * many + b"1]}"
    assert TopicConfig.from_request(strict) == TopicConfig(topic_name="T")
    for template in (b"{topicName:'T',x:[%b1]}", b'{"topicName":"T","y":"\xff","x":[%b1],}'):
        assert TopicConfig.from_request(template % (b"1," * few)).topic_name == "T"
        with pytest.raises(BodyError, match="no strict JSON, with more than 100000 words"):
            TopicConfig.from_request(template % (b"1," * many))
        assert TopicConfig.from_json_bytes(template % (b"1," * many)).topic_name == "T"


def test_members_of_a_request_are_bounded() -> None:
    """Unknown ones, and those of values, too."""
    members = ",".join(f'"{number:x}":1' for number in range(99_999))
    few = b'{"topicName":"T",%s}' % members.encode()
    assert TopicConfig.from_request(few).topic_name == "T"
    many = few[:-1] + b',"x":1}'
    with pytest.raises(BodyError, match="TopicConfig: 100001 members, the limit is 100000; split"):
        TopicConfig.from_request(many)
    assert TopicConfig.from_json_bytes(many).topic_name == "T"


def test_loose_values() -> None:
    topic = TopicConfig.from_json_bytes(
        b'{"topicName":5,"perm":"4","order":"true","readQueueNums":8.0,"writeQueueNums":"08"}'
    )
    assert (topic.topic_name, topic.perm, topic.order) == ("5", 4, True)
    assert (topic.read_queue_nums, topic.write_queue_nums) == (8, 8)
    stats = ConsumeStats.from_json_bytes(b'{"consumeTps":"1.5","offsetTable":{}}')
    assert stats.consume_tps == 1.5


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{{"topic":"T","brokerName":"b","queueId":1}:5}}',
        '{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}":5}}',
        "{\"offsetTable\":{\"{'topic':'T',queueId:'1',brokerName:'b',x:1}\":\"5\"}}",
    ],
)
def test_object_keys_and_their_text(text: str) -> None:
    body = ResetOffsetBody.from_json_bytes(text.encode())
    assert body.offset_table == {QUEUE: 5}
    assert body.to_json_bytes() == (
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
    )


@pytest.mark.parametrize("text", ['{"offsetTable":{"T@g":{0:5}}}', '{offsetTable:{"T@g":{"0":5}}}'])
def test_integer_keys_bare_and_quoted(text: str) -> None:
    table = ConsumerOffsetSerializeWrapper.from_json_bytes(text.encode())
    assert table.offset_table == {"T@g": {0: 5}}
    assert table.to_json_bytes() == b'{"offsetTable":{"T@g":{0:5}}}'


def test_members_of_5x() -> None:
    wrapper = ConsumerOffsetSerializeWrapper.from_json_bytes(
        b'{"dataVersion":{"counter":1,"stateVersion":2,"timestamp":3},'
        b'"groupTopicMap":{"g":["T"]},"offsetTable":{}}'
    )
    assert wrapper.data_version == DataVersion(counter=1, state_version=2, timestamp=3)
    assert b"groupTopicMap" not in wrapper.to_json_bytes()
    topics = TopicConfigSerializeWrapper.from_json_bytes(
        b'{"topicConfigTable":{"T":{"topicName":"T","attributes":{"message.type":"FIFO"}}},'
        b'"mappingDataVersion":{},"topicQueueMappingDetailMap":{"T":{"hostedQueues":{0:[]}}}}'
    )
    assert topics.topic_config_table["T"].attributes == {"message.type": "FIFO"}
    groups = SubscriptionGroupWrapper.from_json_bytes(
        b'{"forbiddenTable":{"g":{"T":2}},"subscriptionGroupTable":{"g":{"groupName":"g",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"consumeMessageOrderly":true}}}'
    )
    assert groups.forbidden_table == {"g": {"T": 2}}
    assert groups.subscription_group_table["g"].consume_message_orderly is True
    stats = TopicStatsTable.from_json_bytes(b'{"topicPutTps":0.5,"offsetTable":{}}')
    assert stats.to_json_bytes() == b'{"offsetTable":{},"topicPutTps":0.5}'
    pop = b'"consumeType":"CONSUME_POP","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET"'
    consumer = ConsumerData.from_json_bytes(
        b'{"groupName":"g","messageModel":"CLUSTERING",' + pop + b"}"
    )
    assert consumer.consume_type is ConsumeType.CONSUME_POP


@pytest.mark.parametrize(
    ("cls", "text", "reason"),
    [
        (HeartbeatData, "{}", "clientID is missing"),
        (HeartbeatData, "[]", "a list where a HeartbeatData"),
        (HeartbeatData, "{'clientID'", "invalid JSON in 11 bytes: expected a colon"),
        (HeartbeatData, '{"clientID":"c","producerDataSet":{}}', "producerDataSet: groupName is m"),
        (HeartbeatData, '{"clientID":"c","producerDataSet":[5]}', "a int where a ProducerData"),
        (
            HeartbeatData,
            '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
            '"consumeType":3}]}',
            "consumerDataSet: consumeType: 3 is not one of the 3 values",
        ),
        (
            TopicConfigSerializeWrapper,
            '{"topicConfigTable":{"T":{"topicName":"T","perm":"rw"}}}',
            "topicConfigTable: T: perm: rw is not an integer",
        ),
        (TopicConfigSerializeWrapper, '{"topicConfigTable":[]}', "a list where a map"),
        (TopicConfig, '{"topicName":"T","perm":2147483648}', "perm: 2147483648 is out of range"),
        (TopicConfig, '{"topicName":"T","perm":1e99}', "perm: .* is out of range"),
        (TopicConfig, '{"topicName":"T","perm":"5.5"}', "perm: 5.5 is not an integer"),
        (TopicConfig, '{"topicName":"T","perm":{}}', "perm: {} is not an integer"),
        (TopicConfig, '{"topicName":"T","order":"maybe"}', "order: maybe is not a boolean"),
        (
            TopicConfig,
            '{"topicName":"T","topicFilterType":true}',
            "true is not one of the 2 values",
        ),
        (TopicConfig, '{"topicName":"","topicFilterType":1.0}', "1.0 is not one of the 2 values"),
        (ConsumeStats, '{"consumeTps":[]}', "consumeTps: .* is not a number"),
        (ConsumeStats, '{"consumeTps":"x"}', "consumeTps: x is not a number"),
        (ResetOffsetBody, '{"offsetTable":{"T":5}}', "offsetTable: T: expected a value"),
        (ResetOffsetBody, '{"offsetTable":{"{}":5}}', "brokerName is missing"),
        (DelayOffsetSerializeWrapper, '{"offsetTable":{"x":5}}', "offsetTable: x: x is not an"),
        (DelayOffsetSerializeWrapper, '{"offsetTable":{"1":9223372036854775808}}', "out of range"),
    ],
)
def test_refusals_name_the_member(cls: Any, text: str, reason: str) -> None:
    with pytest.raises(BodyError, match=reason) as caught:
        cls.from_json_bytes(text.encode())
    assert caught.value.code is ResponseCode.SYSTEM_ERROR
    assert cls.__name__ in caught.value.remark


@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_bean_or_a_body_error(data: bytes) -> None:
    for cls in (GetConsumerStatusBody, ConsumerConnection, ConsumeStats, SubscriptionData):
        try:
            cls.from_json_bytes(data)
        except BodyError as error:
            assert cls.__name__ in str(error)  # noqa: PT017


def test_next_version() -> None:
    version = DataVersion(counter=4, timestamp=10, state_version=7)
    assert version.next_version(99) == DataVersion(counter=5, timestamp=99, state_version=7)
    assert version.counter == 4


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
queues = st.builds(MessageQueue, broker_name=texts, queue_id=int32, topic=texts)
offset_wrappers = st.builds(OffsetWrapper, broker_offset=int64, consumer_offset=int64)


@given(
    table=st.dictionaries(queues, offset_wrappers, max_size=4),
    tps=st.floats(allow_nan=False, allow_infinity=False),
)
def test_round_trip_of_object_keys(table: dict[MessageQueue, OffsetWrapper], tps: float) -> None:
    stats = ConsumeStats(offset_table=table, consume_tps=tps)
    assert ConsumeStats.from_json_bytes(stats.to_json_bytes()) == stats
    assert ConsumeStats.from_json_bytes(stats.to_pretty_json_bytes()) == stats


@given(table=st.dictionaries(texts, st.dictionaries(int32, int64, max_size=3), max_size=3))
def test_round_trip_of_integer_keys(table: dict[str, dict[int, int]]) -> None:
    wrapper = ConsumerOffsetSerializeWrapper(offset_table=table)
    assert ConsumerOffsetSerializeWrapper.from_json_bytes(wrapper.to_json_bytes()) == wrapper
    assert ConsumerOffsetSerializeWrapper.from_json_bytes(wrapper.to_pretty_json_bytes()) == wrapper


topics = st.builds(
    TopicConfig,
    topic_name=texts,
    perm=int32,
    order=st.booleans(),
    topic_filter_type=st.sampled_from(TopicFilterType),
    attributes=st.none() | st.dictionaries(texts, texts, max_size=2),
)


@given(table=st.dictionaries(texts, topics, max_size=3))
def test_round_trip_of_topics(table: dict[str, TopicConfig]) -> None:
    wrapper = TopicConfigSerializeWrapper(topic_config_table=table)
    assert TopicConfigSerializeWrapper.from_json_bytes(wrapper.to_json_bytes()) == wrapper
