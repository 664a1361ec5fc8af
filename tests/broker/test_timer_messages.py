"""Delays of 5.x that name a time: refused on every way into the log, as without a timer wheel.

The rules are those of HookUtils in RocketMQ 5.3.3, the words those of its SendMessageProcessor for
WHEEL_TIMER_NOT_ENABLE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remoting.request_code import RequestCode as Code
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.broker.hot_path_world import HotPathWorld, properties_of, send_request
from tests.broker.send.test_consumer_send_msg_back_processor import SendBacks
from tests.broker.send.test_reply_message_processor import Replies
from tests.broker.send.test_send_message_processor import as_v1, batch_body
from tests.broker.transaction.test_end_transaction_processor import (
    _stored_half,
    end_request,
    refusal,
)
from tests.broker.transaction_world import TransactionWorld

REFUSED = (1, "accurate timer message is not enabled, timerWheelEnable is false")
TIMERS = ["TIMER_DELIVER_MS\x011795395000000", "TIMER_DELAY_MS\x015000", "TIMER_DELAY_SEC\x015"]


@pytest.fixture(params=TIMERS)
def timer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> HotPathWorld:
    """Its topic is known, so that the fast path would take a send."""
    world = HotPathWorld(tmp_path, fast=request.param)
    world.topic()
    world.topic("%RETRY%G", 1)
    assert world.client().call(send_request(b"before")).code == 0
    return world


@pytest.mark.parametrize("rest", ["", "KEYS\x01k\x02", "DELAY\x010\x02", "TRAN_MSG\x01true\x02"])
@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2])
def test_single_sends_and_halves(world: HotPathWorld, timer: str, rest: str, code: Code) -> None:
    request = send_request(properties=rest + timer)
    answer = world.client().call(as_v1(request) if code == Code.SEND_MESSAGE else request)
    assert (answer.code, answer.remark) == REFUSED
    assert [message.body for message in world.records()] == [b"before"]


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE])
def test_batches(world: HotPathWorld, timer: str, code: Code) -> None:
    for item, header in ((timer, ""), ("", timer)):
        body = batch_body((0, b"one", b""), (0, b"two", item.encode()))
        answer = world.client().call(send_request(body, code=code, properties=header, batch="true"))
        assert (answer.code, answer.remark) == REFUSED
    assert [message.body for message in world.records()] == [b"before"]


@pytest.mark.parametrize(
    "text",
    [
        "TIMER_DELAY_MS\x01",
        "KEYS\x01TIMER_DELAY_MS",
        "XTIMER_DELAY_MS\x015",
        "TIMER_DELAY_LEVEL\x013",
    ],
)
def test_no_timers(world: HotPathWorld, text: str) -> None:
    assert world.client().call(send_request(properties=text)).code == 0
    message = world.records()[-1]
    assert message.topic == "T"
    assert text in message.properties.decode()


def test_a_delivered_message_that_is_sent_on(world: HotPathWorld, timer: str) -> None:
    """Its consumer got it with what the wheel added: it does not wait once more."""
    text = f"KEYS\x01k\x02{timer}\x02TIMER_OUT_MS\x015\x02TIMER_ENQUEUE_MS\x016\x02REAL_TOPIC\x01R"
    assert world.client().call(send_request(properties=text)).code == 0
    message = world.records()[-1]
    assert message.topic == "T"
    assert properties_of(message.properties).keys() == {"KEYS", "CLUSTER"}


def test_a_level_goes_before(world: HotPathWorld, timer: str) -> None:
    assert world.client().call(send_request(properties=f"{timer}\x02DELAY\x013")).code == 0
    message = world.records()[-1]
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert properties_of(message.properties).keys() == {
        "DELAY",
        "CLUSTER",
        "REAL_TOPIC",
        "REAL_QID",
    }


def test_retries_and_dead_letters_that_a_client_sends_itself(
    world: HotPathWorld, timer: str
) -> None:
    fields: dict[str, Any] = {"topic": "%RETRY%G", "properties": timer}
    answer = world.client().call(send_request(**fields))
    assert (answer.code, answer.remark) == REFUSED
    assert world.client().call(send_request(reconsume_times=16, **fields)).code == 0
    message = world.records()[-1]
    assert message.topic == "%DLQ%G"
    assert properties_of(message.properties) == {"CLUSTER": "GoldenCluster"}


@pytest.mark.parametrize(("level", "topic"), [(0, "SCHEDULE_TOPIC_XXXX"), (-1, "%DLQ%G")])
def test_a_message_that_comes_back_has_waited(
    tmp_path: Path, timer: str, level: int, topic: str
) -> None:
    backs = SendBacks(tmp_path)
    backs.message(properties=f"KEYS\x01k\x02{timer}".encode())
    answer = backs.call(delayLevel=level)
    assert answer is not None
    assert answer.code == 0
    [message] = backs.world.records()
    assert message.topic == topic
    assert b"TIMER_" not in message.properties


def test_a_half_that_another_broker_took(tmp_path: Path, timer: str) -> None:
    world = TransactionWorld(tmp_path)
    properties = f"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02{timer}"
    half = _stored_half(world, properties.encode())
    assert refusal(world, end_request(half, TRANSACTION_COMMIT)) == REFUSED
    answer = world.end(half, TRANSACTION_ROLLBACK)
    assert answer is not None
    assert answer.code == 0


def test_replies(tmp_path: Path, timer: str) -> None:
    replies = Replies(tmp_path)
    answer = replies.call(properties=f"REPLY_TO_CLIENT\x01asker\x02{timer}")
    assert answer is not None
    assert (answer.code, answer.remark) == REFUSED
    assert (replies.asker.pushed, replies.world.records()) == ([], [])
