"""broker.admin.admin_queue_processor: the ends of one queue, and what lies in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.filter.consumer_filter_manager import ConsumerFilterManager
from remoting.body.heartbeat import SubscriptionData
from remoting.remoting_command import RemotingCommand
from tests.broker.admin.golden_world import golden_world
from tests.broker.broker_fakes import (
    StoredMessage,
    assert_same_answer,
    golden,
    json_of,
    request_of,
)
from tests.broker.processor_world import World


@pytest.mark.parametrize(("code", "number"), [(29, 1), (29, 2), (30, 1), (31, 1)])
def test_queue_offsets_of_java(tmp_path: Path, code: int, number: int) -> None:
    world = golden_world(tmp_path)
    request, answer = golden(code, number)
    assert_same_answer(world.ask(world.admin_queue(), request), answer)


def test_offsets_of_an_unknown_queue(tmp_path: Path) -> None:
    world = World(tmp_path)
    for code, field in ((29, "offset"), (30, "offset"), (31, "offset")):
        answer = world.ask(world.admin_queue(), request_of(code, topic="x", queueId=7, timestamp=5))
        assert (answer.code, answer.ext_fields) == (0, {field: "0"})
    answer = world.ask(world.admin_queue(), request_of(32, topic="x", queueId=7))
    assert answer.ext_fields == {"timestamp": "-1"}


def test_earliest_store_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 0, StoredMessage(1, 70), StoredMessage(2, 80), base=5)
    answer = world.ask(world.admin_queue(), request_of(32, topic="t", queueId=0))
    assert answer.ext_fields == {"timestamp": "70"}
    answer = world.ask(world.admin_queue(), request_of(29, topic="t", queueId=0, timestamp=75))
    assert answer.ext_fields == {"offset": "6"}
    for boundary, at_ms, offset in (("UPPER", 75, 5), ("LOWER", 75, 6), ("LOWER", 99, 7)):
        fields = {"topic": "t", "queueId": 0, "timestamp": at_ms, "boundaryType": boundary}
        answer = world.ask(world.admin_queue(), request_of(29, **fields))
        assert answer.ext_fields == {"offset": str(offset)}


def test_consume_queue_entries(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 3, *(StoredMessage(n * 100, 1, 100, n) for n in range(5)), base=10)
    world.heartbeat("c", consumer="g", topics=("t",))

    def ask(**fields: object) -> RemotingCommand:
        asked = {"topic": "t", "queueId": 3, "index": 12, "count": 2} | fields
        return world.ask(world.admin_queue(), request_of(321, **asked))

    body = json_of(ask(consumerGroup="g").body)
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (10, 15)
    assert body["queueData"] == [
        {"eval": False, "physicOffset": 200, "physicSize": 100, "tagsCode": 2},
        {"eval": False, "physicOffset": 300, "physicSize": 100, "tagsCode": 3},
    ]
    assert body["subscriptionData"]["topic"] == "t"
    assert body["filterData"] == "null"
    assert json_of(ask(consumerGroup="x").body)["filterData"] == "x@t is not online!"
    assert len(json_of(ask(count=99).body)["queueData"]) == 3
    for index in (-1, 9, 15):
        answer = ask(index=index)
        assert (answer.code, answer.body) == (1, b"")
        assert answer.remark == f"Index {index} of 3@t is not exist! It has [10, 15)"
    for count in (0, -1):
        body = json_of(ask(count=count).body)
        assert (body["queueData"], body["minQueueIndex"], body["maxQueueIndex"]) == ([], 10, 15)
    answer = ask(queueId=9)
    assert (answer.code, answer.remark) == (1, "9@t is not exist!")


def test_entries_of_a_queue_without_any(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 3, base=10)
    for queue_id in (3, 4):
        for index in (-1, 0, 9, 10, 11):
            request = request_of(321, topic="t", queueId=queue_id, index=index, count=2)
            answer = world.ask(world.admin_queue(), request)
            assert (answer.code, answer.body) == (1, b"")
            assert "is not exist!" in (answer.remark or "")


def test_consume_queue_entries_show_the_groups_filter(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 0, StoredMessage(0, 1, 100, 7))
    world.heartbeat("c", consumer="g", topics=("t",))
    filters = ConsumerFilterManager(tmp_path / "consumerFilter.json", world.config, world.clock)
    subscription = SubscriptionData(
        topic="t", sub_string="a > 1", expression_type="SQL92", sub_version=5
    )
    filters.register("g", [subscription])
    asked = request_of(321, topic="t", queueId=0, index=0, count=1, consumerGroup="g")
    answer = world.ask(world.admin_queue(filters), asked)
    found = filters.find("t", "g")
    assert found is not None
    assert json_of(answer.body)["filterData"] == found.row().to_pretty_json_bytes().decode()
    assert '\t"expression":"a > 1",\n' in json_of(answer.body)["filterData"]
