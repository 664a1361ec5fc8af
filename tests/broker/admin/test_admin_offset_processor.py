"""broker.admin.admin_offset_processor: offsets of queues and groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.admin.admin_offset_processor import MAX_OFFSET, java_time_text
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from remoting.body.heartbeat import SubscriptionData
from remoting.body.reset_offset import QueryCorrectionOffsetBody
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import (
    StoredMessage,
    assert_same_answer,
    golden,
    json_of,
    request_of,
)
from tests.broker.processor_world import World

NEWEST = {0: 1795177732730, 1: 1795177733668, 2: 1795177737677, 3: 1795177742683}


def golden_world(tmp_path: Path) -> World:
    """GTopic and GTxTopic as they stood when Java was asked."""
    world = World(tmp_path)
    world.topic("GTopic", 4)
    world.topic("GTxTopic", 4)
    world.topic("%RETRY%G_group", 1)
    world.topic("%RETRY%G_orderly_group", 1)
    for queue_id, count in ((0, 6), (1, 4), (2, 14), (3, 6)):
        world.store.fill("GTopic", queue_id, count, NEWEST[queue_id])
    world.store.fill("GTxTopic", 0, 1, 1795177734281)
    world.store.fill("GTxTopic", 2, 1, 1795177737740)
    for group in ("G_group", "G_orderly_group"):
        world.commit(group, "GTopic", 6, 4, 14, 6)
        world.commit(group, f"%RETRY%{group}", 0)
    world.commit("G_group", "GTxTopic", 1, 0, 1, 0)
    return world


@pytest.mark.parametrize(("code", "number"), [(29, 1), (29, 2), (30, 1), (31, 1)])
def test_queue_offsets_of_java(tmp_path: Path, code: int, number: int) -> None:
    world = golden_world(tmp_path)
    request, answer = golden(code, number)
    assert_same_answer(world.ask(world.admin_offset(), request), answer)


def test_consume_stats_of_java(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    request, answer = golden(208)
    assert_same_answer(world.ask(world.admin_offset(), request), answer)


def test_offsets_of_an_unknown_queue(tmp_path: Path) -> None:
    world = World(tmp_path)
    for code, field in ((29, "offset"), (30, "offset"), (31, "offset")):
        answer = world.ask(
            world.admin_offset(), request_of(code, topic="x", queueId=7, timestamp=5)
        )
        assert (answer.code, answer.ext_fields) == (0, {field: "0"})
    answer = world.ask(world.admin_offset(), request_of(32, topic="x", queueId=7))
    assert answer.ext_fields == {"timestamp": "-1"}


def test_earliest_store_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 0, StoredMessage(1, 70), StoredMessage(2, 80), base=5)
    answer = world.ask(world.admin_offset(), request_of(32, topic="t", queueId=0))
    assert answer.ext_fields == {"timestamp": "70"}
    answer = world.ask(world.admin_offset(), request_of(29, topic="t", queueId=0, timestamp=75))
    assert answer.ext_fields == {"offset": "6"}
    for boundary, at_ms, offset in (("UPPER", 75, 5), ("LOWER", 75, 6), ("LOWER", 99, 7)):
        fields = {"topic": "t", "queueId": 0, "timestamp": at_ms, "boundaryType": boundary}
        answer = world.ask(world.admin_offset(), request_of(29, **fields))
        assert answer.ext_fields == {"offset": str(offset)}


@pytest.mark.parametrize("code", [43, 45])
def test_tables_of_java(tmp_path: Path, code: int) -> None:
    world = World(tmp_path)
    request, answer = golden(code)
    assert_same_answer(world.ask(world.admin_offset(), request), answer)


@pytest.mark.parametrize("code", [43, 45])
def test_offsets_that_rest_on_another_log_are_nobodys_to_copy(tmp_path: Path, code: int) -> None:
    world = World(tmp_path)
    said: list[str | None] = ["the log was cut at 5"]
    processor = world.admin_offset(find_objection=lambda: said[0])
    answer = world.ask(processor, request_of(code))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "are not to be used: the log was cut at 5" in answer.remark
    said[0] = None
    assert world.ask(processor, request_of(code)).code == ResponseCode.SUCCESS


def test_consume_stats_of_one_topic(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    counters = world.stats.get_counters("GTopic", "G_group")
    counters.nums.add(600, 1)
    world.stats.sample_minute()
    answer = world.ask(
        world.admin_offset(), request_of(208, consumerGroup="G_group", topic="GTopic")
    )
    body = json_of(answer.body)
    assert len(body["offsetTable"]) == 4
    assert body["consumeTps"] == 60.0


def test_topics_that_do_not_count(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    world.commit("G_group", "gone-topic", 1)
    world.heartbeat("c", consumer="G_group", topics=("GTxTopic",))
    answer = world.ask(world.admin_offset(), request_of(208, consumerGroup="G_group", topic=" "))
    topics = {json_of(key.encode())["topic"] for key in json_of(answer.body)["offsetTable"]}
    assert topics == {"GTxTopic"}, "a live group counts only what it subscribes"


def test_stats_of_the_whole_broker(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("plain", 1)
    world.topic("ordered", 1)
    world.topics.update_order_topics({"ordered"})
    world.groups.find_or_create("g")
    world.store.fill("plain", 0, 5, 100)
    world.store.fill("ordered", 0, 7, 100)
    world.commit("g", "plain", 2)
    world.commit("g", "ordered", 3)
    answer = world.ask(world.admin_offset(), request_of(317, isOrder="false"))
    body = json_of(answer.body)
    assert (body["brokerAddr"], body["totalDiff"]) == ("127.0.0.2:20911", 7)
    groups = {name: stats for row in body["consumeStatsList"] for name, stats in row.items()}
    assert len(groups["g"]) == 2
    assert groups["TOOLS_CONSUMER"] == []
    answer = world.ask(world.admin_offset(), request_of(317, isOrder="true"))
    assert json_of(answer.body)["totalDiff"] == 4


def test_time_span(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 2)
    world.store.put("t", 0, *(StoredMessage(n, 1_000 + n) for n in range(10)))
    world.commit("g", "t", 4)
    world.clock.now = 2_000
    answer = world.ask(world.admin_offset(), request_of(303, topic="t", group="g"))
    first, second = json_of(answer.body)["consumeTimeSpanSet"]
    assert first["messageQueue"] == {"brokerName": "broker-g", "queueId": 0, "topic": "t"}
    assert (first["minTimeStamp"], first["maxTimeStamp"]) == (1_000, 1_009)
    assert (first["consumeTimeStamp"], first["delayTime"]) == (1_003, 2_000 - 1_004)
    assert (second["minTimeStamp"], second["maxTimeStamp"], second["consumeTimeStamp"]) == (
        -1,
        -1,
        -1,
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:003", first["consumeTimeStampStr"])
    answer = world.ask(world.admin_offset(), request_of(303, topic="x", group="g"))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[x] not exist")


def test_time_text_before_1970() -> None:
    assert java_time_text(-1).endswith(":59:999")


def test_consume_queue_entries(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 3, *(StoredMessage(n * 100, 1, 100, n) for n in range(5)), base=10)
    world.heartbeat("c", consumer="g", topics=("t",))

    def ask(**fields: object) -> RemotingCommand:
        asked = {"topic": "t", "queueId": 3, "index": 12, "count": 2} | fields
        return world.ask(world.admin_offset(), request_of(321, **asked))

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
    answer = world.ask(world.admin_offset(filters), asked)
    found = filters.find("t", "g")
    assert found is not None
    assert json_of(answer.body)["filterData"] == found.row().to_pretty_json_bytes().decode()
    assert '\t"expression":"a > 1",\n' in json_of(answer.body)["filterData"]


def test_a_slave_of_5_x_gets_an_edition(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit("g", "t", 5, 6)
    request = RemotingCommand.request(43)
    request.version = 475
    assert world.ask(world.admin_offset(), request).body == (
        b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":0},'
        b'"offsetTable":{"t@g":{0:5,1:6}}}'
    )


def test_nothing_is_in_flight_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    request = request_of(208, consumerGroup="G_group", topic="GTopic")
    request.version = 475
    rows = json_of(world.ask(world.admin_offset(), request).body)["offsetTable"].values()
    assert all(row["pullOffset"] == row["consumerOffset"] for row in rows)


def test_topics_of_a_group_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit("g", "t1", 1)
    world.commit("g", "t2", 1)
    world.commit("other", "t3", 1)
    body = json_of(world.ask(world.admin_offset(), request_of(343, group="g")).body)
    assert body["brokerAddr"] == "127.0.0.2:20911"
    assert sorted(body["topicList"]) == ["t1", "t2"]


def corrections(world: World, **fields: str) -> dict[int, int]:
    request = request_of(308, topic="t", compareGroup="g", **fields)
    answer = world.ask(world.admin_offset(), request)
    assert answer.code == 0
    return QueryCorrectionOffsetBody.from_json_bytes(answer.body).correction_offsets


def test_correction_offsets(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 1, base=5)
    world.commit("g", "t", 7, 4, 9)
    world.commit("slow", "t", 3, 6)
    world.commit("slowest", "t", 1, 5)
    world.commit("slowest", "other", 0, 0)
    assert corrections(world) == {0: 1, 1: MAX_OFFSET, 2: 9}
    assert corrections(world, filterGroups="slowest,unknown") == {0: 3, 1: MAX_OFFSET, 2: 9}
    assert corrections(world, filterGroups="slow,slowest,g") == {}
    assert world.offsets.query_offsets("slow", "t") == {0: 3, 1: 6}, "nothing is deleted"


def cloned(world: World, **fields: str) -> dict[str, dict[int, int]]:
    request = request_of(314, srcGroup="g", destGroup="new", **fields)
    assert world.ask(world.admin_offset(), request).code == 0
    names = world.offsets.topics_of_group("new")
    return {name: world.offsets.query_offsets("new", name) for name in names}


def test_a_clone_of_one_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t1", 2)
    world.topic("t2", 1)
    world.commit("g", "t1", 3, 4)
    world.commit("g", "t2", 5)
    assert cloned(world, topic="t1") == {"t1": {0: 3, 1: 4}}
    assert World(tmp_path).offsets.query_offsets("new", "t1") == {0: 3, 1: 4}, "saved"


@pytest.mark.parametrize("fields", [{}, {"topic": " "}])
def test_a_clone_of_every_topic(tmp_path: Path, fields: dict[str, str]) -> None:
    world = World(tmp_path)
    world.topic("t1", 1)
    world.topic("t2", 1)
    world.commit("g", "t1", 3)
    world.commit("g", "t2", 5)
    world.commit("g", "gone", 6)
    assert cloned(world, **fields) == {"t1": {0: 3}, "t2": {0: 5}}


@pytest.mark.parametrize(("offline", "topics"), [("false", ["t1"]), ("true", ["t1", "t2"])])
def test_a_clone_of_topics_that_are_not_subscribed_any_more(
    tmp_path: Path, offline: str, topics: list[str]
) -> None:
    world = World(tmp_path)
    world.topic("t1", 1)
    world.topic("t2", 1)
    world.commit("g", "t1", 3)
    world.commit("g", "t2", 5)
    world.heartbeat("c", consumer="g", topics=("t1",))
    assert sorted(cloned(world, offline=offline)) == topics


def test_a_clone_that_cannot_be_saved(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    world.commit("g", "t", 3)
    (tmp_path / "consumerOffset.json.tmp").mkdir()
    answer = world.ask(
        world.admin_offset(), request_of(314, srcGroup="g", destGroup="new", topic="t")
    )
    assert answer.code == 1
    assert answer.remark == (
        "the copy of the offsets for group new is in effect but could not be saved; saving is "
        "retried every few seconds (see the broker's log), and a restart before it "
        "succeeds loses the change"
    )
    assert world.offsets.query_offset("new", "t", 0) == 3
