"""broker.admin.admin_group_processor: groups and connected clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import CONFIG, assert_same_answer, golden, json_of, request_of
from tests.broker.processor_world import World

JAVAS_RETRIES_MS = [
    *(1000, 5000, 10000, 30000, 60000, 120000, 180000, 240000, 300000, 360000, 420000, 480000),
    *(540000, 600000, 1200000, 1800000, 3600000, 7200000),
]
"""CustomizedRetryPolicy."""
_REST = (
    b'"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
)
_BEGIN = (
    b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,'
    b'"consumeFromMinEnable":false,"consumeMessageOrderly":true,"consumeTimeoutMinute":15,'
)
_END = b'"whichBrokerWhenConsumeSlowly":1}'
GROUPS_OF_5_X = [
    _BEGIN + b'"groupName":"GFifo","groupRetryPolicy":{"type":"CUSTOMIZED"},' + _REST + _END,
    _BEGIN
    + b'"groupName":"g","groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000,7]},'
    + b'"exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2},'
    + b'"type":"EXPONENTIAL"},'
    + _REST
    + b'"subscriptionDataSet":[{"expression":"a > 1","expressionType":"SQL92","topic":"t",'
    + b'"version":5}],'
    + _END,
]


def test_an_update_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    request, answer = golden(200)
    assert_same_answer(world.ask(world.admin_group(), request), answer)
    assert world.groups.find("G_admin_group") == SubscriptionGroupConfig(
        group_name="G_admin_group",
        consume_broadcast_enable=False,
        consume_from_min_enable=False,
    )


def test_a_list_of_groups_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    body = b'{"groupConfigList":[{"groupName":"g","retryMaxTimes":3},{"groupName":"h"}]}'
    answer = world.ask(world.admin_group(), RemotingCommand.request(225, body=body))
    assert (answer.code, answer.remark) == (0, None)
    assert [world.groups.find(name) for name in ("g", "h")] == [
        SubscriptionGroupConfig(group_name="g", retry_max_times=3),
        SubscriptionGroupConfig(group_name="h"),
    ]


def test_a_list_of_groups_that_cannot_be_saved_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(world.groups, "save_if_changed", lambda: False)
    body = b'{"groupConfigList":[{"groupName":"g"},{"groupName":"h"}]}'
    answer = world.ask(world.admin_group(), RemotingCommand.request(225, body=body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    remark = "the change of groups g, h is in effect but could not be saved"
    assert (answer.remark or "").startswith(remark)


@pytest.mark.parametrize("group", GROUPS_OF_5_X)
def test_what_5_x_says_of_a_group_is_kept_to_the_byte(tmp_path: Path, group: bytes) -> None:
    """As a 5.3.3 mqadmin wrote the first (golden 200 and 352), a client of 5.3.3 the others."""
    world = World(tmp_path)
    assert world.ask(world.admin_group(), RemotingCommand.request(200, body=group)).code == 0
    name = json_of(group)["groupName"]
    assert world.ask(world.admin_group(), request_of(352, group=name)).body == group
    table = world.ask(world.admin_group(), RemotingCommand.request(201)).body
    assert group in table
    stored = json_of((tmp_path / "subscriptionGroup.json").read_bytes())
    assert stored["subscriptionGroupTable"][name] == json_of(group)
    several = (
        b'{"groupConfigList":[' + group.replace(b'"retryMaxTimes":', b'"retryMaxTimes":1') + b"]}"
    )
    assert world.ask(world.admin_group(), RemotingCommand.request(225, body=several)).code == 0
    assert world.ask(world.admin_group(), request_of(352, group=name)).body in several


def test_a_retry_policy_that_says_little_gets_javas_numbers(tmp_path: Path) -> None:
    world = World(tmp_path)
    little = (
        b'{"groupName":"g","groupRetryPolicy":{"type":"EXPONENTIAL",'
        b'"customizedRetryPolicy":{},"exponentialRetryPolicy":{"initial":1}}}'
    )
    world.ask(world.admin_group(), RemotingCommand.request(200, body=little))
    policy = json_of(world.ask(world.admin_group(), request_of(352, group="g")).body)
    assert policy["groupRetryPolicy"] == {
        "customizedRetryPolicy": {"next": JAVAS_RETRIES_MS},
        "exponentialRetryPolicy": {"initial": 1, "max": 7200000, "multiplier": 2},
        "type": "EXPONENTIAL",
    }


def test_attributes_of_a_group_are_refused_as_by_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    one = b'{"groupName":"g","attributes":{"+a":"b"}}'
    list_ = b'{"groupConfigList":[{"groupName":"f"},' + one + b"]}"
    for code, body in ((200, one), (225, list_)):
        answer = world.ask(world.admin_group(), RemotingCommand.request(code, body=body))
        assert (answer.code, answer.remark) == (1, "unsupported key: a")
    assert (world.groups.find("f"), world.groups.find("g")) == (None, None)


def test_a_group_is_forbidden_a_topic(tmp_path: Path) -> None:
    """The answers of UPDATE_AND_GET_GROUP_FORBIDDEN: a readable that is not sent only asks."""
    world = World(tmp_path)

    def ask(**fields: str) -> tuple[int, str | None, bytes]:
        answer = world.ask(world.admin_group(), request_of(353, group="g", topic="t", **fields))
        return answer.code, answer.remark, answer.body

    yes = (0, "", b'{"group":"g","readable":true,"topic":"t"}')
    no = (0, "", b'{"group":"g","readable":false,"topic":"t"}')
    assert [ask(), ask(readable="false"), ask(), ask(readable="true")] == [yes, no, no, yes]
    world.is_slave = True
    assert ask() == yes
    assert ask(readable="false")[0] == 1


def test_the_table_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    request, java = golden(201)
    assert java is not None
    ours = world.ask(world.admin_group(), request)
    table = "subscriptionGroupTable"
    assert json_of(ours.body)[table] == json_of(java.body)[table]


def test_a_deletion_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.groups.find_or_create("G_admin_group")
    world.commit("G_admin_group", "t", 1)
    request, answer = golden(207)
    assert_same_answer(world.ask(world.admin_group(), request), answer)
    assert world.groups.find("G_admin_group") is None
    assert world.offsets.query_offset("G_admin_group", "t", 0) == 1, "removeOffset=false"


@pytest.mark.parametrize("field", ["removeOffset", "cleanOffset"])
def test_a_deletion_with_offsets(tmp_path: Path, field: str) -> None:
    world = World(tmp_path).with_config(auto_delete_unused_stats=True)
    world.groups.find_or_create("g")
    world.commit("g", "t", 1)
    world.commit("gg", "t", 1)
    world.stats.get_counters("t", "g")
    answer = world.ask(world.admin_group(), request_of(207, groupName="g", **{field: "true"}))
    assert answer.code == 0
    assert world.offsets.query_offset("g", "t", 0) is None
    assert world.offsets.query_offset("gg", "t", 0) == 1
    assert world.stats.find_stats_item("GROUP_GET_NUMS", "t@g") is None


@pytest.mark.parametrize(
    "request_",
    [
        RemotingCommand.request(200, body=b'{"groupName":"g"}'),
        RemotingCommand.request(225, body=b'{"groupConfigList":[{"groupName":"g"}]}'),
        request_of(207, groupName="g"),
    ],
)
def test_a_slave_changes_nothing(tmp_path: Path, request_: RemotingCommand) -> None:
    world = World(tmp_path)
    world.is_slave = True
    answer = world.ask(world.admin_group(), request_)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "slave broker" in answer.remark
    assert world.groups.find("g") is None


@pytest.mark.parametrize("number", [1, 2])
def test_offline_groups_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(203, number)
    assert_same_answer(world.ask(world.admin_group(), request), answer)


def test_consumer_connections(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.heartbeat("c1", consumer="g", topics=("t",))
    answer = world.ask(world.admin_group(), request_of(203, consumerGroup="g"))
    assert json_of(answer.body) == {
        "connectionSet": [
            {
                "clientAddr": "127.0.0.1:40000",
                "clientId": "c1",
                "language": "PYTHON",
                "version": 409,
            }
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "t": {
                "classFilterMode": False,
                "codeSet": [],
                "expressionType": "TAG",
                "subString": "*",
                "subVersion": 1,
                "tagsSet": [],
                "topic": "t",
            }
        },
    }


def test_producer_connections(tmp_path: Path) -> None:
    world = World(tmp_path)
    connection = world.heartbeat("c1", producer="p")
    answer = world.ask(world.admin_group(), request_of(204, producerGroup="p"))
    assert [each["clientId"] for each in json_of(answer.body)["connectionSet"]] == ["c1"]
    answer = world.ask(world.admin_group(), RemotingCommand.request(328))
    assert json_of(answer.body) == {
        "data": {
            "p": [
                {
                    "clientId": "c1",
                    "language": "PYTHON",
                    "lastUpdateTimestamp": world.clock.now_ms(),
                    "remoteIP": "/127.0.0.1:40000",
                    "version": 409,
                }
            ]
        }
    }
    world.producers.on_connection_close(connection)
    answer = world.ask(world.admin_group(), request_of(204, producerGroup="p"))
    assert (answer.code, answer.remark) == (1, "the producer group[p] not exist")


@pytest.mark.parametrize(("auto", "code"), [(True, 0), (False, 26)])
def test_one_group_for_mqadmin_of_5_x(tmp_path: Path, auto: bool, code: int) -> None:
    world = World(tmp_path, replace(CONFIG, auto_create_subscription_group=auto))
    answer = world.ask(world.admin_group(), request_of(352, group="g"))
    assert answer.code == code
    assert (world.groups.find("g") is not None) is auto
    if auto:
        assert json_of(answer.body)["groupName"] == "g"


@pytest.mark.parametrize(
    ("fields", "online"),
    [({"topic": "t"}, True), ({"topic": "x"}, False), ({}, False)],
)
def test_a_subscription_for_mqadmin_of_5_x(
    tmp_path: Path, fields: dict[str, str], online: bool
) -> None:
    world = World(tmp_path)
    world.heartbeat("c1", consumer="g", topics=("t",))
    answer = world.ask(world.admin_group(), request_of(345, group="g", **fields))
    body = json_of(answer.body)
    assert answer.code == 0
    assert (body["group"], body.get("topic")) == ("g", fields.get("topic"))
    assert ("subscriptionData" in body) is online
    if online:
        assert body["subscriptionData"]["subString"] == "*"


@pytest.mark.parametrize("number", [1, 2])
def test_who_consumes_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(300, number)
    assert answer is not None
    groups = json_of(answer.body)["groupList"]
    for group in groups:
        world.commit(group, "GTopic", 1)
    world.heartbeat("c", consumer=groups[0], topics=("GTopic",))
    assert_same_answer(world.ask(world.admin_group(), request), answer)


def test_live_groups_without_offsets_consume_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit("offline", "t", 1)
    world.heartbeat("c", consumer="live", topics=("t",))
    answer = world.ask(world.admin_group(), request_of(300, topic="t"))
    assert json_of(answer.body) == {"groupList": ["live", "offline"]}
