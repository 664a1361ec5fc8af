"""ReplyMessageProcessor: the answer reaches who asked, and is stored where it is to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.send.reply_message_processor import (
    ReplyMessageProcessor,
    ReplyParts,
)
from broker.settings.broker_config import BrokerConfig
from remoting.errors import RemotingError, RemotingTimeoutError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET, RUNNING_FLAGS
from store.message_codec import encode_host, encode_message_id
from store.message_store_config import MessageStoreConfig
from tests.broker.broker_fakes import FakeConnection
from tests.broker.hot_path_world import HotPathWorld, send_fields
from tests.broker.send.test_send_message_processor import as_v1

TEXT = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply"
REGION = {"TRACE_ON": "true", "MSG_REGION": "R"}
BROKER = BrokerConfig(region_id="R", trace_on=True)


class Asker:
    """One client that is online, and what it answers."""

    def __init__(self) -> None:
        self.connection = FakeConnection("10.0.0.9:4000")
        self.pushed: list[RemotingCommand] = []
        self.answer = RemotingCommand(0, flag=1)
        self.failure: RemotingError | RequestError | None = None

    def find_connection(self, client_id: str) -> ConnectionLike | None:
        return self.connection if client_id == "asker" else None

    def call_client(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        assert connection is self.connection
        self.pushed.append(request)
        if self.failure is not None:
            raise self.failure
        return self.answer


class Replies:
    """A broker with a reply topic; what is handed to the loop runs in its next turn."""

    def __init__(self, root: Path, broker: BrokerConfig = BROKER, **kinds: Any) -> None:
        self.world = HotPathWorld(root, **kinds)
        self.world.topic("C_REPLY_TOPIC", 1)
        self.asker = Asker()
        self.connection = FakeConnection("10.1.2.3:4711")
        self.handed: list[Callable[[], None]] = []
        self.queued_ms = 0
        """How long a request waits for its pool."""
        self.stores = True
        self.processor = ReplyMessageProcessor(
            ReplyParts(
                log=self.world.writable_log,
                rules=self.world.send_processor.rules,
                topics=self.world.topics,
                find_connection=self.asker.find_connection,
                call_client=self.asker.call_client,
                stats=self.world.stats,
                clock=self.world.clock,
                on_loop=self.handed.append,
                new_topics=self.world.new_topics,
                stores_replies=lambda: self.stores,
                store_host="127.0.0.2:20911",
            ),
            broker,
            MessageStoreConfig(max_message_size=1000),
        )

    def call(self, body: bytes = b"answer", **fields: Any) -> RemotingCommand | None:
        given = {"topic": "C_REPLY_TOPIC", "properties": TEXT, **fields}
        request = RemotingCommand.request(Code.SEND_REPLY_MESSAGE_V2, send_fields(**given), body)
        return self.serve(request)

    def serve(self, request: RemotingCommand) -> RemotingCommand | None:
        request.came_ns = self.world.clock.monotonic_ns() - self.queued_ms * 1_000_000
        answer = self.processor.process_request(self.connection, request)
        if answer is None:
            for function in self.handed:
                function()
            self.handed.clear()
            self.world.turn()
            answer = self.connection.sent.pop() if self.connection.sent else None
        return answer


@pytest.fixture
def replies(tmp_path: Path) -> Replies:
    return Replies(tmp_path)


@pytest.mark.parametrize(
    ("sys_flag", "text", "remark"),
    [
        (4, "", "a reply cannot be transactional"),
        (12, "", "a reply cannot be transactional"),
        (4, "TRAN_MSG\x01true", "a reply cannot be transactional"),
        (0, "TRAN_MSG\x01true", "a reply cannot be transactional"),
        (0, "DELAY\x013", "a reply cannot hold delayed messages"),
        (0, "DELAY\x01+99", "a reply cannot hold delayed messages"),
        (0, "DELAY\x01x", "the message is illegal: its property DELAY is 'x', expected a level"),
    ],
)
def test_a_reply_that_could_not_be_consumed_or_would_not_wait(
    replies: Replies, sys_flag: int, text: str, remark: str
) -> None:
    """A prepared message has queue offset 0 and is nowhere in its queue."""
    answer = replies.call(sys_flag=sys_flag, properties=f"{TEXT}\x02{text}")
    assert answer is not None
    assert answer.code == 13
    assert (answer.remark or "").startswith(remark)
    assert (replies.world.records(), replies.asker.pushed) == ([], [])


@pytest.mark.parametrize("text", ["DELAY\x010", "TRAN_MSG\x01false"])
def test_a_reply_that_says_it_is_ordinary(replies: Replies, text: str) -> None:
    answer = replies.call(sys_flag=8, properties=f"{TEXT}\x02{text}")
    assert answer is not None
    assert (answer.code, len(replies.world.records())) == (0, 1)


def test_a_reply_to_light_queues_is_checked_like_a_send(tmp_path: Path) -> None:
    replies = Replies(tmp_path, light_queues=1)
    for names, code in ("%LMQ%a", 0), ("%LMQ%a,%LMQ%b", 1), ("%LMQ%a/b", 13), ("other", 13):
        answer = replies.call(properties=f"{TEXT}\x02INNER_MULTI_DISPATCH\x01{names}")
        assert answer is not None
        assert answer.code == code
    assert len(replies.world.records()) == 1


def test_a_reply_to_a_topic_that_is_being_deleted(replies: Replies) -> None:
    """It is pushed, and not stored: its record would make the queue again."""
    replies.world.send_processor.block_topic("C_REPLY_TOPIC")
    answer = replies.call()
    assert answer is not None
    assert (answer.code, len(replies.asker.pushed), replies.world.records()) == (0, 1, [])


def test_the_answer_is_pushed_and_stored(replies: Replies) -> None:
    answer = replies.call(flag=4, sys_flag=1, reconsume_times=2)
    assert answer is not None
    assert (answer.code, answer.remark) == (0, None)
    message_id = encode_message_id(encode_host("127.0.0.2", 20911), 0)
    assert answer.ext_fields == {**REGION, "msgId": message_id, "queueId": "0", "queueOffset": "0"}
    [push] = replies.asker.pushed
    now_ms = replies.world.clock.now
    assert (push.code, push.body, push.is_oneway) == (326, b"answer", False)
    assert push.ext_fields == {
        "producerGroup": "P",
        "topic": "C_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "1",
        "bornTimestamp": "1700000000123",
        "flag": "4",
        "properties": f"{TEXT}\x02PUSH_REPLY_TIME\x01{now_ms}",
        "reconsumeTimes": "2",
        "unitMode": "false",
        "bornHost": "10.1.2.3:4711",
        "storeHost": "127.0.0.2:20911",
        "storeTimestamp": str(now_ms),
    }
    [message] = replies.world.records()
    assert (message.topic, message.queue_id, message.body) == ("C_REPLY_TOPIC", 0, b"answer")
    assert (message.flag, message.sys_flag, message.reconsume_times) == (4, 1, 2)
    assert message.properties == TEXT.encode(), "unchanged: no CLUSTER here"
    assert message.born_host == encode_host("10.1.2.3", 4711)
    size = replies.world.counters[MAX_PHY_OFFSET]
    assert replies.world.stats.puts == {"C_REPLY_TOPIC": (1, size)}
    assert replies.world.stats.answers == {(325, 0): 1}


def test_the_long_names(replies: Replies) -> None:
    fields = send_fields(topic="C_REPLY_TOPIC", properties=TEXT)
    request = as_v1(RemotingCommand.request(Code.SEND_MESSAGE_V2, fields, b"answer"))
    request.code = Code.SEND_REPLY_MESSAGE
    answer = replies.serve(request)
    assert answer is not None
    assert (answer.code, len(replies.asker.pushed)) == (0, 1)
    assert replies.world.stats.answers == {(324, 0): 1}


def test_an_answer_that_is_not_stored(replies: Replies) -> None:
    replies.stores = False
    answer = replies.call()
    assert answer is not None
    assert (answer.code, replies.world.records()) == (0, [])
    assert answer.ext_fields == {**REGION, "msgId": "0", "queueId": "0", "queueOffset": "0"}


def test_an_inner_batch_is_refused_before_it_is_pushed(replies: Replies) -> None:
    """As every reply that a send with the same properties would be refused for."""
    answer = replies.call(sys_flag=128)
    assert answer is not None
    assert (answer.code, replies.asker.pushed, replies.world.records()) == (13, [], [])


@pytest.mark.parametrize(
    ("properties", "answer", "failure", "words"),
    [
        ("K\x01v", None, None, "reply message properties[REPLY_TO_CLIENT] is null"),
        (
            "REPLY_TO_CLIENT\x01gone",
            None,
            None,
            "push reply message fail, channel of <gone> not found.",
        ),
        (TEXT, (1, "boom"), None, "push reply message to asker fail: 1 boom"),
        (TEXT, (1, None), None, "push reply message to asker fail: 1 "),
        (
            TEXT,
            None,
            RemotingTimeoutError("10.0.0.9:4000", "no response"),
            "push reply message to asker fail: ",
        ),
    ],
)
def test_an_answer_that_does_not_arrive_is_stored(
    replies: Replies,
    properties: str,
    answer: tuple[int, str | None] | None,
    failure: RemotingError | None,
    words: str,
) -> None:
    replies.asker.failure = failure
    if answer is not None:
        replies.asker.answer = RemotingCommand(answer[0], flag=1, remark=answer[1])
    told = replies.call(properties=properties)
    assert told is not None
    assert told.code == 1
    assert (told.remark or "").startswith(words)
    assert told.ext_fields == REGION
    assert [m.body for m in replies.world.records()] == [b"answer"]


def test_a_broker_that_is_busy_says_so(replies: Replies) -> None:
    replies.asker.failure = RequestError(ResponseCode.SYSTEM_BUSY, "too many calls wait")
    told = replies.call()
    assert told is not None
    assert (told.code, told.remark, told.ext_fields) == (2, "too many calls wait", REGION)


@pytest.mark.parametrize(
    ("settings", "fields", "code", "words"),
    [
        ({"start_accept_send_request_time_stamp": 1 << 60}, {}, 1, "broker unable to service"),
        ({}, {"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "forbidden"),
        ({}, {"topic": "a b"}, 1, "illegal characters"),
        ({}, {"topic": "Unknown", "default_topic": "None"}, 17, "not exist"),
        ({}, {"queue_id": 1}, 1, "queueId[1] is illegal, topic C_REPLY_TOPIC has 1 queues"),
        ({}, {"body": bytes(1001)}, 13, "body of 1001 bytes (maxMessageSize 1000)"),
        ({}, {"properties": "K\x01" + "v" * 32_767}, 13, "properties of 32769 bytes"),
    ],
)
def test_refusals(
    tmp_path: Path, settings: dict[str, Any], fields: dict[str, Any], code: int, words: str
) -> None:
    replies = Replies(tmp_path, replace(BROKER, **settings))
    answer = replies.call(**fields)
    assert answer is not None
    assert answer.code == code
    assert words in (answer.remark or "")
    assert answer.ext_fields == REGION
    assert (replies.asker.pushed, replies.world.records()) == ([], [])


def test_any_queue(replies: Replies) -> None:
    replies.world.topic("C_REPLY_TOPIC", 3)
    for _ in range(40):
        replies.call(queue_id=-1)
    assert {m.queue_id for m in replies.world.records()} == {0, 1, 2}


def test_a_store_that_takes_nothing_hinders_no_push(
    replies: Replies, caplog: pytest.LogCaptureFixture
) -> None:
    replies.world.counters[RUNNING_FLAGS] = 16
    answer = replies.call()
    assert answer is not None
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
    assert caplog.messages == [
        "reply of topic C_REPLY_TOPIC not stored: SERVICE_NOT_AVAILABLE the disk is full"
    ]


def test_a_stored_answer_waits_for_the_disk(tmp_path: Path) -> None:
    replies = Replies(tmp_path, waits_for_flush=True)
    replies.queued_ms = 30
    assert replies.call() is None
    replies.world.counters[FLUSHED_OFFSET] = replies.world.counters[MAX_PHY_OFFSET]
    replies.world.clock.advance(20)
    replies.world.turn()
    [answer] = replies.connection.sent
    assert answer.code == 0
    assert replies.world.stats.timed == [(325, 0, 50)]
    replies.queued_ms = 0
    unhurried = replies.call(properties=TEXT + "\x02WAIT\x01false")
    assert unhurried is not None
    assert unhurried.code == 0


def test_oneway_is_not_answered(replies: Replies) -> None:
    fields = send_fields(topic="C_REPLY_TOPIC", properties=TEXT)
    request = RemotingCommand.request(Code.SEND_REPLY_MESSAGE_V2, fields, b"x", oneway=True)
    assert replies.serve(request) is None
    assert len(replies.world.records()) == 1
    assert (replies.world.stats.answers, replies.world.stats.oneways) == ({}, {(325, 0): 1})


def test_ipv6(replies: Replies) -> None:
    replies.connection.remote_address = "[2001:db8::1]:4711"
    replies.call(sys_flag=0x20)
    [message] = replies.world.records()
    assert (message.sys_flag, message.born_host) == (0x10, encode_host("2001:db8::1", 4711))
