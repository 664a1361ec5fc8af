"""broker.client.client_manage_processor: heartbeats, leaving, subscription checks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from remoting.errors import BodyError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import (
    CONFIG,
    FakeConnection,
    assert_same_answer,
    golden,
    request_of,
)
from tests.broker.processor_world import World
from tests.support.deadline import wait_until


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_heartbeats_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(34, number)
    assert_same_answer(world.client_manage().process_request(world.connection, request), answer)
    assert world.producers.find_group("CLIENT_INNER_PRODUCER") is not None


@pytest.mark.parametrize("number", range(1, 11))
def test_leaving_clients_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(35, number)
    assert_same_answer(world.client_manage().process_request(world.connection, request), answer)


def test_a_heartbeat_makes_group_and_retry_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.heartbeat("c1", consumer="g", topics=("t", "unknown-topic"))
    assert world.groups.find("g") is not None
    retry = world.topics.find("%RETRY%g")
    assert retry is not None
    assert (retry.read_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 6, 0)
    assert world.topics.find("unknown-topic") is None
    assert world.consumers.find_subscription("g", "unknown-topic") is not None


def test_without_automatic_groups_the_member_is_taken_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, replace(CONFIG, auto_create_subscription_group=False))
    world.heartbeat("c1", consumer="g", topics=("t",))
    assert world.groups.find("g") is None
    assert world.topics.find("%RETRY%g") is None
    assert world.consumers.client_ids("g") == ["c1"]


def test_the_groups_switch_is_honoured(tmp_path: Path) -> None:
    world = World(tmp_path)
    config = world.groups.find_or_create("g")
    assert config is not None
    world.groups.update(replace(config, notify_consumer_ids_changed_enable=False))
    body = (
        b'{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"%s","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[],"unitMode":true}],"producerDataSet":[]}'
    )
    quiet, told = FakeConnection(), FakeConnection()
    processor = world.client_manage()
    processor.process_request(quiet, RemotingCommand.request(34, body=body % b"g"))
    processor.process_request(told, RemotingCommand.request(34, body=body % b"h"))
    assert [len(quiet.sent), len(told.sent)] == [0, 1]
    retry = world.topics.find("%RETRY%h")
    assert retry is not None
    assert retry.topic_sys_flag == 2


def test_a_heartbeat_again_keeps_the_client(tmp_path: Path) -> None:
    world = World(tmp_path)
    connection = world.heartbeat("c1", consumer="g", topics=("t",), producer="p")
    for _ in range(5):
        world.clock.advance(100_000)
        world.heartbeat("c1", consumer="g", topics=("t",), producer="p", connection=connection)
        world.consumers.scan_not_active_channel()
        world.producers.scan_not_active_channel()
    assert connection.is_open
    assert world.consumers.client_ids("g") == ["c1"]


def test_leaving(tmp_path: Path) -> None:
    world = World(tmp_path)
    connection = world.heartbeat("c1", consumer="g", topics=("t",), producer="p")
    processor = world.client_manage()
    request = request_of(35, clientID="c1", consumerGroup="g")
    processor.process_request(connection, request)
    assert not world.consumers.has_group("g")
    assert world.producers.find_group("p") is not None
    processor.process_request(connection, request_of(35, clientID="c1", producerGroup="p"))
    assert world.producers.find_group("p") is None


def test_leaving_makes_no_group(tmp_path: Path) -> None:
    """RocketMQ's broker makes one: here a client that was never known leaves nothing behind."""
    world = World(tmp_path)
    request = request_of(35, clientID="c1", consumerGroup="unknown", producerGroup="")
    assert world.client_manage().process_request(world.connection, request).code == 0
    assert "unknown" not in world.groups.wrapper().subscription_group_table


def test_a_broken_heartbeat_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(BodyError):
        world.client_manage().process_request(
            world.connection, RemotingCommand.request(RequestCode.HEART_BEAT, body=b"{")
        )


