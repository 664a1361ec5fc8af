"""Priority messages against a whole broker: the frames of a 5.5.0 proxy, and what Java answers.

tests/golden/priority-5.5.0 is what went between a 5.5.0 proxy, mqadmin and broker: a topic, groups,
seven sends and the pops of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from remoting.remoting_command import RemotingCommand
from store.message import Message
from store.message_codec import decode_record
from tests.remoting.golden_frames import GOLDEN
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient, PoppedMessage

NAME, TOPIC, GROUP = "broker-a", "TPrio", "GPrio"
_PRIORITY = "_SYS_MSG_PRIORITY_"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    root = tmp_path_factory.mktemp("priorities")
    with OurBroker(root, brokerName=NAME, useSeparateRetryQueue="true") as broker:
        yield broker.start()


@pytest.fixture
def frames(broker: OurBroker) -> Iterator[FrameClient]:
    with broker.client() as frames:
        yield frames


def asked(name: str) -> bytes:
    return (GOLDEN / "priority-5.5.0" / f"{name}.req.bin").read_bytes()


def answered(name: str) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed((GOLDEN / "priority-5.5.0" / f"{name}.resp.bin").read_bytes())
    command = decoder.next_command()
    assert command is not None
    return command


def messages(command: RemotingCommand) -> list[Message]:
    found, at = [], 0
    body = bytes(command.body)
    while at < len(body):
        message, size = decode_record(body, at)
        found.append(message)
        at += size
    return found


def shown(message: Message) -> tuple[object, ...]:
    names = ("KEYS", "UNIQ_KEY", "TAGS", _PRIORITY)
    own = [message.find_property(name) for name in names]
    return message.topic, message.queue_id, message.queue_offset, bytes(message.body), *own


def test_a_proxy_of_5_5_gets_what_java_answers(frames: FrameClient) -> None:
    for name in ("17/01", "200/01", "200/03", "200/04"):
        assert frames.call_frame(asked(name)).code == answered(name).code
    for name in ("351/01", "352/01"):
        ours, theirs = json.loads(frames.call_frame(asked(name)).body), answered(name)
        expected = json.loads(theirs.body)
        assert {key: ours[key] for key in expected} == expected
    for number in range(1, 8):
        ours, theirs = frames.call_frame(asked(f"310/0{number}")), answered(f"310/0{number}")
        assert (ours.code, ours.ext_fields.keys()) == (theirs.code, theirs.ext_fields.keys())
        for field in ("queueId", "queueOffset", "transactionId"):
            assert ours.ext_fields[field] == theirs.ext_fields[field]
    wait_until(lambda: [frames.offset(30, TOPIC, queue) for queue in range(4)] == [2, 1, 1, 3])
    for number in range(1, 4):
        name = f"200050/0{number}"
        ours, theirs = frames.call_frame(asked(name)), answered(name)
        assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
        for field in ("startOffsetInfo", "msgOffsetInfo", "restNum", "invisibleTime"):
            assert ours.ext_fields[field] == theirs.ext_fields[field]
        assert list(map(shown, messages(ours))) == list(map(shown, messages(theirs)))


def test_attributes_of_groups_are_kept(frames: FrameClient, broker: OurBroker) -> None:
    changes = {"+priority.factor": "70", "+lite.bind.topic": "TLite", "+lite.sub.wildcard": "x"}
    body = {"groupName": "GKept", "attributes": changes}
    assert frames.call(200, {}, json.dumps(body).encode()).code == 0
    refused = frames.call(200, {}, b'{"groupName":"GKept","attributes":{"+priority.factor":"101"}}')
    assert (refused.code, refused.remark) == (1, "value is not in range(0, 100)")
    kept = {name[1:]: value for name, value in changes.items()}
    assert json.loads(frames.call(352, {"group": "GKept"}).body)["attributes"] == kept
    whole = json.loads(frames.call(201, {}).body)["subscriptionGroupTable"]
    assert whole["GKept"]["attributes"] == kept
    stored = json.loads((broker.store_dir / "config" / "subscriptionGroup.json").read_text())
    assert stored["subscriptionGroupTable"]["GKept"]["attributes"] == kept


def priorities(popped: list[PoppedMessage]) -> list[str | None]:
    return [each.message.find_property(_PRIORITY) for each in popped]


def test_a_retried_message_keeps_its_rank(frames: FrameClient) -> None:
    """useSeparateRetryQueue: the retry topic has as many queues as the topic."""
    fields = {
        "topic": "TRank", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "attributes": "+message.type=PRIORITY",
    }  # fmt: skip
    assert frames.call(17, fields).code == 0
    client = PopClient(frames, "GRank", NAME)
    for priority in (0, 3, 1, 2):
        header = {
            "a": "P", "b": "TRank", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0,
            "i": f"{_PRIORITY}\x01{priority}", "j": 0, "k": "false", "m": "false",
        }  # fmt: skip
        assert frames.call(310, header, b"x").ext_fields["queueId"] == str(priority)
    wait_until(lambda: all(frames.offset(30, "TRank", queue) == 1 for queue in range(4)))
    first = client.pop("TRank", invisibleTime=1_000)
    assert priorities(first.messages) == ["3", "2", "1", "0"]
    retry = "%RETRY%GRank_TRank"
    wait_until(lambda: all(frames.offset(30, retry, queue) == 1 for queue in range(4)))
    again = client.pop("TRank")
    assert priorities(again.messages) == ["3", "2", "1", "0"]
    assert [each.message.reconsume_times for each in again.messages] == [1] * 4
    assert {each.message.find_property("ORIGIN_GROUP") for each in again.messages} == {"GRank"}
    config = json.loads(frames.call(351, {"topic": retry, "lo": "true"}).body)
    assert (config["readQueueNums"], config["writeQueueNums"]) == (4, 4)
