"""200050, 200051, 200151 and 200053 against one real broker of ours, up to an orderly stop."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.pop.ack_msg import AckMsg
from broker.pop.pop_check_point import PopCheckPoint
from store.message import Message
from store.message_codec import RecordKind, check_record, decode_record
from tests.broker.hot_path_world import send_fields
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.pop_client import PopClient

NAME = "broker-a"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    root = tmp_path_factory.mktemp("pop")
    with OurBroker(root, brokerName=NAME, enablePropertyFilter="true") as broker:
        yield broker.start()


@pytest.fixture
def client(broker: OurBroker, request: pytest.FixtureRequest) -> Iterator[PopClient]:
    """Each test has a topic and a group of its own name."""
    with broker.client() as frames:
        yield PopClient(frames, "G" + request.node.name, NAME)


def records(store_dir: Path) -> list[Message]:
    """Everything in the commit log."""
    found = []
    for path in sorted((store_dir / "commitlog").iterdir()):
        data, position, base = path.read_bytes(), 0, int(path.name)
        while True:
            check = check_record(data, position, len(data), base + position, check_crc=True)
            if check.kind is not RecordKind.MESSAGE:
                break
            found.append(decode_record(data, position)[0])
            position += check.size
    return found


def send(client: PopClient, topic: str, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        assert client.frames.send(topic, queue_id, b"%d" % number).code == 0
    wait_until(lambda: client.frames.offset(30, topic, queue_id) == count)


def test_pop_and_ack_cost_no_record(client: PopClient, broker: OurBroker) -> None:
    send(client, "TAck", 40)
    first = client.pop("TAck")
    assert (first.code, first.remark, first.rest, len(first.messages)) == (0, "FOUND", 8, 32)
    assert [one.message.body for one in first.messages] == [b"%d" % n for n in range(32)]
    second = client.pop("TAck", queueId=0)
    assert [one.offset for one in second.messages] == list(range(32, 40))
    nothing = client.pop("TAck")
    assert (nothing.code, nothing.remark, nothing.rest) == (210, "NO_MESSAGE_IN_QUEUE", 0)
    for popped in [*second.messages, *first.messages]:
        answer = client.ack(popped)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
    offset = {"consumerGroup": client.group, "topic": "TAck", "queueId": 0}
    assert client.frames.call(14, offset).ext_fields["offset"] == "40"
    assert not [one for one in records(broker.store_dir) if b"TAck@" in one.properties]


def test_filters_leave_holes_and_what_does_not_match_is_passed_over(client: PopClient) -> None:
    for number in range(6):
        body = b"%d" % number
        fields = {
            "a": "g", "b": "TTags", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
            "i": f"TAGS\x01{'AB'[number % 2]}\x02n\x01{number}", "j": 0, "k": "false", "m": "false",
        }  # fmt: skip
        assert client.frames.call(310, fields, body).code == 0
    wait_until(lambda: client.frames.offset(30, "TTags", 0) == 6)
    tagged = client.pop("TTags", exp="A")
    assert [one.offset for one in tagged.messages] == [0, 2, 4]
    assert client.pop("TTags", exp="A").code == 210
    other = PopClient(client.frames, client.group + "sql", NAME)
    chosen: list[int] = []

    def finds() -> bool:
        """One look is 5 ms long at most."""
        chosen.extend(
            one.offset for one in other.pop("TTags", expType="SQL92", exp="n > 3").messages
        )
        return len(chosen) >= 2

    wait_until(finds)
    assert chosen == [4, 5]
    bad = other.pop("TTags", expType="SQL92", exp="n >")
    assert (bad.code, bad.remark) == (23, "parse the consumer's subscription failed")


def test_a_batch_of_acks_and_a_changed_invisible_time(client: PopClient) -> None:
    send(client, "TBatch", 4)
    popped = client.pop("TBatch").messages
    changed = client.change(popped[3], 90_000)
    assert changed.handle.split(" ")[0] == "3"
    start, pop_time, invisible, revive_queue = popped[0].handle.split(" ")[:4]
    entry = {
        "c": client.group, "t": "TBatch", "r": "0", "q": 0, "so": int(start), "pt": int(pop_time),
        "it": int(invisible), "rq": int(revive_queue), "b": base64.b64encode(b"\x07").decode(),
    }  # fmt: skip
    body = json.dumps({"brokerName": NAME, "acks": [entry]}).encode()
    assert client.frames.call(200151, {}, body).code == 0
    where = {"consumerGroup": client.group, "topic": "TBatch", "queueId": 0}
    assert client.frames.call(14, where).ext_fields["offset"] == "0"
    assert client.ack(changed).code == 0
    assert client.frames.call(14, where).ext_fields["offset"] == "4"
    assert client.frames.call(200151, {}, b"").code == 208


def test_a_popped_message_that_is_sent_on_has_its_own_handle(client: PopClient) -> None:
    """Java's clients put the handle into the properties of what they popped, send it on, and
    acknowledge by what they find there."""
    send(client, "TFirst", 1)
    [first] = client.pop("TFirst").messages
    text = f"KEYS\x01k\x02POP_CK\x01{first.handle}\x021ST_POP_TIME\x011\x02"
    fields = send_fields(topic="TForwarded", properties=text)
    assert client.frames.call(310, fields, b"on").code == 0
    wait_until(lambda: client.frames.offset(30, "TForwarded", 0) == 1)
    [second] = client.pop("TForwarded").messages
    assert second.message.find_property("KEYS") == "k"
    assert second.message.find_property("POP_CK") is None
    assert second.message.find_property("1ST_POP_TIME") is None
    assert client.ack(second).code == 0
    where = {"consumerGroup": client.group, "topic": "TForwarded", "queueId": 0}
    assert client.frames.call(14, where).ext_fields["offset"] == "1"


def test_pops_of_retry_topics_have_the_asked_topics_name_and_their_handle(
    client: PopClient,
) -> None:
    send(client, "TRetry", 1)
    retry = f"%RETRY%{client.group}_TRetry"
    assert client.frames.send(retry, 0, b"again").code == 0
    wait_until(lambda: client.frames.offset(30, retry, 0) == 1)
    popped = client.pop("TRetry").messages
    assert {one.topic for one in popped} == {"TRetry", retry}
    [again] = [one for one in popped if one.topic == retry]
    assert again.message.find_property("POP_CK") == again.handle
    assert all(client.ack(one).code == 0 for one in popped)


def send_retried(client: PopClient, topic: str, properties: str) -> str:
    """A message in the group's retry topic, whose name is returned."""
    retry = f"%RETRY%{client.group}_{topic}"
    fields = {
        "a": "g", "b": retry, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0,
        "i": properties, "j": 0, "k": "false", "m": "false",
    }  # fmt: skip
    assert client.frames.call(310, fields, b"again").code == 0
    wait_until(lambda: client.frames.offset(30, retry, 0) == 1)
    return retry


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_retried_message_without_room_for_its_handle(
    client: PopClient, broker: OurBroker, is_waiting: bool
) -> None:
    """It is given under the stored name: clients build its handle from that (5.3.3's do)."""
    topic = f"TFull{is_waiting}"
    client = PopClient(client.frames, f"GFull{is_waiting}", NAME)
    send(client, topic, 1)
    assert client.ack(client.pop(topic).messages[0]).code == 0
    properties = "FILL\x01" + "x" * 32_700
    if is_waiting:
        waiting = client.post_pop(topic, pollTime=15_000)
        with broker.client() as frames:
            retry = send_retried(PopClient(frames, client.group, NAME), topic, properties)
        answer = client.frames.take(waiting)
    else:
        retry = send_retried(client, topic, properties)
        answer = client.frames.take(client.post_pop(topic))
    assert (answer.code, answer.ext_fields["msgOffsetInfo"]) == (0, "1 0 0")
    message = decode_record(memoryview(answer.body), 0)[0]
    assert (message.topic, message.find_property("POP_CK")) == (retry, None)
    times = (answer.ext_fields[name] for name in ("popTime", "invisibleTime", "reviveQid"))
    fields = {
        "consumerGroup": client.group, "topic": retry, "queueId": 0, "offset": 0,
        "extraInfo": f"0 {' '.join(times)} 1 {NAME} 0 0",
    }  # fmt: skip
    assert client.frames.call(200051, fields).code == 0
    assert client.pop(topic).code == 210
    assert "Traceback" not in broker.log("remoting")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"bornTime": 1}, 210, "the broker[127.0.0.1] pop message is timeout too much"),
        ({"maxMsgNums": 33}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"topic": "TNone"}, 17, "topic[TNone] not exist, apply first please!"),
        ({"queueId": 9}, 29, "queueId[9] is illegal, topic:[TBad] topicConfig.readQueueNums:[4]"),
        ({"initMode": "x"}, 1, "PopMessageRequestHeader"),
    ],
)
def test_bad_pops_get_rocketmqs_words(
    client: PopClient, fields: dict[str, object], code: int, remark: str
) -> None:
    if not client.frames.offset(30, "TBad", 0):
        send(client, "TBad", 1)
    answer = client.pop(str(fields.pop("topic", "TBad")), **fields)
    assert (answer.code, remark in answer.remark) == (code, True), answer


