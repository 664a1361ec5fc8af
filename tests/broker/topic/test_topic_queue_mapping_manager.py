"""broker.topic.topic_queue_mapping_manager: what is accepted, the file, what others are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.json_config_manager import ConfigFileError
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from remoting.body.data_version import DataVersion
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RequestError
from tests.broker.broker_fakes import FakeClock
from tests.remoting.body.test_topic_queue_mapping import FILE

ITEM = LogicQueueMappingItem(bname="broker-a")
DETAIL = TopicQueueMappingDetail(
    topic="T", total_queues=1, bname="broker-a", epoch=7, hosted_queues={0: [ITEM]}
)


def manager_of(directory: Path) -> TopicQueueMappingManager:
    manager = TopicQueueMappingManager(
        directory / "topicQueueMapping.json", "broker-a", FakeClock()
    )
    manager.load()
    return manager


def test_a_file_of_java_is_read_and_written_alike(tmp_path: Path) -> None:
    path = tmp_path / "topicQueueMapping.json"
    path.write_text(FILE)
    manager = manager_of(tmp_path)
    manager.persist()
    assert path.read_text() == FILE
    assert (tmp_path / "topicQueueMapping.json.bak").read_text() == FILE
    loose = FILE.replace('"StaticT":{', "StaticT:{").replace('"gen":0', '"gen":"0"')
    path.write_text(loose)
    assert manager_of(tmp_path).table == manager.table


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "topicQueueMapping.json"
    path.write_text(FILE[:-40])
    with pytest.raises(ConfigFileError, match=r"cannot load .*topicQueueMapping.json"):
        manager_of(tmp_path)
    (tmp_path / "topicQueueMapping.json.bak").write_text(FILE)
    assert list(manager_of(tmp_path).table) == ["StaticT"]
    path.write_text("{}")
    (tmp_path / "topicQueueMapping.json.bak").unlink()
    with pytest.raises(ConfigFileError, match="has no topicQueueMappingInfoMap"):
        manager_of(tmp_path)


def test_without_static_topics_there_is_no_file_and_21_is_that_of_4_9(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    assert manager.save_if_changed()
    assert list(tmp_path.iterdir()) == []
    wrapper = TopicConfigSerializeWrapper()
    assert manager.with_mappings(wrapper) is wrapper
    assert manager.delete("T")


def test_an_update_is_saved_and_told(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    table = manager.table
    assert manager.update(DETAIL, force=False)
    assert manager.table is table, "processors hold it"
    assert table == {"T": DETAIL}
    assert manager.data_version.counter == 1
    assert manager_of(tmp_path).table == table
    assert manager.infos({"T"})["T"].curr_id_map == {0: 0}
    assert manager.infos({"other"}) == {}
    told = manager.with_mappings(TopicConfigSerializeWrapper())
    assert told.topic_queue_mapping_detail_map == table
    assert told.mapping_data_version == manager.data_version
    assert manager.delete("T")
    told = manager.with_mappings(TopicConfigSerializeWrapper())
    assert told.topic_queue_mapping_detail_map == {}
    assert manager_of(tmp_path).table == {}


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        (replace(DETAIL, bname="broker-b"), "is of broker 'broker-b', this is broker 'broker-a'"),
        (replace(DETAIL, hosted_queues={-1: [ITEM]}), "The global queue id -1 is negative"),
        (replace(DETAIL, hosted_queues={0: []}), "The global queue id 0 has no items"),
        (replace(DETAIL, hosted_queues={0: [ITEM, ITEM]}), "The gen does not increase"),
        (replace(DETAIL, epoch=6), "Can't accept data with small epoch 6 < 7"),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, wrong: TopicQueueMappingDetail, remark: str
) -> None:
    manager = manager_of(tmp_path)
    manager.update(DETAIL, force=False)
    before = manager.path.read_bytes()
    with pytest.raises(RequestError) as error:
        manager.update(wrong, force=False)
    assert error.value.code == 1
    assert remark in error.value.remark
    assert manager.table == {"T": DETAIL}
    assert manager.path.read_bytes() == before


def test_a_slave_takes_over_the_masters_table(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.update(DETAIL, force=False)
    version = DataVersion(counter=9, timestamp=1, state_version=0)
    other = replace(DETAIL, topic="U")
    manager.replace_all({"U": other}, version)
    assert manager.save_if_changed()
    assert manager_of(tmp_path).table == {"U": other}
    assert manager.data_version == version
    manager.replace_all({}, None)
    assert manager.table == {}, "the master has none"


def test_items_are_replaced_only_where_nothing_changed_meanwhile(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.update(DETAIL, force=False)
    old = manager.table["T"]
    new = replace(old, hosted_queues={})
    manager.update(replace(DETAIL, epoch=8), force=False)
    assert not manager.replace_items(old, new)
    assert manager.replace_items(manager.table["T"], new)
    assert manager.table == {"T": new}
