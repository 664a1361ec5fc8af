"""What operators see of lite topics, and what they are told of names that do not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from broker.lite.lite_consumer_lag_calculator import LiteConsumerLagCalculator, LiteLagSources
from broker.lite.lite_manager_processor import LiteManagerProcessor, ManagerParts
from broker.lite.lite_settings import LiteSettings
from remoting.errors import RequestError
from remoting.lite_names import to_lmq_name
from remoting.remoting_command import RemotingCommand
from tests.broker.lite.served_world import PARENT, LiteServed

SETTINGS = LiteSettings(
    most_subscriptions=100,
    most_events=100,
    event_check_interval_ms=1,
    ttl_check_interval_ms=1,
    min_ttl_ms=1,
    subscription_check_interval_ms=1,
    subscription_timeout_ms=1,
    most_light_queues=20_000,
    collects_lag_times=True,
    lag_times=1,
    shows_lag_counts=True,
    shows_lag_times=True,
)


class World:
    def __init__(self, path: Path) -> None:
        self.served = served = LiteServed(path)
        store = mock.MagicMock()
        store.offsets.side_effect = served.bounds
        store.unit_at.side_effect = lambda lmq, _queue, offset: (
            (offset, 1, 1) if offset < served.bounds(lmq, 0)[1] else None
        )
        store.store_timestamp_at.side_effect = lambda place: 5_000 + place
        lifecycle = mock.MagicMock()
        lifecycle.lite_topics.side_effect = lambda _parent: list(served.queues)
        lifecycle.groups_of.return_value = ["G"]
        lifecycle.count.side_effect = lambda _parent: len(served.queues)
        self.processor = LiteManagerProcessor(
            ManagerParts(
                registry=served.registry,
                dispatcher=served.dispatcher,
                lifecycle=lifecycle,
                queues=served.lite_queues,
                store=store,
                lags=LiteConsumerLagCalculator(
                    LiteLagSources(
                        lite_topics=lifecycle.lite_topics,
                        queues=served.lite_queues,
                        store=store,
                        find_group=served.groups.get,
                        group_names=lambda: list(served.groups),
                        settings=lambda: SETTINGS,
                        monotonic_ms=lambda: served.now_ms,
                    )
                ),
                find_topic={PARENT: served.topic, "T": mock.MagicMock(attributes={})}.get,
                topic_names=lambda: [PARENT, "T"],
                find_group=served.groups.get,
                group_names=lambda: list(served.groups),
                lmq_count=lambda: len(served.queues),
                queue_count=lambda: 7,
                offset_count=lambda: 8,
                settings=lambda: SETTINGS,
                on_loop=lambda function: function(),
                now_ms=lambda: 9_000,
                monotonic_ms=lambda: served.now_ms,
            )
        )

    def ask(self, code: int, **fields: object) -> dict[str, Any]:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts)
        answer = self.processor.process_request(self.served.connection, request)
        assert answer is not None
        return json.loads(answer.body) if answer.body else {}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.served.subscribe("PARTIAL_ADD", "a", "b")
    world.served.send("a", "a", "a", "b")
    world.served.popped()
    world.served.ack("a", 0)
    world.served.now_ms += 40
    return world


def test_the_broker(world: World) -> None:
    assert world.ask(200074) == {
        "cqTableSize": 7,
        "currentLmqNum": 2,
        "eventMapSize": 1,
        "groupMeta": {PARENT: ["G"]},
        "liteSubscriptionCount": 2,
        "maxLmqNum": 20_000,
        "offsetTableSize": 8,
        "orderInfoCount": 2,
        "storeType": "default",
        "topicMeta": {PARENT: -1},
    }


def test_a_parent(world: World) -> None:
    assert world.ask(200075, topic=PARENT) == {
        "groups": ["G"],
        "liteTopicCount": 2,
        "lmqNum": 2,
        "topic": PARENT,
        "ttl": -1,
    }


def test_a_lite_topic(world: World) -> None:
    world.served.group("W", **{"lite.sub.wildcard": "true"})
    world.served.subscribe("COMPLETE_ADD", client="w", group="W")
    assert world.ask(200076, parentTopic=PARENT, liteTopic="a") == {
        "liteTopic": "a",
        "parentTopic": PARENT,
        "shardingToBroker": True,
        "subscriber": [{"clientId": "c", "group": "G"}, {"clientId": "*", "group": "W"}],
        "topicOffset": {"lastUpdateTimestamp": 5_002, "maxOffset": 3, "minOffset": 0},
    }


def test_a_client(world: World) -> None:
    asked = {"parentTopic": PARENT, "group": "G", "clientId": "c"}
    found = world.ask(200077, **asked, maxCount=1)
    assert found["liteTopicSet"] == [to_lmq_name(PARENT, "a")]
    assert (found["liteTopicCount"], found["lastAccessTime"]) == (2, 8_960)
    assert world.ask(200077, **(asked | {"clientId": "x"}))["liteTopicCount"] == -1


def test_a_group(world: World) -> None:
    found = world.ask(200078, group="G", topK=1)
    row = {"earliestUnconsumedTimestamp": 5_001, "lagCount": 2, "liteTopic": "a"}
    oldest = {"earliestUnconsumedTimestamp": 5_000, "lagCount": 1, "liteTopic": "b"}
    assert found["totalLagCount"] == 3
    assert (found["lagCountTopK"], found["lagTimestampTopK"]) == ([row], [oldest])
    assert found["earliestUnconsumedTimestamp"] == 5_000
    one = world.ask(200078, group="G", liteTopic="a")
    assert one["liteTopicOffsetWrapper"] == {
        "brokerOffset": 3,
        "consumerOffset": 1,
        "lastTimestamp": 5_000,
        "pullOffset": 0,
    }
    assert (one["totalLagCount"], one["earliestUnconsumedTimestamp"]) == (2, 5_001)
    # As RocketMQ: no offsets of a lite topic that does not exist, or that the group has not begun.
    world.served.group("New")
    for group, lite, lag, time in (("G", "never", -1, -1), ("New", "a", 0, 0)):
        none = world.ask(200078, group=group, liteTopic=lite)
        assert "liteTopicOffsetWrapper" not in none
        assert (none["totalLagCount"], none["earliestUnconsumedTimestamp"]) == (lag, time)


def test_another_dispatch(world: World) -> None:
    client = world.served.registry.find("c", "G")
    assert client is not None
    world.served.order.clear()
    for asked in ({"clientId": "c"}, {}):
        world.ask(200079, group="G", **asked)
        world.served.dispatcher.step()
        assert len(client.events) == 2
        while world.served.dispatcher.take(client):
            pass
    world.ask(200079, group="G", clientId="x")
    world.served.dispatcher.step()
    assert len(client.events) == 0


@pytest.mark.parametrize(
    ("code", "fields", "answer"),
    [
        (200075, {"topic": "None"}, 17),
        (200075, {"topic": "T"}, 29),
        (200076, {"parentTopic": "None", "liteTopic": "a"}, 17),
        (200077, {"maxCount": 0}, 29),
        (200077, {"parentTopic": PARENT, "group": "None"}, 26),
        (200078, {"group": "None"}, 26),
        (200079, {"group": "None"}, 26),
    ],
)
def test_what_does_not_exist(
    world: World, code: int, fields: dict[str, object], answer: int
) -> None:
    with pytest.raises(RequestError) as error:
        world.ask(code, **fields)
    assert error.value.code == answer
