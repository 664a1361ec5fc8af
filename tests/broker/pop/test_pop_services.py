"""Waiting, revival, order, looking without taking, assignments: against one real broker of ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.remoting_serializable import loads_lenient
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.pop_client import PopClient

NAME = "broker-a"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    root: Path = tmp_path_factory.mktemp("pop")
    with OurBroker(root, brokerName=NAME, popCkStayBufferTime=100) as broker:
        yield broker.start()


@pytest.fixture
def client(broker: OurBroker, request: pytest.FixtureRequest) -> Iterator[PopClient]:
    """Each test has a topic and a group of its own name."""
    with broker.client(timeout_s=10) as frames:
        yield PopClient(frames, "G" + request.node.name[:40], NAME)


@pytest.fixture
def other(broker: OurBroker, client: PopClient) -> Iterator[PopClient]:
    """The same group on another connection, for what is asked while a request of `client` waits."""
    with broker.client(timeout_s=10) as frames:
        yield PopClient(frames, client.group, NAME)


def send(client: PopClient, topic: str, *bodies: bytes) -> None:
    before = client.frames.offset(30, topic, 0)
    for body in bodies:
        assert client.frames.send(topic, 0, body).code == 0
    wait_until(lambda: client.frames.offset(30, topic, 0) == before + len(bodies))


def polling_num(client: PopClient, topic: str, queue_id: int) -> int:
    fields = {"consumerGroup": client.group, "topic": topic, "queueId": queue_id}
    answer = client.frames.call(200055, fields)
    assert answer.code == 0
    return int(answer.ext_fields["pollingNum"])


def test_what_was_not_acknowledged_comes_again_and_wakes_who_waits(client: PopClient) -> None:
    """A V1 retry topic wakes its group's pops; RocketMQ's do not."""
    send(client, "TRevive", b"a", b"b", b"c")

    def stored() -> int:
        return sum(client.frames.offset(30, REVIVE_TOPIC, queue) for queue in range(8))

    before = stored()
    popped = client.pop("TRevive", invisibleTime=1_500).messages
    since = time.monotonic()
    assert [one.message.body for one in popped] == [b"a", b"b", b"c"]
    # The check point is in the log already, for which the acknowledgement comes too late.
    wait_until(lambda: stored() > before)
    assert client.ack(popped[1]).code == 0
    waiting = client.post_pop("TRevive", pollTime=15_000, invisibleTime=1_500)
    again = client.take_pop(waiting, "TRevive").messages
    took_s = time.monotonic() - since
    wait_until(lambda: client.frames.offset(30, f"%RETRY%{client.group}_TRevive", 0) == 2)
    again += client.pop("TRevive").messages
    assert sorted(one.message.body for one in again) == [b"a", b"c"]
    assert 1.4 < took_s < 5.0, took_s  # 1.5 s, up to 1 s of the timer's precision, 0.1 s
    for one in again:
        assert one.topic == f"%RETRY%{client.group}_TRevive"
        assert one.message.reconsume_times == 1
        assert one.message.find_property("1ST_POP_TIME") == popped[0].handle.split(" ")[1]
        assert client.ack(one).code == 0
    where = {"consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP", "topic": REVIVE_TOPIC}

    def handled() -> int:
        answers = [client.frames.call(14, {**where, "queueId": queue}) for queue in range(8)]
        return sum(answer.code == 0 for answer in answers)

    wait_until(lambda: handled() > 0)
    assert client.pop("TRevive").code == 210


def test_a_waiting_pop_is_answered_by_a_message_or_by_its_time(
    client: PopClient, other: PopClient
) -> None:
    send(client, "TWait", b"old")
    assert client.ack(client.pop("TWait").messages[0]).code == 0
    first = client.post_pop("TWait", pollTime=15_000)
    second = client.post_pop("TWait", pollTime=15_000, queueId=0)
    wait_until(lambda: polling_num(other, "TWait", -1) == 1)
    assert polling_num(other, "TWait", 0) == 1
    assert polling_num(other, "TWait", 1) == 0
    send(other, "TWait", b"new")
    assert [one.message.body for one in client.take_pop(first, "TWait").messages] == [b"new"]
    assert polling_num(other, "TWait", -1) == 0
    send(other, "TWait", b"newer")
    assert [one.message.body for one in client.take_pop(second, "TWait").messages] == [b"newer"]
    since = time.monotonic()
    assert client.pop("TWait", pollTime=400).code == 210
    assert 0.3 < time.monotonic() - since < 2.0


def test_a_batch_wakes_as_many_as_it_feeds(client: PopClient, other: PopClient) -> None:
    send(client, "TFeed", b"old")
    assert client.ack(client.pop("TFeed").messages[0]).code == 0
    waiting = [client.post_pop("TFeed", pollTime=15_000, maxMsgNums=1) for _ in range(5)]
    wait_until(lambda: polling_num(other, "TFeed", -1) == 5)
    for number in range(5):
        assert other.frames.send("TFeed", 0, b"%d" % number).code == 0
    wait_until(lambda: polling_num(other, "TFeed", -1) == 0)
    answers = [client.take_pop(opaque, "TFeed") for opaque in waiting]
    bodies = [one.message.body for answer in answers for one in answer.messages]
    assert sorted(bodies) == [b"%d" % number for number in range(5)]


def test_notifications_and_peeks_take_nothing(client: PopClient, other: PopClient) -> None:
    send(client, "TLook", b"1", b"2")
    where = {"consumerGroup": client.group, "topic": "TLook", "queueId": -1}
    times = {"pollTime": 15_000, "bornTime": 0}
    assert client.frames.call(200054, {**where, **times}).ext_fields == {
        "hasMsg": "true",
        "pollingFull": "false",
    }
    peeked = client.frames.call(200052, {**where, "maxMsgNums": 1})
    assert (peeked.code, peeked.remark) == (0, "FOUND")
    assert int(peeked.ext_fields["restNum"]) == 2
    popped = client.pop("TLook").messages
    assert [one.message.body for one in popped] == [b"1", b"2"]
    nothing = client.frames.call(200052, {**where, "maxMsgNums": 1})
    assert (nothing.code, nothing.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    waiting = client.frames.post(200054, {**where, **times})
    assert other.frames.call(200054, {**where, **times, "pollTime": 0}).ext_fields == {
        "hasMsg": "false",
        "pollingFull": "false",
    }
    send(other, "TLook", b"3")
    assert client.frames.take(waiting).ext_fields["hasMsg"] == "true"


def test_each_notification_tells_of_what_waits_in_the_retry_topic_alone(client: PopClient) -> None:
    """RocketMQ looks there in one of five."""
    send(client, "TRetryOnly", b"1")
    assert client.pop("TRetryOnly", invisibleTime=1_000).messages
    retried = f"%RETRY%{client.group}_TRetryOnly"
    wait_until(lambda: client.frames.offset(30, retried, 0) == 1)
    where = {"consumerGroup": client.group, "topic": "TRetryOnly", "queueId": -1}
    for _ in range(20):
        answer = client.frames.call(200054, {**where, "pollTime": 0, "bornTime": 0})
        assert answer.ext_fields["hasMsg"] == "true"
    assert client.ack(client.pop("TRetryOnly").messages[0]).code == 0


def send_tagged(client: PopClient, topic: str, tag: str) -> None:
    before = client.frames.offset(30, topic, 0)
    # A key's text is free: the tag stands beside it.
    assert client.frames.send(topic, 0, b"x", f"k\x02TAGS\x01{tag}").code == 0
    wait_until(lambda: client.frames.offset(30, topic, 0) == before + 1)


def test_a_notification_is_filtered_as_the_pop_that_follows(
    client: PopClient, other: PopClient
) -> None:
    """As peers of 5.5 ask: expType and exp; those of 5.5.1 say who asks, too."""
    send_tagged(client, "TFilter", "b")
    where = {
        "consumerGroup": client.group, "topic": "TFilter", "queueId": -1, "bornTime": 0,
        "isLiteConsumer": "false", "clientId": "c",
    }  # fmt: skip

    def told(kind: str, expression: str) -> tuple[int, str | None]:
        fields = {**where, "pollTime": 0, "expType": kind, "exp": expression}
        answer = other.frames.call(200054, fields)
        return answer.code, answer.ext_fields.get("hasMsg")

    assert told("TAG", "b") == told("TAG", "*") == told("", "a") == told("SQL92", "TAGS = 'b'")
    assert told("TAG", "a || c") == told("SQL92", "TAGS = 'a'") == (0, "false")
    assert told("TAG", "b") == (0, "true")
    assert told("TAG", "||") == told("SQL92", "a =") == told("sql", "TAGS = 'b'") == (23, None)
    waiting = {**where, "pollTime": 15_000, "expType": "TAG", "exp": "a"}
    opaque = client.frames.post(200054, waiting)
    for _ in range(62):
        send_tagged(other, "TFilter", "b")
    assert told("TAG", "a") == (0, "false")
    # An answer that came too early would be dropped here, and missed below.
    assert client.frames.offset(30, "TFilter", 0) == 63
    send_tagged(other, "TFilter", "a")
    assert client.frames.take(opaque).ext_fields["hasMsg"] == "true"
    assert told("TAG", "nobody") == (0, "true"), "64 are left: the pop has to get past them"


def test_the_filter_of_notifications_is_a_setting(client: PopClient) -> None:
    send_tagged(client, "TUnfiltered", "b")
    fields = {
        "consumerGroup": client.group, "topic": "TUnfiltered", "queueId": 0, "bornTime": 0,
        "pollTime": 0, "expType": "TAG", "exp": "a",
    }  # fmt: skip

    def told(setting: str) -> str:
        client.frames.call(25, {}, setting.encode())
        return client.frames.call(200054, fields).ext_fields["hasMsg"]

    assert told("useMessageFilterForNotification=false") == "true"
    assert told("useMessageFilterForNotification=true") == "false"
    assert told("maxMessageFilterNumForNotification=1") == "true"
    assert told("maxMessageFilterNumForNotification=64") == "false"


@pytest.mark.parametrize("code", [200052, 200054, 200055])
def test_looking_at_what_is_not_there(client: PopClient, code: int) -> None:
    send(client, "TThere", b"x")
    fields = {
        "consumerGroup": client.group, "topic": "TNone", "queueId": 0, "pollTime": 0,
        "bornTime": 0, "maxMsgNums": 1,
    }  # fmt: skip
    unknown = client.frames.call(code, fields)
    assert (unknown.code, unknown.remark) == (17, "topic[TNone] not exist, apply first please!")
    outside = client.frames.call(code, {**fields, "topic": "TThere", "queueId": 4})
    assert outside.code == 29
    assert (outside.remark or "").startswith(
        "queueId[4] is illegal, topic:[TThere] topicConfig.readQueueNums:[4] consumer:["
    )


def test_ordered_pops(client: PopClient, other: PopClient, broker: OurBroker) -> None:
    send(client, "TOrder", *(b"%d" % number for number in range(4)))

    def pop(attempt: str, **others: object) -> int:
        fields = {"order": "true", "attemptId": attempt, "maxMsgNums": 2, "queueId": 0, **others}
        return client.post_pop("TOrder", **fields)

    answer = client.frames.take(pop("a", invisibleTime=1_000))
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"
    assert answer.ext_fields["reviveQid"] == "999"
    assert client.take_pop(pop("b"), "TOrder").code == 210  # closed
    [first, second] = client.take_pop(pop("a", invisibleTime=1_000), "TOrder").messages
    assert client.ack(first).code == 0
    since = time.monotonic()
    answer = client.frames.take(pop("b", pollTime=15_000))  # woken when the queue is free
    assert 0.5 < time.monotonic() - since < 3.0
    assert answer.ext_fields["msgOffsetInfo"] == "0 0 1,2"
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
    late = client.ack(second)
    assert late.code == 0  # of an earlier pop: nothing is committed
    rest = client.take_pop(pop("b"), "TOrder").messages
    waiting = pop("c", pollTime=15_000)
    assert [other.ack(one).code for one in rest] == [0, 0]
    [last] = client.take_pop(waiting, "TOrder").messages  # woken by the last ack
    assert last.message.body == b"3"
    assert client.ack(last).code == 0
    where = {"consumerGroup": client.group, "topic": "TOrder", "queueId": 0}
    assert client.frames.call(14, where).ext_fields["offset"] == "4"
    path = broker.store_dir / "config" / "consumerOrderInfo.json"
    wait_until(lambda: path.exists() and "TOrder" in path.read_text(), timeout_s=15)
    row = loads_lenient(path.read_bytes())["table"][f"TOrder@{client.group}"]["0"]
    assert row.keys() >= {"a", "cm", "i", "l", "o", "popTime"}


def test_an_ordered_pop_of_any_queue_is_woken_by_the_last_ack(
    client: PopClient, other: PopClient
) -> None:
    """As a proxy pops for FIFO consumers: queue -1. Batches of two, acknowledged one by one."""
    send(client, "TAnyOrder", *(b"%d" % number for number in range(6)))
    bodies = []
    fields = {"order": "true", "maxMsgNums": 2, "pollTime": 9_000}
    waiting = client.post_pop("TAnyOrder", attemptId="0", **fields)
    since = time.monotonic()
    for number in range(3):
        batch = client.take_pop(waiting, "TAnyOrder").messages
        bodies += [one.message.body for one in batch]
        waiting = client.post_pop("TAnyOrder", attemptId=f"{number + 1}", **fields)
        wait_until(lambda: polling_num(other, "TAnyOrder", -1) == 1)
        assert [other.ack(one).code for one in batch] == [0, 0]
    assert time.monotonic() - since < 3.0
    assert bodies == [b"%d" % number for number in range(6)]


def test_a_notification_of_an_ordered_group_is_woken_by_the_last_ack(
    client: PopClient, other: PopClient
) -> None:
    send(client, "TNoteOrder", b"0", b"1")
    [first] = client.pop("TNoteOrder", order="true", maxMsgNums=1, attemptId="0").messages
    fields = {
        "consumerGroup": client.group, "topic": "TNoteOrder", "queueId": -1, "pollTime": 9_000,
        "bornTime": 0, "order": "true", "attemptId": "1",
    }  # fmt: skip
    waiting = client.frames.post(200054, fields)
    since = time.monotonic()
    assert other.ack(first).code == 0
    assert client.frames.take(waiting).ext_fields["hasMsg"] == "true"
    assert time.monotonic() - since < 3.0


@pytest.mark.parametrize("is_too_long", [False, True])
def test_long_names_come_back_or_are_refused(client: PopClient, is_too_long: bool) -> None:
    """The retry topic of the longest topic and group has 255 characters, as many as it may have."""
    topic = f"TLong{is_too_long:d}" + "t" * 121
    longest = PopClient(client.frames, "g" * (120 + is_too_long), NAME)
    send(client, topic, b"long")
    if is_too_long:
        refused = longest.pop(topic, invisibleTime=1_000)
        assert (refused.code, refused.messages) == (26, []), "such a group is not made"
        return
    assert len(longest.pop(topic, invisibleTime=1_000).messages) == 1
    [again] = longest.pop(topic, pollTime=8_000).messages
    assert (again.message.body, again.message.reconsume_times) == (b"long", 1)
    assert longest.ack(again).code == 0


def test_assignments_and_modes(client: PopClient, broker: OurBroker) -> None:
    send(client, "TMode", b"x")
    beat = {
        "clientID": "c1",
        "consumerDataSet": [
            {
                "groupName": client.group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": "TMode", "subString": "*"}],
            }
        ],
        "producerDataSet": [],
    }
    assert client.frames.call(34, {}, json.dumps(beat).encode()).code == 0
    ask = {
        "clientId": "c1",
        "consumerGroup": client.group,
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "TMode",
    }

    def assigned(**others: object) -> object:
        body = json.dumps({**ask, **others}).encode()
        answer = client.frames.call(400, {}, body)
        assert answer.code == 0, answer.remark
        return json.loads(answer.body).get("messageQueueAssignments")

    queues = [
        {"messageQueue": {"brokerName": NAME, "queueId": queue, "topic": "TMode"}, "mode": "PULL"}
        for queue in range(4)
    ]
    wait_until(lambda: assigned() == queues)
    assert assigned(strategyName="NONE") is None
    assert assigned(topic="TUnknown") is None
    mode = {
        "consumerGroup": client.group, "mode": "POP", "popShareQueueNum": 0, "topic": "TMode",
    }  # fmt: skip
    assert client.frames.call(401, {}, json.dumps(mode).encode()).code == 0
    assert assigned() == [
        {"messageQueue": {"brokerName": NAME, "queueId": -1, "topic": "TMode"}, "mode": "POP"}
    ]
    table = {"messageRequestModeMap": {"TMode": {client.group: mode}}}
    assert json.loads(client.frames.call(402, {}).body) == table
    saved = broker.store_dir / "config" / "messageRequestMode.json"
    assert json.loads(saved.read_text()) == table
    bad = json.dumps({**mode, "topic": "%RETRY%g"}).encode()
    refused = client.frames.call(401, {}, bad)
    assert (refused.code, refused.remark) == (16, "retry topic is not allowed to set mode")
