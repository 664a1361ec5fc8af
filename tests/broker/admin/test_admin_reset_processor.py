"""broker.admin.admin_reset_processor: where a group goes on (222)."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import ResetOffsetBody
from remoting.language_code import LanguageCode
from remoting.mq_version import V5_0_0
from remoting.response_code import ResponseCode
from tests.broker.admin.golden_world import golden_world
from tests.broker.broker_fakes import assert_same_answer, golden, json_of, request_of
from tests.broker.processor_world import World

T0 = 1_000_000


def queue(queue_id: int, topic: str = "t") -> MessageQueue:
    return MessageQueue(broker_name="broker-g", queue_id=queue_id, topic=topic)


def table_of(body: bytes) -> dict[MessageQueue, int]:
    return ResetOffsetBody.from_json_bytes(body).offset_table


def world_of(tmp_path: Path) -> World:
    """Two queues of ten messages, one a ms until T0; group `g` has consumed 4 and 8 of them."""
    world = World(tmp_path)
    world.topic("t", 2)
    for queue_id in range(2):
        world.store.fill("t", queue_id, 10, T0)
    world.commit("g", "t", 4, 8)
    return world


def test_an_offline_group_of_java(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    request, answer = golden(222)
    assert_same_answer(world.ask(world.admin_reset(), request), answer)


@pytest.mark.parametrize(
    ("timestamp", "force", "offsets"),
    [
        (T0 - 3, "true", {0: 6, 1: 6}),
        (T0 - 3, "false", {0: 4, 1: 6}),
        (-1, "true", {0: 10, 1: 10}),
        (-1, "false", {0: 4, 1: 8}),
        (0, "false", {0: 0, 1: 0}),
    ],
)
def test_the_offsets_of_a_time(
    tmp_path: Path, timestamp: int, force: str, offsets: dict[int, int]
) -> None:
    world = world_of(tmp_path)
    client = world.heartbeat("c", consumer="g", topics=("t",))
    request = request_of(222, topic="t", group="g", timestamp=timestamp, isForce=force)
    answer = world.ask(world.admin_reset(), request)
    expected = {queue(queue_id): offset for queue_id, offset in offsets.items()}
    assert answer.code == 0
    assert table_of(answer.body) == expected
    (sent,) = client.sent
    assert sent.code == 220
    assert sent.ext_fields["timestamp"] == str(timestamp)
    assert table_of(sent.body) == expected
    assert world.offsets.query_offsets("g", "t") == {0: 4, 1: 8}, "the clients commit, not we"


def test_a_group_that_never_consumed(tmp_path: Path) -> None:
    """5.3.3 stores the offsets of the time, 4.9.7 refuses."""
    for member in (False, True):
        world = world_of(tmp_path / str(member))
        world.groups.find_or_create("new")
        client = world.heartbeat("c", consumer="new", topics=("t",)) if member else None
        fields = {"topic": "t", "group": "new", "timestamp": T0 - 3, "isForce": "true"}
        old = request_of(222, **fields)
        old.version = V5_0_0 - 1
        assert world.ask(world.admin_reset(), old).code == ResponseCode.SYSTEM_ERROR
        assert world.offsets.query_offsets("new", "t") == {}
        new = request_of(222, **fields)
        new.version = V5_0_0
        answer = world.ask(world.admin_reset(), new)
        assert table_of(answer.body) == {queue(0): 6, queue(1): 6}
        stored = world.offsets.query_offsets("new", "t")
        if client is None:
            assert stored == {0: 6, 1: 6}
        else:
            assert (stored, client.sent[-1].code) == ({}, 220)


def test_mqadmin_of_5_x_means_the_topic_with_queue_minus_1(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    client = world.heartbeat("c", consumer="g", topics=("t",))
    request = request_of(
        222, topic="t", group="g", timestamp=0, isForce="true", queueId=-1, offset=-1
    )
    answer = world.ask(world.admin_reset(), request)
    assert table_of(answer.body) == {queue(0): 0, queue(1): 0}
    assert sorted(client.sent[0].ext_fields) == ["group", "isForce", "timestamp", "topic"]


def test_an_operator_with_cpp_consumers(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    client = world.heartbeat("c", consumer="g", topics=("t",))
    request = request_of(222, topic="t", group="g", timestamp=-1, isForce="true")
    request.language = LanguageCode.CPP
    answer = world.ask(world.admin_reset(), request)
    assert table_of(answer.body) == {queue(0): 10, queue(1): 10}
    assert json_of(client.sent[0].body)["offsetTable"] == [
        {"brokerName": "broker-g", "offset": 10, "queueId": 0, "topic": "t"},
        {"brokerName": "broker-g", "offset": 10, "queueId": 1, "topic": "t"},
    ]


@pytest.mark.parametrize(
    ("topic", "group", "remark"),
    [
        ("x", "g", "[reset-offset] reset offset failed, no topic in this broker. topic=x"),
        ("t", "never", "THe consumer group <never> not exist"),
        ("t", "half", "THe consumer group <half> not exist"),
    ],
)
def test_what_cannot_be_reset(tmp_path: Path, topic: str, group: str, remark: str) -> None:
    world = world_of(tmp_path)
    world.commit("half", "t", 1)
    client = world.heartbeat("c", consumer=group, topics=(topic,))
    request = request_of(222, topic=topic, group=group, timestamp=0, isForce="true")
    answer = world.ask(world.admin_reset(), request)
    assert (answer.code, answer.remark) == (1, remark)
    assert client.sent == []


# -- one queue, as mqadmin of 5.x ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({"offset": 3, "timestamp": 0}, 3),
        ({"offset": 0, "timestamp": T0}, 0),
        ({"offset": 10, "timestamp": 0}, 10),
        ({"offset": -1, "timestamp": T0 - 3}, 6),
        ({"timestamp": -1}, 10),
    ],
)
@pytest.mark.parametrize("online", [True, False])
def test_one_queue(tmp_path: Path, fields: dict[str, int], offset: int, online: bool) -> None:
    world = world_of(tmp_path)
    world.groups.find_or_create("g")
    client = world.heartbeat("c", consumer="g" if online else "other", topics=("t",))
    request = request_of(222, topic="t", group="g", isForce="false", queueId=1, **fields)
    answer = world.ask(world.admin_reset(), request)
    assert answer.code == 0
    assert table_of(answer.body) == {queue(1): offset}
    assert [table_of(sent.body) for sent in client.sent] == ([{queue(1): offset}] if online else [])
    stored = {0: 4, 1: 8 if online else offset}
    assert world.offsets.query_offsets("g", "t") == stored


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "x"}, 17, "Topic x does not exist"),
        ({"group": "never"}, 26, "Group never does not exist"),
        ({"queueId": 2}, 1, "Queue 2 of topic t does not exist: it has 2 write queues"),
        ({"offset": 11}, 1, "Target offset 11 not in consume queue range [0-10]"),
        ({"offset": -2}, 1, "Target offset -2 not in consume queue range [0-10]"),
    ],
)
def test_one_queue_that_cannot_be_reset(
    tmp_path: Path, fields: dict[str, object], code: int, remark: str
) -> None:
    world = world_of(tmp_path)
    world.groups.find_or_create("g")
    named: dict[str, object] = {"topic": "t", "group": "g", "queueId": 1, "offset": 5, **fields}
    request = request_of(222, timestamp=0, isForce="true", **named)
    answer = world.ask(world.admin_reset(), request)
    assert (answer.code, answer.remark) == (code, remark)
    assert world.offsets.query_offsets("g", "t") == {0: 4, 1: 8}


def test_a_reset_that_is_stored_is_of_queues_that_exist(tmp_path: Path) -> None:
    """With useServerSideResetOffset: an entry for another queue would never be taken (#9309)."""
    world = world_of(tmp_path)
    world.groups.find_or_create("g")
    world.offsets.stores_resets = True
    for queue_id, code in ((2, 1), (1 << 30, 1), (1, 0), (-1, 0)):
        request = request_of(
            222, topic="t", group="g", timestamp=0, isForce="true", queueId=queue_id
        )
        assert world.ask(world.admin_reset(), request).code == code
    assert sorted(world.offsets._resets) == [("g", "t", 0), ("g", "t", 1)]


def test_a_slave_resets_no_queue(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.is_slave = True
    request = request_of(
        222, topic="t", group="g", timestamp=0, isForce="true", queueId=0, offset=1
    )
    answer = world.ask(world.admin_reset(), request)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Can not reset offset in slave broker",
    )
