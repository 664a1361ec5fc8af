"""What the processors hold back until the name servers know a topic that they made."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from remoting.body.heartbeat import HeartbeatData
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from tests.broker.client.test_consumer_manager import data_of
from tests.broker.hot_path_world import Client, HotPathWorld, send_request
from tests.broker.processor_world import World
from tests.broker.send.test_consumer_send_msg_back_processor import SendBacks
from tests.broker.send.test_reply_message_processor import Replies
from tests.broker.send.test_send_message_processor import as_v1, batch_body
from tests.support.deadline import wait_until


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    world = HotPathWorld(tmp_path)
    world.topic()
    world.topics.add_listener(world.new_topics.on_topic_change)
    return world


@pytest.fixture
def client(world: HotPathWorld) -> Client:
    return world.client()


def finish_round(world: HotPathWorld) -> None:
    world.rounds.pop(0)()
    world.turn()


def test_sends_to_a_new_topic_wait_and_others_do_not(world: HotPathWorld, client: Client) -> None:
    batch = send_request(batch_body((0, b"batch", b"")), topic="New", batch="true")
    first = [send_request(b"310", topic="New"), as_v1(send_request(b"10", topic="New")), batch]
    client.send(*first)
    world.turn()
    old = send_request(b"old")
    late = send_request(b"late", topic="New")
    client.send(late, old)
    world.turn()
    assert [answer.opaque for answer in client.answers()] == [old.opaque]
    finish_round(world)
    assert (world.registered, world.rounds) == ([{"New"}], [])
    answers = client.answers()
    assert [answer.opaque for answer in answers] == [r.opaque for r in (*first, late)]
    assert {answer.code for answer in answers} == {0}
    bodies = [message.body for message in world.records()]
    assert bodies == [b"old", b"310", b"10", b"batch", b"late"]
    assert client.call(send_request(topic="New")).code == 0
    assert world.rounds == []


def test_they_are_counted_with_their_wait(world: HotPathWorld, client: Client) -> None:
    client.send(send_request(topic="New"), send_request(topic="New", oneway=True))
    world.turn()
    world.clock.advance(40)
    finish_round(world)
    [answer] = client.answers()
    assert answer.code == 0
    assert world.stats.timed == [(310, 0, 40), (310, 0, 40)]
    assert [message.topic for message in world.records()] == ["New", "New"]


def test_what_is_refused_does_not_wait(world: HotPathWorld, client: Client) -> None:
    client.send(send_request(topic="New", queue_id=7), send_request(topic="New"))
    world.turn()
    [answer] = client.answers()
    assert (answer.code, (answer.remark or "")[:19]) == (1, "request queueId[7] ")
    finish_round(world)
    assert [answer.code for answer in client.answers()] == [0]


def test_a_topic_that_is_deleted_while_a_send_waits(world: HotPathWorld, client: Client) -> None:
    client.send(send_request(topic="New"), send_request(topic="New", oneway=True))
    world.turn()
    world.send_processor.block_topic("New")
    world.clock.advance(40)
    finish_round(world)
    [answer] = client.answers()
    assert (answer.code, answer.remark) == (17, "topic[New] is being deleted")
    assert world.stats.timed == [(310, 17, 40), (310, 17, 40)]


def test_too_many_are_refused(world: HotPathWorld, client: Client) -> None:
    requests = [send_request(topic="New") for _ in range(5)]
    client.send(*requests)
    world.turn()
    [answer] = client.answers()
    assert (answer.opaque, answer.code) == (requests[4].opaque, 2)
    assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
    finish_round(world)
    assert len(client.answers()) == 4


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        ({"topic": "%RETRY%G", "reconsume_times": 16}, "%DLQ%G"),
        ({"properties": "TRAN_MSG\x01true"}, "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_topics_of_the_broker_that_a_send_needs(
    tmp_path: Path, fields: dict[str, Any], topic: str
) -> None:
    world = HotPathWorld(tmp_path)
    world.topic()
    world.topic("%RETRY%G", 1)
    world.topics.add_listener(world.new_topics.on_topic_change)
    client = world.client()
    client.send(send_request(**fields))
    world.turn()
    assert (client.answers(), world.records()) == ([], [])
    finish_round(world)
    assert world.registered == [{topic}]
    [answer] = client.answers()
    assert answer.code == 0
    assert [message.topic for message in world.records()] == [topic]


@pytest.mark.parametrize(("level", "topics"), [(0, {"%RETRY%G"}), (-1, {"%RETRY%G", "%DLQ%G"})])
def test_a_message_that_comes_back_waits(tmp_path: Path, level: int, topics: set[str]) -> None:
    backs = SendBacks(tmp_path)
    backs.world.topics.add_listener(backs.world.new_topics.on_topic_change)
    assert backs.call(delayLevel=level) is None
    assert backs.world.records() == []
    finish_round(backs.world)
    assert backs.world.registered == [topics]
    assert [answer.code for answer in backs.connection.sent] == [0]
    assert len(backs.world.records()) == 1


def test_a_heartbeat_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.add_listener(world.new_topics.on_topic_change)
    body = HeartbeatData(client_id="c", consumer_data_set=[data_of("g", "T")]).to_json_bytes()
    processor = world.client_manage()
    answers: list[RemotingCommand | None] = []

    def beat() -> None:
        request = RemotingCommand.request(Code.HEART_BEAT, {}, body)
        answers.append(processor.process_request(world.connection, request))

    thread = threading.Thread(target=beat)
    thread.start()
    wait_until(lambda: world.new_topics._held)
    assert answers == []
    world.rounds.pop()()
    thread.join(10)
    assert world.registered == [{"%RETRY%g"}]
    [answer] = answers
    assert answer is not None
    assert answer.code == 0


def test_a_reply_waits(tmp_path: Path) -> None:
    replies = Replies(tmp_path)
    replies.world.topics.add_listener(replies.world.new_topics.on_topic_change)
    answers: list[RemotingCommand | None] = []
    thread = threading.Thread(target=lambda: answers.append(replies.call(topic="New")))
    thread.start()
    wait_until(lambda: replies.world.new_topics._held)
    assert (answers, replies.asker.pushed) == ([], [])
    replies.world.rounds.pop()()
    thread.join(10)
    assert replies.world.registered == [{"New"}]
    assert len(answers) == 1


def test_a_back_that_finds_too_many_waiting(tmp_path: Path) -> None:
    backs = SendBacks(tmp_path)
    backs.world.topics.add_listener(backs.world.new_topics.on_topic_change)
    for _ in range(4):
        assert backs.call() is None
    with pytest.raises(RequestError, match="OVERLOAD"):
        backs.call()
