"""broker.admin.admin_relay_processor: what operators ask of connected clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.acl.access_resources import Resources
from broker.acl.permission import Permission
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import GetConsumerStatusBody
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from store.message import Message
from store.message_codec import encode_host, encode_message_id, encode_record
from tests.broker.broker_fakes import FakeConnection, json_of, request_of
from tests.broker.client.test_broker2client import Answer, AnsweringConnection
from tests.broker.processor_world import World

HOST = encode_host("127.0.0.2", 20911)
MESSAGE_ID = encode_message_id(HOST, 4711)
RECORD = encode_record(
    Message(topic="t", queue_id=0, phy_offset=4711, body=b"1", born_host=HOST, store_host=HOST)
)


def client_of(world: World, answer: Answer) -> FakeConnection:
    connection = AnsweringConnection(world.responses, lambda _: None)
    world.heartbeat("c", consumer="g", topics=("t",), connection=connection)
    connection._answer = answer
    return connection


def test_the_answer_of_a_client_is_passed_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    client = client_of(world, lambda request: request.response(0, None, {"a": "b"}, b"{info}"))
    request = request_of(307, consumerGroup="g", clientId="c", jstackEnable="true")
    answer = world.ask(world.admin_relay(), request)
    assert (answer.code, answer.opaque, answer.body) == (0, request.opaque, b"{info}")
    assert answer.ext_fields == {"a": "b"}
    assert client.sent[0].ext_fields == request.ext_fields


def test_an_answer_without_fields_stays_without(tmp_path: Path) -> None:
    world = World(tmp_path)
    client_of(world, lambda request: request.response(1, "The Consumer Group <g> not exist"))
    request = request_of(307, consumerGroup="g", clientId="c")
    answer = world.ask(world.admin_relay(), request)
    assert (answer.code, answer.remark) == (1, "The Consumer Group <g> not exist")
    assert not answer.has_ext_fields


def test_a_client_that_is_not_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    request = request_of(307, consumerGroup="g", clientId="c")
    answer = world.ask(world.admin_relay(), request)
    assert (answer.code, answer.remark) == (1, "The Consumer <g> <c> not online")


def test_a_message_goes_to_the_client(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.records[4711] = RECORD
    client = client_of(world, lambda request: request.response(0, body=b"{result}"))
    request = request_of(309, consumerGroup="g", clientId="c", msgId=MESSAGE_ID, topic="t")
    answer = world.ask(world.admin_relay(), request)
    assert (answer.code, answer.body) == (0, b"{result}")
    (sent,) = client.sent
    assert (sent.code, sent.body) == (309, RECORD)
    assert sent.ext_fields == {
        "consumerGroup": "g",
        "clientId": "c",
        "msgId": MESSAGE_ID,
        "topic": "t",
        "brokerName": "broker-g",
    }


def test_a_message_goes_to_nobody_who_may_not_read_its_topic(tmp_path: Path) -> None:
    """Whatever topic the request names."""
    world = World(tmp_path)
    world.store.records[4711] = RECORD
    client = client_of(world, lambda request: request.response(0))
    asked: list[Resources] = []

    def refuse(_connection: ConnectionLike, _request: RemotingCommand, needed: Resources) -> None:
        asked.append(needed)
        raise RequestError(ResponseCode.NO_PERMISSION, "no")

    request = request_of(309, consumerGroup="g", clientId="c", msgId=MESSAGE_ID, topic="mine")
    answer = world.ask(world.admin_relay(refuse), request)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "no")
    assert asked == [{"t": Permission.SUB}]
    assert client.sent == []


def test_a_client_never_gets_the_operators_signature(tmp_path: Path) -> None:
    """It covers no code: with it the client could send another request as the operator."""
    world = World(tmp_path)
    world.store.records[4711] = RECORD
    client = client_of(world, lambda request: request.response(0))
    for code in (307, 309):
        request = request_of(code, consumerGroup="g", clientId="c", msgId=MESSAGE_ID)
        RequestSigner("root", "root-secret").sign(request)
        assert world.ask(world.admin_relay(), request).code == 0
    assert [set(sent.ext_fields) & {"AccessKey", "Signature"} for sent in client.sent] == [
        set()
    ] * 2


def test_a_silent_client_is_a_timeout(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.records[4711] = RECORD
    client_of(world, lambda _: None)
    request = request_of(309, consumerGroup="g", clientId="c", msgId=MESSAGE_ID)
    assert world.ask(world.admin_relay(), request).code == ResponseCode.CONSUME_MSG_TIMEOUT


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "message id '' is not 32 or 56 hex digits"),
        ({"msgId": "XYZ"}, "message id 'XYZ' is not 32 or 56 hex digits"),
        (
            {"msgId": MESSAGE_ID},
            f"can not find message by the offset, 4711; msgId {MESSAGE_ID} does not belong "
            "to this broker, or its file was deleted",
        ),
    ],
)
def test_a_message_that_is_not_there(tmp_path: Path, fields: dict[str, str], remark: str) -> None:
    world = World(tmp_path)
    client = client_of(world, lambda request: request.response(0))
    answer = world.ask(world.admin_relay(), request_of(309, consumerGroup="g", **fields))
    assert (answer.code, answer.remark) == (1, remark)
    assert client.sent == []


def test_no_client_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.records[4711] = RECORD
    answer = world.ask(world.admin_relay(), request_of(309, consumerGroup="g", msgId=MESSAGE_ID))
    assert (answer.code, answer.remark) == (1, "The Consumer <g> <> not online")


def test_where_the_members_of_a_group_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    queue = MessageQueue(broker_name="broker-g", queue_id=0, topic="t")

    def answer_221(request: RemotingCommand) -> RemotingCommand:
        body = GetConsumerStatusBody(message_queue_table={queue: 77})
        return request.response(0, body=body.to_json_bytes())

    client_of(world, answer_221)
    for fields in ({}, {"clientAddr": "c"}, {"clientAddr": ""}):
        answer = world.ask(world.admin_relay(), request_of(223, topic="t", group="g", **fields))
        assert answer.code == 0
        assert GetConsumerStatusBody.from_json_bytes(answer.body).consumer_table == {
            "c": {queue: 77}
        }


def test_where_nobody_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.ask(world.admin_relay(), request_of(223, topic="t", group="g"))
    assert (answer.code, answer.remark) == (
        1,
        "No Any Consumer online in the consumer group: [g]",
    )


def test_a_client_that_does_not_say_where_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    client_of(world, lambda _: None)
    answer = world.ask(world.admin_relay(), request_of(223, topic="t", group="g"))
    assert answer.code == 0
    assert json_of(answer.body) == {"consumerTable": {}, "messageQueueTable": {}}