@pytest.mark.parametrize(
    ("request_code", "fields", "code"),
    [
        (200051, {"topic": "TNone"}, 17),
        (200051, {"queueId": 4}, 13),
        (200051, {"offset": 2}, 208),
        (200051, {"extraInfo": "1 2"}, 1),
        (200053, {"offset": 1}, 208),
        (200053, {"queueId": -1}, 13),
    ],
)
def test_bad_acks_are_refused(
    client: PopClient, request_code: int, fields: dict[str, object], code: int
) -> None:
    topic = "TBadAck"
    if not client.frames.offset(30, topic, 0):
        send(client, topic, 1)
    handle = f"0 1795390817144 60000 0 0 {NAME} 0 0"
    good = {
        "consumerGroup": client.group, "topic": topic, "queueId": 0, "extraInfo": handle,
        "offset": 0, "invisibleTime": 1,
    }  # fmt: skip
    assert client.frames.call(request_code, {**good, **fields}).code == code


def test_forged_handles_on_the_wire_change_nothing(client: PopClient, broker: OurBroker) -> None:
    """Each of these hung the broker, made a queue that nobody reads, or froze every offset."""
    send(client, "TForged", 3)
    popped = client.pop("TForged").messages
    good = popped[0].handle.split(" ")

    def forged(place: int, value: object) -> dict[str, object]:
        parts = [*good[:place], str(value), *good[place + 1 :]]
        return {**client.ack_fields(popped[0]), "extraInfo": " ".join(parts)}

    for code, more in ((200051, {}), (200053, {"invisibleTime": 1_000})):
        for place, value in ((1, (1 << 63) - 1), (1, 1 << 62), (2, -1), (3, 8), (3, 123_456)):
            answer = client.frames.call(code, {**forged(place, value), **more})
            assert (answer.code, "handed out none like it" in (answer.remark or "")) == (13, True)
    entry = {
        "c": client.group, "t": "TForged", "r": "0", "q": 0, "so": int(good[0]), "rq": 0,
        "pt": int(good[1]), "it": int(good[2]), "b": base64.b64encode(b"\xff" * 65_536).decode(),
    }  # fmt: skip
    many = {"brokerName": NAME, "acks": [{**entry, "b": "AQ=="}] * 5_000}
    for body in (json.dumps({"brokerName": NAME, "acks": [entry]}), json.dumps(many)):
        since = time.monotonic()
        answer = client.frames.call(200151, {}, body.encode())
        assert (answer.code, "limit" in (answer.remark or "")) == (1, True)
        assert time.monotonic() - since < 1.0
    queues = broker.store_dir / "consumequeue" / "rmq_sys_REVIVE_LOG_DefaultCluster"
    assert all(int(path.name) < 8 for path in queues.glob("*"))
    assert [client.ack(one).code for one in popped] == [0, 0, 0]
    where = {"consumerGroup": client.group, "topic": "TForged", "queueId": 0}
    assert client.frames.call(14, where).ext_fields["offset"] == "3"