@pytest.mark.parametrize(
    "consumer",
    [
        b'{"groupName":"g"}',
        b'{"groupName":"g","messageModel":null,"consumeType":"X","consumeFromWhere":"4"}',
    ],
)
def test_a_consumer_whose_mode_java_reads_as_null_is_taken(tmp_path: Path, consumer: bytes) -> None:
    world = World(tmp_path)
    body = b'{"clientID":"c1","consumerDataSet":[' + consumer + b"]}"
    world.client_manage().process_request(world.connection, RemotingCommand.request(34, body=body))
    assert world.consumers.client_ids("g") == ["c1"]
    assert not world.consumers.is_broadcasting("g")
    group = world.consumers.find_group("g")
    assert group is not None
    assert (group.consume_type, group.message_model, group.consume_from_where) == (None,) * 3


def test_broadcasting_is_0_and_clustering_is_1(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number, broadcasting in ((0, True), (1, False)):
        body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":%d}]}' % number
        world.client_manage().process_request(
            world.connection, RemotingCommand.request(34, body=body)
        )
        assert world.consumers.is_broadcasting("g") == broadcasting


def test_without_a_version_the_newest_subscription_counts(tmp_path: Path) -> None:
    """Java takes the time of reading for a subVersion that is left out."""
    world = World(tmp_path)
    text = (
        '{"clientID":"c1","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        '[{"topic":"T","subString":"%s"}]}]}'
    )
    for sub_string in ("a", "b"):
        before_ms = time.time_ns() // 1_000_000
        request = RemotingCommand.request(34, body=(text % sub_string).encode())
        world.client_manage().process_request(world.connection, request)
        found = world.consumers.find_subscription("g", "T")
        assert found is not None
        assert (found.sub_string, found.sub_version >= before_ms) == (sub_string, True)
        wait_until(lambda read_ms=found.sub_version: time.time_ns() // 1_000_000 > read_ms)


def test_nothing_to_check_is_checked(tmp_path: Path) -> None:
    world = World(tmp_path)
    for body in (b"{}", b'{"clientId":"c","group":"g","subscriptionData":null}'):
        answer = world.ask(world.client_manage(), RemotingCommand.request(46, body=body))
        assert answer.code == ResponseCode.SUCCESS


NOT_HERE = "The broker does not support consumer to filter message by {}"


@pytest.mark.parametrize(
    ("kind", "expression", "filter_on", "code", "remark"),
    [
        ("TAG", "a >", False, ResponseCode.SUCCESS, None),
        ("", "a >", True, ResponseCode.SUCCESS, None),
        ("SQL92", "a > 1", False, ResponseCode.SYSTEM_ERROR, NOT_HERE.format("SQL92")),
        ("SQL92", "a >", False, ResponseCode.SYSTEM_ERROR, NOT_HERE.format("SQL92")),
        ("JS", "a", False, ResponseCode.SYSTEM_ERROR, NOT_HERE.format("JS")),
        ("SQL92", "a > 1", True, ResponseCode.SUCCESS, None),
        (
            "SQL92",
            "a > 'x'",
            True,
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "at its end: > compares numbers and properties only; compare strings, TRUE, FALSE and "
            "conditions with = and <>",
        ),
        (
            "SQL92",
            "",
            True,
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "the expression is incomplete",
        ),
        (
            "JS",
            "a",
            True,
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "unknown filter type JS, use TAG or SQL92",
        ),
    ],
)
def test_check_client_config(
    tmp_path: Path,
    kind: str,
    expression: str,
    filter_on: bool,
    code: ResponseCode,
    remark: str | None,
) -> None:
    world = World(tmp_path).with_config(enable_property_filter=filter_on)
    body = (
        f'{{"clientId":"c","group":"g","subscriptionData":{{"topic":"t","subString":"{expression}",'
        f'"expressionType":"{kind}"}}}}'
    )
    answer = world.ask(world.client_manage(), RemotingCommand.request(46, body=body.encode()))
    assert (answer.code, answer.remark) == (code, remark)


def test_check_of_a_subscription_without_an_expression(tmp_path: Path) -> None:
    world = World(tmp_path).with_config(enable_property_filter=True)
    body = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t","expressionType":"SQL92"}}'
    answer = world.ask(world.client_manage(), RemotingCommand.request(46, body=body))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def heartbeat_of(consumers: int, producers: int = 0, subscriptions: int = 0) -> RemotingCommand:
    """34 of one client with so many groups, and subscriptions in each."""
    subscribed = [
        {"topic": f"t{n}", "subString": "*", "subVersion": 1} for n in range(subscriptions)
    ]
    body = {
        "clientID": "many",
        "consumerDataSet": [
            {
                "groupName": f"c{n}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": subscribed,
            }
            for n in range(consumers)
        ],
        "producerDataSet": [{"groupName": f"p{n}"} for n in range(producers)],
    }
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((30_000,), "bytes, over the limit of 2097152"),
        ((3_000,), "3000 groups, over the limit of 1000 (heartbeatMaxGroups)"),
        ((500, 501), "1001 groups, over the limit of 1000 (heartbeatMaxGroups)"),
        ((101, 0, 100), "10100 subscriptions, over the limit of 10000"),
    ],
)
def test_what_one_heartbeat_makes_is_bounded(
    tmp_path: Path, sizes: tuple[int, ...], words: str
) -> None:
    """In RocketMQ 30,000 new groups come of one: topics, files, minutes."""
    world = World(tmp_path)
    before = world.topics.wrapper().data_version.counter
    with pytest.raises(RequestError, match=re.escape(words)):
        world.client_manage().process_request(world.connection, heartbeat_of(*sizes))
    assert world.topics.wrapper().data_version.counter == before
    assert world.groups.find("c0") is None
    assert world.producers.find_group("p0") is None
    assert not world.consumers.has_group("c0")


