"""topic_config_manager: built-in topics, automatic creation, changes, file, listeners."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from broker.json_config_manager import ConfigFileError
from broker.settings.broker_config import BrokerConfig
from broker.topic import topic_config_manager
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from remoting.body.topic_config import TopicConfig, TopicFilterType
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import CONFIG, GOLDEN_CONFIG, FakeClock, FakeSubmit, golden, json_of

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_GoldenCluster"

Told = list[tuple[TopicChange, str | None]]


def manager_of(tmp_path: Path, config: BrokerConfig = CONFIG) -> TopicConfigManager:
    manager = TopicConfigManager(tmp_path / "topics.json", config, FakeClock(), SystemTopics())
    manager.load()
    return manager


def listened(manager: TopicConfigManager) -> Told:
    told: Told = []
    manager.add_listener(
        lambda change, config: told.append((change, config.topic_name if config else None))
    )
    return told


def send(
    manager: TopicConfigManager,
    topic: str,
    default_topic: str = "TBW102",
    nums: int = 4,
    unit_mode: bool = False,
) -> TopicConfig:
    return manager.prepare_for_send(
        topic, default_topic, nums, unit_mode=unit_mode, remote="10.0.0.1:1"
    )


def test_built_in_topics_are_those_of_java(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.create("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6)
    _, answer = golden(21)
    assert answer is not None
    java = json_of(answer.body)
    ours = json_of(manager.encode())
    assert ours["topicConfigTable"].pop(REVIVE_TOPIC)["readQueueNums"] == 8  # 5.x's
    assert ours["topicConfigTable"] == java["topicConfigTable"]
    assert ours["dataVersion"]["counter"] == java["dataVersion"]["counter"] == 1


@pytest.mark.parametrize(
    ("changes", "topic", "perm"),
    [
        ({"auto_create_topic_enable": False}, "TBW102", None),
        ({}, "TBW102", 7),
        ({"cluster_topic_enable": False}, "GoldenCluster", 1),
        ({"broker_topic_enable": False}, "broker-g", 1),
        ({"trace_topic_enable": True}, "RMQ_SYS_TRACE_TOPIC", 6),
        ({}, "RMQ_SYS_TRACE_TOPIC", None),
        ({"trace_topic_enable": True, "msg_trace_topic_name": "trace"}, "trace", 6),
    ],
)
def test_switches_of_built_in_topics(
    tmp_path: Path, changes: dict[str, bool], topic: str, perm: int | None
) -> None:
    found = manager_of(tmp_path, replace(CONFIG, **changes)).find(topic)
    assert (None if found is None else found.perm) == perm


def test_built_in_topics_become_system_topics(tmp_path: Path) -> None:
    topics = SystemTopics()
    TopicConfigManager(tmp_path / "topics.json", CONFIG, FakeClock(), topics)
    for name in ("GoldenCluster", "broker-g", "GoldenCluster_REPLY_TOPIC"):
        assert topics.is_system_topic(name)


@pytest.mark.parametrize(("asked", "got"), [(4, 4), (8, 8), (16, 8), (0, 0), (-3, 0)])
def test_creation_takes_the_smaller_queue_count(tmp_path: Path, asked: int, got: int) -> None:
    config = send(manager_of(tmp_path), "new", nums=asked)
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (got, got, 6)


@pytest.mark.parametrize("field", ["read_queue_nums", "write_queue_nums"])
def test_a_topic_has_no_more_queues_than_can_be_looked_at(tmp_path: Path, field: str) -> None:
    """One pop of such a topic took the loop for minutes."""
    manager = manager_of(tmp_path)
    config = TopicConfig(topic_name="t", read_queue_nums=8, write_queue_nums=8)
    with pytest.raises(RequestError, match="at most 65536") as refusal:
        manager.update(config, replace(config, topic_name="u", **{field: 65_537}))  # type: ignore[arg-type]
    assert refusal.value.code is ResponseCode.INVALID_PARAMETER
    assert manager.find("t") is None
    assert manager.update(replace(config, **{field: 65_536}))  # type: ignore[arg-type]


def test_creation_is_saved_told_and_counted(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    told = listened(manager)
    before = manager.data_version
    send(manager, "new")
    send(manager, "new")
    assert told == [(TopicChange.NEW, "new")]
    assert manager.data_version.counter == before.counter + 1
    assert manager_of(tmp_path).find("new") == manager.find("new")


def test_creation_inherits_the_filter_type(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    template = TopicConfig(
        topic_name="T", perm=7, topic_filter_type=TopicFilterType.MULTI_TAG, write_queue_nums=3
    )
    manager.update(template)
    made = send(manager, "new", default_topic="T", nums=9)
    assert (made.topic_filter_type, made.write_queue_nums) == (TopicFilterType.MULTI_TAG, 3)


@pytest.mark.parametrize(
    ("topic", "unit_mode", "flag"),
    [("new", False, 0), ("new", True, 1), ("%RETRY%g", True, 2), ("%RETRY%g", False, 0)],
)
def test_unit_flags(tmp_path: Path, topic: str, unit_mode: bool, flag: int) -> None:
    assert send(manager_of(tmp_path), topic, unit_mode=unit_mode).topic_sys_flag == flag


@pytest.mark.parametrize("default_topic", ["nowhere", "SELF_TEST_TOPIC"])
def test_no_template_no_topic(tmp_path: Path, default_topic: str) -> None:
    manager = manager_of(tmp_path)
    with pytest.raises(RequestError) as caught:
        send(manager, "new", default_topic=default_topic)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert caught.value.remark == (
        "topic[new] not exist, apply first please!"
        "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )
    assert manager.find("new") is None


def test_a_retry_topic_needs_no_template(tmp_path: Path) -> None:
    made = send(manager_of(tmp_path), "%RETRY%g", default_topic="nowhere", nums=4)
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, 6)


def test_a_restored_template_loses_its_power(tmp_path: Path) -> None:
    manager_of(tmp_path).update(TopicConfig(topic_name="TBW102", perm=7))
    manager = manager_of(tmp_path, replace(CONFIG, auto_create_topic_enable=False))
    with pytest.raises(RequestError):
        send(manager, "new")
    found = manager.find("TBW102")
    assert found is not None
    assert found.perm == 6


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", ResponseCode.SYSTEM_ERROR),
        ("a b", ResponseCode.SYSTEM_ERROR),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
    ],
)
def test_send_checks(tmp_path: Path, topic: str, code: ResponseCode) -> None:
    with pytest.raises(RequestError) as caught:
        send(manager_of(tmp_path), topic)
    assert caught.value.code == code


def test_an_order_topic_of_a_read_only_broker(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, replace(CONFIG, broker_permission=4))
    send(manager, "plain")
    send(manager, "ordered")
    manager.update_order_topics({"ordered"})
    send(manager, "plain")
    with pytest.raises(RequestError, match=r"the broker\[127.0.0.2\] sending message is forbidden"):
        send(manager, "ordered")


def test_a_locked_table_counts_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_config_manager, "LOCK_TIMEOUT_S", 0.01)
    manager = manager_of(tmp_path)
    with manager._lock, pytest.raises(RequestError) as caught:
        send(manager, "new")
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_concurrent_creation_makes_one(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    told = listened(manager)
    gate = threading.Barrier(8)
    made: list[TopicConfig] = []

    def create() -> None:
        gate.wait()
        made.append(send(manager, "new"))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len({id(config) for config in made}) == 1
    assert told == [(TopicChange.NEW, "new")]


def test_update_replaces_the_whole_config(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    told = listened(manager)
    send(manager, "t")
    manager.update_order_topics({"t"})
    assert manager.update(TopicConfig(topic_name="t", read_queue_nums=1, perm=4))
    assert manager.find("t") == TopicConfig(topic_name="t", read_queue_nums=1, perm=4)
    assert told[-1] == (TopicChange.ONE, "t")
    assert manager_of(tmp_path).find("t") == manager.find("t")


def test_delete(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    send(manager, "t")
    told = listened(manager)
    version = manager.data_version
    assert manager.delete("t")
    assert manager.find("t") is None
    assert told == [(TopicChange.NONE, None)]
    assert manager.data_version.counter == version.counter + 1
    assert manager.delete("t"), "again is no failure"
    assert manager_of(tmp_path).find("t") is None


def test_order_topics_follow_the_name_server(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    send(manager, "a")
    send(manager, "b")
    version = manager.data_version
    assert manager.update_order_topics({"a", "unknown"})
    assert (manager.is_order_topic("a"), manager.is_order_topic("b")) == (True, False)
    assert not manager.update_order_topics({"a"}), "nothing new"
    assert manager.update_order_topics({"b"})
    assert (manager.is_order_topic("a"), manager.is_order_topic("b")) == (False, True)
    assert manager.data_version.counter == version.counter + 2
    assert not manager.is_order_topic("unknown")


def test_the_loop_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    submit = FakeSubmit()
    manager.save_in_background(submit)
    send(manager, "new")
    assert not manager.path.exists()
    assert submit.run_all() == ["save topics.json"]
    assert manager.path.exists()


def test_a_java_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes((GOLDEN_CONFIG / "topics.json").read_bytes())
    manager = manager_of(tmp_path)
    manager.persist()
    java = (GOLDEN_CONFIG / "topics.json").read_text()
    ours = json_of(path.read_bytes())
    assert ours["topicConfigTable"].pop(REVIVE_TOPIC)["topicName"] == REVIVE_TOPIC  # 5.x's
    assert ours == json_of(java.encode())
    lines, java_lines = (
        Counter(text.replace(",", "").split("\n")) for text in (path.read_text(), java)
    )
    assert not java_lines - lines
    assert manager.data_version.counter == 16


def test_a_slave_takes_its_masters_table(tmp_path: Path) -> None:
    master, slave = manager_of(tmp_path / "m"), manager_of(tmp_path / "s")
    send(master, "t")
    send(slave, "only-here")
    told = listened(slave)
    assert slave.replace_all(master.wrapper()) == {"only-here"}
    assert slave.wrapper() == master.wrapper()
    assert told == [(TopicChange.NONE, None)]
    slave.save_if_changed()
    assert manager_of(tmp_path / "s").wrapper() == master.wrapper()
    assert slave.replace_all(master.wrapper()) == set()
    assert told == [(TopicChange.NONE, None)], "the same table changes nothing"


def test_equal_editions_do_not_hide_a_missing_topic(tmp_path: Path) -> None:
    master, slave = manager_of(tmp_path / "m"), manager_of(tmp_path / "s")
    send(master, "t")
    wrapper = master.wrapper()
    incomplete = {name: topic for name, topic in wrapper.topic_config_table.items() if name != "t"}
    slave.replace_all(replace(wrapper, topic_config_table=incomplete))
    assert (slave.find("t"), slave.data_version) == (None, wrapper.data_version)
    slave.replace_all(wrapper)
    assert slave.find("t") == master.find("t")


def test_own_system_topics_stay(tmp_path: Path) -> None:
    slave = manager_of(tmp_path / "s")
    send(slave, "t")
    master = manager_of(tmp_path / "m").wrapper()
    table = {"u": TopicConfig(topic_name="u"), "TBW102": TopicConfig(topic_name="TBW102", perm=4)}
    wrapper = replace(master, topic_config_table=table)
    assert slave.replace_all(wrapper) == {"t"}
    assert set(slave.topic_names()) == {"u", *master.topic_config_table}
    assert slave.find("TBW102") == table["TBW102"], "the master's setting counts"
    told = listened(slave)
    assert slave.replace_all(wrapper) == set()
    assert told == [], "what stays is no difference"


def test_readers_never_see_a_half_replaced_table(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    template = manager.wrapper()
    names = [f"t{number}" for number in range(300)]
    editions = [
        replace(
            template,
            data_version=replace(template.data_version, counter=perm),
            topic_config_table={name: TopicConfig(topic_name=name, perm=perm) for name in names},
        )
        for perm in (4, 6)
    ]
    manager.replace_all(editions[0])
    done = threading.Event()

    def replace_often() -> None:
        for number in range(200):
            manager.replace_all(editions[number % 2])
        done.set()

    thread = threading.Thread(target=replace_often)
    thread.start()
    missing = 0
    while not done.is_set():
        missing += sum(manager.find(name) is None for name in names)
        wrapper = manager.wrapper()
        perms = {wrapper.topic_config_table[name].perm for name in names}
        assert perms == {wrapper.data_version.counter}, "table and edition belong together"
    thread.join()
    assert missing == 0


def test_bump(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    before = manager.data_version
    manager.bump_data_version()
    assert manager.data_version.counter == before.counter + 1
    assert "TBW102" in manager.topic_names()


@pytest.mark.parametrize(
    "text", ["{}", '{"topicConfigTable":null}', '{"topicConfigTable":{"a":{}}}']
)
def test_a_file_without_the_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "topics.json").write_text(text)
    with pytest.raises(ConfigFileError):
        manager_of(tmp_path)


TOPICS_OF_5X = b"""{
\t"dataVersion":{
\t\t"counter":7,
\t\t"stateVersion":0,
\t\t"timestamp":1795391178372
\t},
\t"topicConfigTable":{
\t\t"Compacted":{
\t\t\t"attributes":{
\t\t\t\t"cleanup.policy":"COMPACTION",
\t\t\t\t"message.type":"FIFO"
\t\t\t},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"Compacted",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t},
\t\t"Plain":{
\t\t\t"attributes":{},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"Plain",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t}
\t}
}"""
"""A file of 5.3.3."""


def test_attributes_of_a_file_of_5x_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(TOPICS_OF_5X)
    manager = manager_of(tmp_path)
    assert "has no effect here" not in caplog.text
    manager.update(TopicConfig(topic_name="Compacted", perm=4))
    theirs = json_of(TOPICS_OF_5X)["topicConfigTable"]
    ours = json_of(path.read_bytes())["topicConfigTable"]
    assert ours["Compacted"]["perm"] == 4
    for name, topic in theirs.items():
        assert ours[name]["attributes"] == topic["attributes"]
    again = manager_of(tmp_path)
    assert again.find("Compacted") == manager.find("Compacted")


@pytest.mark.parametrize("name", ["%RETRY%/", "%RETRY%a/b", "%RETRY%".ljust(256, "g"), "a\nb", ""])
def test_the_brokers_own_topics_follow_the_rule_for_names(tmp_path: Path, name: str) -> None:
    manager = manager_of(tmp_path)
    with pytest.raises(RequestError, match="The specified topic"):
        manager.create(name, 1, 6)
    assert manager.find(name) is None


def test_odd_names_of_an_older_table_stay_if_they_can_be_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = {name: {"topicName": name} for name in ("%RETRY%a.b", "%RETRY%a/b")}
    (tmp_path / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    manager = manager_of(tmp_path)
    assert manager.find("%RETRY%a.b") is manager.create("%RETRY%a.b", 1, 6) is not None
    assert manager.find("%RETRY%a/b") is not None
    with pytest.raises(RequestError, match="illegal characters"):
        manager.create("%RETRY%a/b", 1, 6)
    assert "['%RETRY%a.b', '%RETRY%a/b']" in caplog.text


@pytest.mark.parametrize("name", ["%RETRY%G_".ljust(255, "T"), "%RETRY%G+".ljust(128, "T")])
def test_retry_topics_may_be_longer_than_others(tmp_path: Path, name: str) -> None:
    manager = manager_of(tmp_path)
    assert manager.create(name.replace("+", "-"), 1, 6) is not None
    assert manager.can_be_pop_retry(name)
    made = manager.create_pop_retry(name)
    assert made is not None
    assert manager.create_pop_retry(name) is made
    assert not manager.can_be_pop_retry("%RETRY%G_".ljust(256, "T"))
    with pytest.raises(RequestError, match="longer than topic max length"):
        manager.create_pop_retry("%RETRY%G_".ljust(256, "T"))


def test_without_v2_records_no_retry_topic_is_longer(tmp_path: Path) -> None:
    """autoMessageVersionOnTopicLen=false; also for one that a broker with V2 records has made."""
    name = "%RETRY%G_".ljust(128, "T")
    assert manager_of(tmp_path).create_pop_retry(name) is not None
    manager = TopicConfigManager(
        tmp_path / "topics.json", CONFIG, FakeClock(), SystemTopics(), writes_v2=False
    )
    manager.load()
    assert manager.find(name) is not None
    assert not manager.can_be_pop_retry(name)
    with pytest.raises(RequestError, match="longer than topic max length"):
        manager.create_pop_retry(name)
    assert manager.can_be_pop_retry(name[:127])