def test_invisible_times_have_limits(client: PopClient) -> None:
    """Of a pop, an ordered one, too, and of a new one; what docs/pop.md says."""
    send(client, "TTimes", 1)
    most_ms = 3 * 86_400_000
    for order in ("false", "true"):
        for wrong in (-1, most_ms + 1, (1 << 63) - 1):
            refused = client.pop("TTimes", invisibleTime=wrong, order=order)
            assert (refused.code, "0 to 259200000 (timerMaxDelaySec)" in refused.remark) == (
                29, True,
            )  # fmt: skip
    [popped] = client.pop("TTimes", invisibleTime=most_ms).messages
    for wrong in (-1, most_ms + 1):
        fields = {**client.ack_fields(popped), "invisibleTime": wrong}
        assert client.frames.call(200053, fields).code == 1
    assert client.ack(client.change(popped, most_ms)).code == 0


def test_a_new_group_begins_at_the_first_or_the_last_message(client: PopClient) -> None:
    send(client, "TInit", 3)
    answer = client.pop("TInit", initMode=1, queueId=0)
    assert [one.offset for one in answer.messages] == [0, 1, 2], "still in memory"


def test_zz_an_orderly_stop_stores_the_rest_and_a_start_finds_nothing_twice(
    client: PopClient, broker: OurBroker
) -> None:
    send(client, "TStop", 5)
    popped = client.pop("TStop").messages
    assert client.ack(popped[1]).code == 0
    broker.terminate()
    assert not (broker.store_dir / "popjournal").exists()
    stored = [one for one in records(broker.store_dir) if b"TStop@" in one.properties]
    [point] = [PopCheckPoint.from_json_bytes(one.body) for one in stored]
    assert (point.num, point.queue_offset_diff, point.topic) == (4, [0, 2, 3, 4], "TStop")
    [record] = stored
    assert record.topic == "rmq_sys_wheel_timer"
    assert record.find_property("TIMER_DELIVER_MS") == str(point.deliver_ms)
    assert record.find_property("REAL_TOPIC") == "rmq_sys_REVIVE_LOG_DefaultCluster"
    assert record.find_property("TAGS") == "ck"
    assert record.find_property("UNIQ_KEY") == point.unique_key
    broker.start()
    with broker.client() as frames:
        again = PopClient(frames, client.group, NAME)
        assert again.pop("TStop").code == 210
        assert again.ack(popped[0]).code == 0
        acks = [one for one in records(broker.store_dir) if one.body.startswith(b'{"ao"')]
        [ack] = [AckMsg.from_json_bytes(one.body) for one in acks]
        assert (ack.ack_offset, ack.key) == (0, point.key)
