"""Topics, groups, settings, producers, changes and search, on a real broker.

The truth is what the test has created, sent and consumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from console.views.topics import topic_kind
from remoting.request_code import RequestCode
from tests.console.console_on_broker import ConsoleWorld, console_world
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient

TOPIC, GROUP = "Orders", "OrderGroup"
SENT = 7
CONSUMED = 3


HEARTBEAT = {
    "clientID": "member-1@host",
    "consumerDataSet": [
        {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": TOPIC, "subString": "TagA"}],
        }
    ],
    "producerDataSet": [{"groupName": "producers"}],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWorld]:
    with console_world(tmp_path_factory.mktemp("topics")) as made:
        done = made.post(
            "updateTopic", topic=TOPIC, cluster="DefaultCluster", readQueues="1", writeQueues="1"
        )
        assert done.status_code == 200, done.text
        for number in range(SENT):
            assert made.post("sendMessage", topic=TOPIC, body=str(number)).status_code == 200
        with FrameClient(("127.0.0.1", made.broker.ports["main"])) as member:
            member.call(RequestCode.HEART_BEAT, {}, json.dumps(HEARTBEAT).encode())
            fields = {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": 0,
                "commitOffset": CONSUMED,
            }
            member.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            yield made


def rows(world: ConsoleWorld, url: str, table: str) -> Any:
    return world.operator.get(
        f"{url}&table={table}" if "?" in url else f"{url}?table={table}"
    ).json()


def test_a_topic_shows_its_queues_and_who_consumes_it(world: ConsoleWorld) -> None:
    url = f"/topic.json?name={TOPIC}"
    wait_until(lambda: rows(world, url, "queues")[0]["maxOffset"] == SENT)
    (queue,) = rows(world, url, "queues")
    assert (queue["minOffset"], queue["depth"]) == (0, SENT)
    (route,) = rows(world, url, "routes")
    assert (route["readQueueNums"], route["writeQueueNums"]) == (1, 1)
    (settings,) = rows(world, url, "settings")
    assert (settings["readQueueNums"], settings["messageType"]) == (1, "NORMAL")

    wait_until(lambda: GROUP in {row["group"] for row in rows(world, url, "consumers")}, 20)
    only = [{"topic": TOPIC, "kind": "normal"}]
    wait_until(lambda: rows(world, "/topics.json", "topics") == only, 20)


def test_a_group_shows_its_lag_members_and_subscriptions(world: ConsoleWorld) -> None:
    url = f"/group.json?name={GROUP}"
    wait_until(lambda: rows(world, url, "queues"), 20)
    (queue,) = [row for row in rows(world, url, "queues") if row["topic"] == TOPIC]
    assert (queue["consumerOffset"], queue["brokerOffset"]) == (CONSUMED, SENT)
    assert queue["diff"] == SENT - CONSUMED
    (member,) = rows(world, url, "members")
    assert member["clientId"] == "member-1@host"
    assert {"topic": TOPIC, "subString": "TagA"} in rows(world, url, "subscriptions")
    assert f"{SENT - CONSUMED} messages behind" in world.guest.get(f"/group?name={GROUP}").text

    def is_listed() -> bool:
        listed = {row["group"]: row["diffTotal"] for row in rows(world, "/groups.json", "groups")}
        return listed.get(GROUP) == SENT - CONSUMED

    wait_until(is_listed, 30)


def test_a_change_of_a_topic_says_old_and_new_and_is_done(world: ConsoleWorld) -> None:
    form = {"topic": "Changed", "cluster": "DefaultCluster", "readQueues": "2", "writeQueues": "2"}
    assert "is created with 2 read and 2 write" in world.post("updateTopic", "plan", **form).text
    assert world.post("updateTopic", **form).status_code == 200
    form |= {"readQueues": "4", "writeQueues": "3", "perm": "4"}
    plan = world.post("updateTopic", "plan", **form).text
    assert (
        "2 read and 2 write queues, read and write become 4 read and 3 write queues, read" in plan
    )
    assert world.post("updateTopic", **form).status_code == 200

    def route() -> Any:
        return rows(world, "/topic.json?name=Changed", "routes")[0]

    wait_until(lambda: route()["writeQueueNums"] == 3, 20)
    assert route()["perm"] == "read"
    deleted = {"topic": "Changed", "cluster": "DefaultCluster"}
    assert "can no longer be consumed" in world.post("deleteTopic", "plan", **deleted).text
    assert world.post("deleteTopic", **deleted).status_code == 200
    wait_until(lambda: world.operator.get("/topic?name=Changed").status_code == 404, 20)


def test_a_reset_shows_each_queue_before_it_is_done(world: ConsoleWorld) -> None:
    group, fields = "IdleGroup", {"topic": TOPIC, "queueId": 0, "commitOffset": 5}
    with FrameClient(("127.0.0.1", world.broker.ports["main"])) as member:
        member.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "consumerGroup": group})
    form = {"group": group, "topic": TOPIC, "time": "2020-01-01T00:00"}
    plan = world.post("resetOffset", "plan", **form).text
    assert "5 messages are consumed again" in plan
    assert "queue 0: 5 becomes 0." in plan
    done = world.post("resetOffset", **form)
    assert done.status_code == 200, done.text
    queues = {row["topic"]: row for row in rows(world, f"/group.json?name={group}", "queues")}
    assert queues[TOPIC]["consumerOffset"] == 0


def test_groups_are_created(world: ConsoleWorld) -> None:
    form = {"group": "MadeGroup", "cluster": "DefaultCluster", "retries": "3"}
    assert "is created: may consume, 3 retries" in world.post("updateGroup", "plan", **form).text
    assert rows(world, "/groups.json?begins=MadeGroup", "groups") == []
    assert world.post("updateGroup", **form).status_code == 200
    (made,) = rows(world, "/groups.json?begins=MadeGroup", "groups")
    assert made["group"] == "MadeGroup"
    some = {"group": "MadeGroup", "cluster": "DefaultCluster", "consume": "false"}
    plan = world.post("updateGroup", "plan", **some).text
    assert "may consume, 3 retries, 1 retry queues become may not consume, 3 retries" in plan


def test_a_group_is_deleted_with_what_it_has(world: ConsoleWorld) -> None:
    group, main = "LeavingGroup", ("127.0.0.1", world.broker.ports["main"])
    form = {"group": group, "cluster": "DefaultCluster"}
    heartbeat = json.dumps(HEARTBEAT).replace(GROUP, group).replace("member-1", "leaver").encode()
    with FrameClient(main) as member:
        member.call(RequestCode.HEART_BEAT, {}, heartbeat)
        fields = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "commitOffset": 5}
        member.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert world.post("sendMessage", topic=f"%DLQ%{group}", body="dead").status_code == 200
        plan = world.post("deleteGroup", "plan", **form).text
        assert "1 online: leaver@host. Stop them first" in plan
        assert f"It is {SENT - 5} messages behind." in plan
        assert "dead-letter topic (messages: 1) are" in plan
        assert "Its offsets stay" in plan
    assert (
        "Its offsets are removed"
        in world.post("deleteGroup", "plan", **form, removeOffset="true").text
    )
    wait_until(lambda: "Nobody is online." in world.post("deleteGroup", "plan", **form).text, 20)
    done = world.post("deleteGroup", **form, removeOffset="true")
    assert done.status_code == 200, done.text
    assert "with its offsets." in done.text
    assert rows(world, f"/groups.json?begins={group}", "groups") == []
    with FrameClient(main) as asker:
        asked = {"consumerGroup": group, "topic": TOPIC, "queueId": 0}
        assert asker.call(RequestCode.QUERY_CONSUMER_OFFSET, asked).ext_fields == {"offset": "0"}
    topics = world.console.watch.snapshot
    wait_until(lambda: f"%DLQ%{group}" not in (topics().topics.value or ()), 20)


def test_settings_are_shown_and_changed_where_the_broker_allows_it(world: ConsoleWorld) -> None:
    address = world.console.watch.snapshot().brokers[0].place.address
    form = {"broker": address, "key": "maxTransferCountOnMessageInMemory", "value": "16"}
    assert "is 32 and becomes 16" in world.post("changeSetting", "plan", **form).text
    assert world.post("changeSetting", **form).status_code == 200
    secret = {"broker": address, "key": "adminPassword", "value": "hunter2"}
    assert "is a secret" in world.post("changeSetting", **secret).text
    assert "hunter2" not in json.dumps(world.audit())
    refused = world.post("changeSetting", broker=address, key="listenPort", value="1")
    assert refused.status_code == 502
    unknown = world.post("changeSetting", "plan", broker=address, key="noSuchKey", value="1")
    assert "has no setting noSuchKey" in unknown.text

    def value() -> Any:
        shown = {row["key"]: row["value"] for row in rows(world, "/settings.json", "settings")}
        return shown["maxTransferCountOnMessageInMemory"]

    wait_until(lambda: value() == "16", 20)


def test_producers_and_changes(world: ConsoleWorld) -> None:
    wait_until(lambda: rows(world, "/connections.json", "producers"), 20)
    (producer,) = rows(world, "/connections.json", "producers")
    assert (producer["producerGroup"], producer["clientId"]) == ("producers", "member-1@host")
    wait_until(lambda: rows(world, "/connections.json", "hosts"), 30)
    (host,) = rows(world, "/connections.json", "hosts")
    assert (host["host"], host["clients"], host["groups"]) == ("127.0.0.1", 1, 1)
    wait_until(
        lambda: (
            "UPDATE_AND_CREATE_TOPIC"
            in {change["name"] for change in rows(world, "/audit.json", "brokers")}
        ),
        30,
    )
    changes = rows(world, "/audit.json", "audit")
    assert {"updateTopic", "sendMessage"} <= {change["action"] for change in changes}
    assert world.guest.get("/audit").status_code == 401
    assert world.guest.get("/accounts").status_code == 401


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [("rder", "topic", TOPIC), ("ordergr", "group", GROUP), ("127.0.0", "broker", "127.0.0.1:")],
)
def test_search(world: ConsoleWorld, text: str, kind: str, name: str) -> None:
    def names() -> set[str]:
        found = rows(world, f"/search.json?q={text}", "hits")
        return {hit["name"] for hit in found if hit["kind"] == kind}

    wait_until(lambda: any(name in found for found in names()), 20)


def test_a_name_that_is_nearly_right(world: ConsoleWorld) -> None:
    wait_until(lambda: TOPIC in (world.console.watch.snapshot().topics.value or ()), 20)
    assert TOPIC in world.guest.get("/search?q=Ordersx").text
    assert f"the nearest is {TOPIC}" in world.guest.get("/topic?name=Orderz").text


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", "normal"),
        ("%RETRY%g", "retry"),
        ("%DLQ%g", "dead letters"),
        ("TBW102", "system"),
        ("rmq_sys_wheel_timer", "system"),
        ("RMQ_SYS_TRACE_TOPIC", "system"),
    ],
)
def test_kinds_by_name(topic: str, kind: str) -> None:
    assert topic_kind(topic) == kind


def test_figures_that_are_asked_later_arrive(world: ConsoleWorld) -> None:
    """The last of the module: the first test has asked for them."""

    def told() -> bool:
        (queue,) = rows(world, f"/topic.json?name={TOPIC}", "queues")
        out = {
            row["group"]: row["outTps"]
            for row in rows(world, f"/topic.json?name={TOPIC}", "consumers")
        }
        lag = {row["topic"]: row for row in rows(world, f"/group.json?name={GROUP}", "topics")}
        is_exact = lag[TOPIC]["known"] == "exact" and lag[TOPIC]["oldestMs"] > 0
        return is_exact and bool(queue["oldestTimestamp"]) and out[GROUP] is not None

    wait_until(told, 30)
