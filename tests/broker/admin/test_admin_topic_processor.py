"""broker.admin.admin_topic_processor: topics made, changed, deleted and looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.topic.topic_config_manager import TopicChange
from remoting.body.topic_config import TopicConfig, TopicFilterType
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import (
    assert_same_answer,
    assert_same_head,
    golden,
    json_of,
    request_of,
)
from tests.broker.processor_world import World


def create(topic: str, **changes: Any) -> RemotingCommand:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "true",
    }
    return request_of(17, **(fields | changes))


@pytest.mark.parametrize(("number", "perm"), [(1, 6), (2, 4)])
def test_updates_of_java(tmp_path: Path, number: int, perm: int) -> None:
    world = World(tmp_path)
    told: list[tuple[TopicChange, TopicConfig | None]] = []
    world.topics.add_listener(lambda change, config: told.append((change, config)))
    request, answer = golden(17, number)
    assert_same_answer(world.ask(world.admin_topic(), request), answer)
    expected = TopicConfig(
        topic_name="GAdminTopic", read_queue_nums=4, write_queue_nums=4, perm=perm
    )
    assert told == [(TopicChange.ONE, expected)]
    assert world.topics.find("GAdminTopic") == expected


def test_order_of_the_request_is_ignored(tmp_path: Path) -> None:
    world = World(tmp_path)
    request = create("t", topicFilterType="MULTI_TAG", topicSysFlag=1)
    assert world.ask(world.admin_topic(), request).code == 0
    assert world.topics.find("t") == TopicConfig(
        topic_name="t",
        read_queue_nums=4,
        write_queue_nums=3,
        topic_filter_type=TopicFilterType.MULTI_TAG,
        topic_sys_flag=1,
    )


@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (create("a b"), "illegal characters"),
        (create("TBW102"), "The topic[TBW102] is conflict with system topic."),
        (create("GoldenCluster"), "conflict with system topic"),
        (create("t", topicFilterType="ANY"), "topicFilterType"),
        (create("t", perm="x"), "perm"),
        (request_of(215, topic="TBW102"), "conflict with system topic"),
        (request_of(215, topic=""), "blank"),
    ],
)
def test_refusals(tmp_path: Path, request_: RemotingCommand, remark: str) -> None:
    world = World(tmp_path)
    before = world.topics.wrapper()
    answer = world.ask(world.admin_topic(), request_)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert remark in answer.remark
    assert world.topics.wrapper() == before
    assert world.store.commands == []


def create_list(*names: str, attribute: str = "+message.type") -> RemotingCommand:
    """18 as mqadmin updateTopicList of 5.3.3 sends it."""
    configs = [
        {
            "attributes": {attribute: "NORMAL"},
            "order": True,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 1,
            "writeQueueNums": 3,
        }
        for name in names
    ]
    return RemotingCommand.request(18, body=json.dumps({"topicConfigList": configs}).encode())


def test_a_list_of_topics_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    told: list[TopicConfig | None] = []
    world.topics.add_listener(lambda _change, config: told.append(config))
    answer = world.ask(world.admin_topic(), create_list("t", "u"))
    assert (answer.code, answer.remark) == (0, None)
    assert told == [
        TopicConfig(
            topic_name=name,
            read_queue_nums=4,
            write_queue_nums=3,
            topic_sys_flag=1,
            attributes={"message.type": "NORMAL"},
        )
        for name in ("t", "u")
    ]
    assert [world.topics.find(name) for name in ("t", "u")] == told


def test_a_list_with_a_topic_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for names, remark in (
        (("t", "a b"), "illegal characters"),
        (("t", "TBW102"), "The topic[TBW102] is conflict with system topic."),
    ):
        answer = world.ask(world.admin_topic(), create_list(*names))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in (answer.remark or "")
        assert world.topics.find("t") is None
    world.topic("u", 1)
    before = world.topics.wrapper()
    for attribute, remark in (
        ("+cleanup.policy", "value is not in set: [DELETE, COMPACTION]"),
        ("message.type", "only add attribute is supported while creating topic. key: essage.type"),
        (
            "-message.type",
            "only add attribute is supported while creating topic. key: message.type",
        ),
        ("", "kv string format wrong."),
    ):
        answer = world.ask(world.admin_topic(), create_list("t", "u", attribute=attribute))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    answer = world.ask(world.admin_topic(), create_list("t", "u", attribute="-message.type"))
    assert world.topics.wrapper() == before


def test_attributes_are_kept_and_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    processor = world.admin_topic()
    told: list[TopicConfig | None] = []
    world.topics.add_listener(lambda _change, config: told.append(config))
    steps = (
        ("+message.type=FIFO,+reserve.time=5", {"message.type": "FIFO", "reserve.time": "5"}),
        (None, {"message.type": "FIFO", "reserve.time": "5"}),
        ("+message.type=DELAY", {"message.type": "DELAY", "reserve.time": "5"}),
        ("-message.type", {"reserve.time": "5"}),
        ("-reserve.time", {}),
        ("+message.type=NORMAL", {"message.type": "NORMAL"}),
    )
    for change, expected in steps:
        request = create("t", **({} if change is None else {"attributes": change}))
        assert world.ask(processor, request).code == 0
        assert told[-1] is not None
        assert told[-1].attributes == expected, "so it is registered (103)"
        one = json.loads(world.ask(processor, request_of(351, topic="t")).body)
        assert one["attributes"] == expected
        table = json.loads(world.ask(processor, request_of(21)).body)["topicConfigTable"]
        assert table["t"]["attributes"] == expected
        file = json.loads((tmp_path / "topics.json").read_bytes())["topicConfigTable"]
        assert file["t"]["attributes"] == expected
        assert "attributes" not in file["TBW102"], "4.9 knows none"


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        (
            "+message.type=BOGUS",
            1,
            "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, "
            "NORMAL]",
        ),
        ("+message.type=MIXED", 29, "MIXED message type is not supported."),
        ("+bogus=1", 1, "unsupported key: bogus"),
        (
            "+cleanup.policy=COMPACTION,+queue.type=BatchCQ",
            29,
            "cleanup.policy=COMPACTION with queue.type=BatchCQ is not supported by this broker, "
            "which keeps the newest message of each key for simple consume queues only: omit one "
            "of the two.",
        ),
        ("+cleanup.policy=COMPACTION", 0, "not set any response code"),
        ("+queue.type=BatchCQ", 0, "not set any response code"),
        ("+cleanup.policy=DELETE,+queue.type=SimpleCQ", 0, "not set any response code"),
    ],
)
def test_attributes_that_are_refused(tmp_path: Path, change: str, code: int, remark: str) -> None:
    world = World(tmp_path)
    answer = world.ask(world.admin_topic(), create("t", attributes=change))
    assert (answer.code, answer.remark) == (code, remark)
    assert (world.topics.find("t") is None) is (code != 0)


def test_mixed_messages_where_they_are_enabled(tmp_path: Path) -> None:
    world = World(tmp_path)
    body = json.dumps(
        {"topicConfigList": [{"topicName": "l", "attributes": {"+message.type": "MIXED"}}]}
    ).encode()
    requests = [
        create("t", attributes="+message.type=MIXED"),
        RemotingCommand.request(18, body=body),
    ]
    for request in requests:
        answer = world.ask(world.admin_topic(), request)
        assert (answer.code, answer.remark) == (29, "MIXED message type is not supported.")
    world.with_config(enable_mixed_message_type=True)
    for topic, request in zip("tl", requests, strict=True):
        assert world.ask(world.admin_topic(), request).code == 0
        found = world.topics.find(topic)
        assert found is not None
        assert found.attributes == {"message.type": "MIXED"}


def test_a_list_that_cannot_be_saved_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(world.topics, "save_if_changed", lambda: False)
    answer = world.ask(world.admin_topic(), create_list("t", "u"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    remark = "the change of topics t, u is in effect but could not be saved"
    assert (answer.remark or "").startswith(remark)


@pytest.mark.parametrize("request_", [create("t"), create_list("t"), request_of(215, topic="t")])
def test_a_slave_changes_nothing(tmp_path: Path, request_: RemotingCommand) -> None:
    world = World(tmp_path)
    world.is_slave = True
    answer = world.ask(world.admin_topic(), request_)
    assert (answer.code, answer.remark) == (
        1,
        "Can't modify topic or subscription group from slave broker, "
        "please execute it from master broker.",
    )


def test_a_deletion_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("GAdminTopic", 1)
    world.store.fill("GAdminTopic", 0, 3, 100)
    world.store.fill("other", 0, 3, 100)
    world.commit("g", "GAdminTopic", 2)
    world.commit("g", "other", 2)
    request, answer = golden(215)
    assert_same_answer(world.ask(world.admin_topic(), request), answer)
    assert world.topics.find("GAdminTopic") is None
    assert world.store.commands == [("delete_topic_queues", "GAdminTopic")]
    assert world.offsets.topics_of_group("g") == ["other"]
    saved = json_of((tmp_path / "consumerOffset.json").read_bytes())
    assert set(saved["offsetTable"]) == {"other@g"}


def test_a_deletion_that_failed_can_be_repeated(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    world.commit("g", "t", 2)
    world.store.failure = TimeoutError("store process: no response")
    processor = world.admin_topic()
    with pytest.raises(TimeoutError):
        processor.process_request(world.connection, request_of(215, topic="t"))
    assert world.offsets.query_offset("g", "t", 0) == 2
    world.store.failure = None
    assert world.ask(processor, request_of(215, topic="t")).code == 0
    assert world.offsets.query_offset("g", "t", 0) is None


@pytest.mark.parametrize("drop", [True, False])
def test_counters_of_a_deleted_topic(tmp_path: Path, drop: bool) -> None:
    world = World(tmp_path).with_config(auto_delete_unused_stats=drop)
    world.stats.put_counters("t").nums.add(1)
    world.ask(world.admin_topic(), request_of(215, topic="t"))
    assert (world.stats.find_stats_item("TOPIC_PUT_NUMS", "t") is None) is drop


def test_a_change_that_cannot_be_saved_is_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.path = tmp_path / "file" / "topics.json"
    (tmp_path / "file").write_text("in the way")
    answer = world.ask(world.admin_topic(), create("t"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "topic t is in effect but could not be saved" in answer.remark
    assert world.topics.find("t") is not None


def test_the_table_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.create("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6)
    request, java = golden(21)
    assert java is not None
    ours = world.ask(world.admin_topic(), request)
    assert_same_head(ours, java)
    table = json_of(ours.body)["topicConfigTable"]
    del table["rmq_sys_REVIVE_LOG_GoldenCluster"]  # 5.x's
    assert table == json_of(java.body)["topicConfigTable"]


def test_stats_of_java(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("GTopic", 4)
    newest = {0: 1795177732730, 1: 1795177733668, 2: 1795177737677, 3: 1795177742683}
    for queue_id, count in ((0, 6), (1, 4), (2, 14), (3, 6)):
        world.store.fill("GTopic", queue_id, count, newest[queue_id])
    request, answer = golden(202)
    assert_same_answer(world.ask(world.admin_topic(), request), answer)


def test_stats_of_empty_and_unknown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    answer = world.ask(world.admin_topic(), request_of(202, topic="t"))
    assert answer.body == (
        b'{"offsetTable":{{"brokerName":"broker-g","queueId":0,"topic":"t"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}'
    )
    answer = world.ask(world.admin_topic(), request_of(202, topic="x"))
    assert (answer.code, answer.remark) == (17, "topic[x] not exist")


def test_system_topics_and_clean_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.ask(world.admin_topic(), RemotingCommand.request(305))
    names = {"TBW102", "GoldenCluster", "broker-g", "CHECKPOINT_TOPIC"}
    assert names <= set(json_of(answer.body)["topicList"])
    assert "brokerAddr" not in json_of(answer.body)
    world.topic("kept", 1)
    assert world.ask(world.admin_topic(), RemotingCommand.request(316)).code == 0
    name, retained = world.store.commands[0]
    assert name == "clean_unused_topic"
    assert {"kept", "SCHEDULE_TOPIC_XXXX"} <= set(retained)


def test_one_topic_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 2)
    answer = world.ask(world.admin_topic(), request_of(351, topic="t", lo="true"))
    assert answer.body == (
        b'{"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"t","topicSysFlag":0,"writeQueueNums":2}'
    )
    answer = world.ask(world.admin_topic(), request_of(351, topic="x"))
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: x")


def test_put_rate_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    world.stats.put_counters("t").nums.add(50)
    world.stats.sample_minute()
    request = request_of(202, topic="t")
    request.version = 475
    assert json_of(world.ask(world.admin_topic(), request).body)["topicPutTps"] == 5.0


@pytest.mark.parametrize(("name", "created"), [("%RETRY%G+T", 1), ("%RETRY%G_".ljust(255, "T"), 0)])
def test_retry_topics_of_pops_can_be_deleted(tmp_path: Path, name: str, created: int) -> None:
    """No request can create one with "+"; mqadmin deleteTopic removes it as any other."""
    world = World(tmp_path)
    assert world.topics.create_pop_retry(name) is not None
    assert world.ask(world.admin_topic(), create(name)).code == created
    assert world.ask(world.admin_topic(), request_of(215, topic=name)).code == 0
    assert world.topics.find(name) is None