@pytest.mark.parametrize("place", ["client", "consumer", "producer"])
def test_long_names_of_a_heartbeat_are_not_kept(tmp_path: Path, place: str) -> None:
    world = World(tmp_path)
    name = "x" * 256
    body = {
        "clientID": name if place == "client" else "c",
        "consumerDataSet": [{"groupName": name if place == "consumer" else "g"}],
        "producerDataSet": [{"groupName": name if place == "producer" else "g"}],
    }
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
    with pytest.raises(RequestError, match="256 characters, over the limit of 255"):
        world.client_manage().process_request(world.connection, request)
    assert world.producers.find_group("g") is None


def test_many_heartbeats_of_a_connection_are_bounded_together(tmp_path: Path) -> None:
    """The same groups may be named again and again, others only in their place."""
    world = World(tmp_path, replace(CONFIG, heartbeat_max_groups=100))
    processor = world.client_manage()
    for _ in range(3):
        processor.process_request(world.connection, heartbeat_of(60, 40))
    others = heartbeat_of(0, 41)
    with pytest.raises(RequestError, match="101 groups, over the limit of 100"):
        processor.process_request(world.connection, others)
    assert world.producers.find_group("p40") is None
    world.consumers.unregister_consumer("c0", world.connection, notify=False)
    processor.process_request(world.connection, others)
    assert world.producers.find_group("p40") is not None


def test_the_largest_heartbeat_waits_once(tmp_path: Path) -> None:
    """For all of its new retry topics together, not for one round of the name servers each."""
    world = World(tmp_path)
    waits: list[int] = []

    class Busy:
        busy = True

        def hold(self, topics: Collection[str], then: Callable[[], None]) -> bool:
            raise AssertionError

        def wait(self, topics: Collection[str]) -> None:
            waits.append(len(topics))

    processor = world.client_manage()
    processor._new_topics = Busy()
    answer = processor.process_request(world.connection, heartbeat_of(60, 40, 160))
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert waits == [60]
    assert world.topics.find("%RETRY%c59") is not None
