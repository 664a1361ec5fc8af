"""broker.wiring.lost_tables: what a start puts back when a table's file is gone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.settings.startup_options import StartupOptions
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.lost_tables import stored_queues
from ipc.scheduled_executor import ScheduledExecutor
from tests.support.manual_clock import ManualClock

QUEUES = {
    "orders": 4,
    "%RETRY%g": 1,
    "%DLQ%dead": 1,
    "odd name": 2,
    "SCHEDULE_TOPIC_XXXX": 3,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
}
OFFSETS = '{"offsetTable":{"orders@readers":{0:1}}}'


def queues(root: Path) -> Path:
    directory = root / "consumequeue"
    for topic, count in QUEUES.items():
        (directory / topic / str(count - 1)).mkdir(parents=True)
    (directory / "orders" / "lost+found").mkdir()
    (directory / "empty").mkdir()
    return directory


def tables(root: Path) -> BrokerTables:
    clock = ManualClock()
    options = StartupOptions.from_settings(
        {
            "storePathRootDir": str(root),
            "brokerIP1": "127.0.0.1",
            "listenPort": "10911",
            "namesrvAddr": "",
            "rocketmqHome": str(root),
        }
    )
    made = BrokerTables(options, clock)
    made.load(ScheduledExecutor(clock))
    return made


def test_the_directories_of_queues_are_the_topics(tmp_path: Path) -> None:
    assert stored_queues(queues(tmp_path)) == QUEUES
    assert stored_queues(tmp_path / "nothing") == {}


def test_a_lost_topic_table_is_put_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = queues(tmp_path)
    found = tables(tmp_path)
    schedule = found.topics.find("SCHEDULE_TOPIC_XXXX")
    version = found.topics.data_version
    with caplog.at_level(logging.ERROR):
        found.restore_lost(directory)
    for topic, count in {"orders": 8, "%RETRY%g": 1, "%DLQ%dead": 1, "odd name": 8}.items():
        config = found.topics.find(topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (count, count, 6)
    assert found.topics.find("SCHEDULE_TOPIC_XXXX") is schedule
    assert found.topics.find("RMQ_SYS_TRANS_OP_HALF_TOPIC") is None
    assert found.topics.find("empty") is None
    assert found.topics.data_version.counter > version.counter
    assert "topics.json: is missing, but the store has messages: put back 4 topics" in caplog.text
    assert "orders (8)" in caplog.text


def test_a_topic_with_batch_queues_is_put_back_as_such(tmp_path: Path) -> None:
    (tmp_path / "batchconsumequeue" / "batches" / "2").mkdir(parents=True)
    found = tables(tmp_path)
    found.restore_lost(queues(tmp_path))
    config = found.topics.find("batches")
    assert config is not None
    assert (config.read_queue_nums, config.attributes) == (8, {"queue.type": "BatchCQ"})
    orders = found.topics.find("orders")
    assert orders is not None
    assert orders.attributes is None


def test_a_topic_with_batch_queues_that_a_table_lacks(tmp_path: Path) -> None:
    (tmp_path / "batchconsumequeue" / "batches" / "2").mkdir(parents=True)
    found = with_tables(tmp_path)
    found.restore_lacking({"batches": 3, "odd name": 2})
    kinds = {}
    for name in ("batches", "odd name"):
        config = found.topics.find(name)
        assert config is not None
        kinds[name] = config.has_batch_queues
    assert kinds == {"batches": True, "odd name": False}


def test_lost_groups_are_put_back_with_defaults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = queues(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(OFFSETS)
    found = tables(tmp_path)
    found.restore_lost(directory)
    for group in ("readers", "g", "dead"):
        config = found.groups.find(group)
        assert config is not None
        assert config.retry_queue_nums == 1
    assert "put back 3 groups" in caplog.text
    assert "dead, g, readers" in caplog.text
    assert "consumerOffset.json: is missing" not in caplog.text
    assert "delayOffset.json: is missing, but the store has messages. Lost are" in caplog.text


def test_a_first_start_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = tables(tmp_path)
    before = found.topics.topic_names()
    found.restore_lost(tmp_path / "consumequeue")
    assert found.topics.topic_names() == before
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def with_tables(root: Path) -> BrokerTables:
    config = root / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"orders":{"topicName":"orders","readQueueNums":2,'
        '"writeQueueNums":2,"perm":4}},"dataVersion":{"counter":7,"timestamp":1}}'
    )
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{}}')
    return tables(root)


def test_tables_that_were_found_stay_as_they_are(tmp_path: Path) -> None:
    directory = queues(tmp_path)
    found = with_tables(tmp_path)
    version = found.topics.data_version
    found.restore_lost(directory)
    assert found.topics.find("odd name") is None
    assert found.topics.data_version == version
    assert found.groups.find("g") is None


def test_a_master_puts_back_the_topics_that_its_table_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A promoted slave has messages of topics that it had not copied yet."""
    found = with_tables(tmp_path)
    for _ in range(2):
        found.restore_lacking(QUEUES)
        version = found.topics.data_version
        assert version.counter == 8
    for topic, count in {"%RETRY%g": 1, "%DLQ%dead": 1, "odd name": 8}.items():
        config = found.topics.find(topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (count, count, 6)
    orders = found.topics.find("orders")
    assert orders is not None
    assert (orders.read_queue_nums, orders.perm) == (2, 4)
    assert found.topics.find("RMQ_SYS_TRANS_OP_HALF_TOPIC") is None
    assert found.groups.find("g") is None
    (said,) = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert "topics.json: lacks topics that the store has messages of: put back 3 topics" in said
    assert "%DLQ%dead (1)" in said


def test_a_topic_that_is_put_back_has_the_queues_that_wait_for_messages(tmp_path: Path) -> None:
    """Halves and delayed messages are for queues that have none yet (seed 31 of mqchaos with etcd);
    a topic with more in use keeps them."""
    found = with_tables(tmp_path)
    found.restore_lacking({"new": 1, "wide": 20, "rmq_sys_wheel_timer": 1})
    made = {name: found.topics.find(name) for name in ("new", "wide", "rmq_sys_wheel_timer")}
    assert {name: config and config.read_queue_nums for name, config in made.items()} == {
        "new": 8,
        "wide": 20,
        "rmq_sys_wheel_timer": 1,
    }


def test_a_group_goes_on_where_a_lite_topic_begins_anew(tmp_path: Path) -> None:
    """Its first messages were lost, or never reached this slave; of a topic that has never had any
    nothing is known."""
    found = tables(tmp_path)
    for topic in ("%LMQ%$P$s1", "%LMQ%light", "t"):
        found.offsets.commit_offset("10.0.0.1:1", "g", topic, 0, 5)
    found.limit_to(lambda _topic, _queue_id: None)
    offsets = [
        found.offsets.query_offset("g", name, 0) for name in ("%LMQ%$P$s1", "%LMQ%light", "t")
    ]
    assert offsets == [0, 5, 5]


def test_a_kill_right_after_a_start_brings_no_offset_of_lost_messages_back(tmp_path: Path) -> None:
    """Power was lost with a queue's messages; others had their offsets when the broker was killed,
    before the tables' next save, and the group never got them."""
    first = tables(tmp_path)
    first.offsets.commit_offset("10.0.0.1:1", "g", "t", 0, 5)
    first.order_info.update(None, "t", "g", 1, 1, 60_000, [3], [])
    first.persist()
    first.order_info.save_if_changed()
    tables(tmp_path).limit_to(lambda _topic, _queue_id: 2)
    after_the_kill = tables(tmp_path)
    after_the_kill.limit_to(lambda _topic, _queue_id: 9)
    assert after_the_kill.offsets.query_offset("g", "t", 0) == 2
    assert not after_the_kill.order_info.snapshot()["table"].get("t@g")
