"""broker.admin.admin_consume_stats_processor: the progress of groups, with ConsumeProgress."""

from __future__ import annotations

import re
from pathlib import Path

from broker.admin.consume_progress import java_time_text
from remoting.response_code import ResponseCode
from tests.broker.admin.golden_world import golden_world
from tests.broker.broker_fakes import (
    StoredMessage,
    assert_same_answer,
    golden,
    json_of,
    request_of,
)
from tests.broker.processor_world import World


def test_consume_stats_of_java(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    request, answer = golden(208)
    assert_same_answer(world.ask(world.admin_consume_stats(), request), answer)


def test_consume_stats_of_one_topic(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    counters = world.stats.get_counters("GTopic", "G_group")
    counters.nums.add(600, 1)
    world.stats.sample_minute()
    answer = world.ask(
        world.admin_consume_stats(), request_of(208, consumerGroup="G_group", topic="GTopic")
    )
    body = json_of(answer.body)
    assert len(body["offsetTable"]) == 4
    assert body["consumeTps"] == 60.0


def test_topics_that_do_not_count(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    world.commit("G_group", "gone-topic", 1)
    world.heartbeat("c", consumer="G_group", topics=("GTxTopic",))
    asked = request_of(208, consumerGroup="G_group", topic=" ")
    answer = world.ask(world.admin_consume_stats(), asked)
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
    answer = world.ask(world.admin_consume_stats(), request_of(317, isOrder="false"))
    body = json_of(answer.body)
    assert (body["brokerAddr"], body["totalDiff"]) == ("127.0.0.2:20911", 7)
    groups = {name: stats for row in body["consumeStatsList"] for name, stats in row.items()}
    assert len(groups["g"]) == 2
    assert groups["TOOLS_CONSUMER"] == []
    answer = world.ask(world.admin_consume_stats(), request_of(317, isOrder="true"))
    assert json_of(answer.body)["totalDiff"] == 4


def test_time_span(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 2)
    world.store.put("t", 0, *(StoredMessage(n, 1_000 + n) for n in range(10)))
    world.commit("g", "t", 4)
    world.clock.now = 2_000
    answer = world.ask(world.admin_consume_stats(), request_of(303, topic="t", group="g"))
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
    answer = world.ask(world.admin_consume_stats(), request_of(303, topic="x", group="g"))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[x] not exist")


def test_time_text_before_1970() -> None:
    assert java_time_text(-1).endswith(":59:999")


def test_nothing_is_in_flight_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = golden_world(tmp_path)
    request = request_of(208, consumerGroup="G_group", topic="GTopic")
    request.version = 475
    rows = json_of(world.ask(world.admin_consume_stats(), request).body)["offsetTable"].values()
    assert all(row["pullOffset"] == row["consumerOffset"] for row in rows)
