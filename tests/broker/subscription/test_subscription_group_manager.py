"""subscription_group_manager: built-in groups, automatic creation, changes, file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.json_config_manager import ConfigFileError
from broker.settings.broker_config import BrokerConfig
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from tests.broker.broker_fakes import CONFIG, GOLDEN_CONFIG, FakeClock, golden, json_of


def manager_of(tmp_path: Path, config: BrokerConfig = CONFIG) -> SubscriptionGroupManager:
    manager = SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config, FakeClock())
    manager.load()
    return manager


def test_built_in_groups_are_those_of_java(tmp_path: Path) -> None:
    _, answer = golden(201)
    assert answer is not None
    java, ours = json_of(answer.body), json_of(manager_of(tmp_path).encode())
    assert ours["subscriptionGroupTable"] == java["subscriptionGroupTable"]
    assert ours["dataVersion"]["counter"] == java["dataVersion"]["counter"] == 0
    assert set(ours) == set(java)


@pytest.mark.parametrize(
    ("auto", "group", "made"),
    [
        (True, "g", True),
        (False, "g", False),
        (False, "CID_RMQ_SYS_TRANS", True),
        (False, "TOOLS_CONSUMER", True),
    ],
)
def test_automatic_creation(tmp_path: Path, auto: bool, group: str, made: bool) -> None:
    manager = manager_of(tmp_path, replace(CONFIG, auto_create_subscription_group=auto))
    found = manager.find_or_create(group)
    assert (found == SubscriptionGroupConfig(group_name=group)) is made
    assert (manager.find(group) is not None) is made


def test_creation_is_saved_once(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.find_or_create("g")
    version = manager.data_version
    manager.find_or_create("g")
    assert manager.data_version == version
    assert version.counter == 1
    assert manager_of(tmp_path).find("g") is not None


def test_a_group_that_stored_pops_belong_to_is_put_back_unless_it_was_deleted_here(
    tmp_path: Path,
) -> None:
    manager = manager_of(tmp_path, replace(CONFIG, auto_create_subscription_group=False))
    assert manager.find_or_put_back("g") == SubscriptionGroupConfig(group_name="g")
    assert manager.find_or_put_back("g") is manager.find("g")
    assert manager.data_version.counter == 1
    manager.delete("g")
    manager.delete("unknown")
    assert manager.find_or_put_back("g") is None
    assert manager.find_or_put_back("unknown") is not None


def test_update_delete_disable(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=3)
    assert manager.update(config)
    assert manager.find("g") is config
    manager.disable_consume("g")
    manager.disable_consume("g")
    manager.disable_consume("unknown")
    found = manager.find("g")
    assert found == replace(config, consume_enable=False)
    assert manager.data_version.counter == 2
    assert manager.delete("g")
    assert manager.delete("g")
    assert manager.data_version.counter == 3
    assert manager_of(tmp_path).find("g") is None
    assert "TOOLS_CONSUMER" in manager.group_names()


def test_a_java_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    java = (GOLDEN_CONFIG / "subscriptionGroup.json").read_bytes()
    path.write_bytes(java)
    manager_of(tmp_path).persist()
    assert json_of(path.read_bytes()) == json_of(java)
    assert sorted(path.read_bytes().replace(b",", b"").split(b"\n")) == sorted(
        java.replace(b",", b"").split(b"\n")
    )


def test_the_forbidden_table_of_5_x_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_text(
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},'
        '"forbiddenTable":{"g":{"t":1}},"subscriptionGroupTable":{"g":{"groupName":"g",'
        '"attributes":{},"groupSysFlag":0,"consumeTimeoutMinute":15}}}'
    )
    manager_of(tmp_path).persist()
    saved = json_of(path.read_bytes())
    assert saved["forbiddenTable"] == {"g": {"t": 1}}
    assert saved["subscriptionGroupTable"]["g"]["consumeTimeoutMinute"] == 15


def test_a_slave_takes_its_masters_table(tmp_path: Path) -> None:
    master, slave = manager_of(tmp_path / "m"), manager_of(tmp_path / "s")
    master.find_or_create("g")
    slave.find_or_create("only-here")
    slave.save_if_changed()
    changes = slave.changes
    assert slave.replace_all(master.wrapper()) == {"only-here"}
    assert slave.wrapper() == master.wrapper()
    assert slave.replace_all(master.wrapper()) == set()
    assert slave.changes == changes + 1, "the same table is no change"
    slave.save_if_changed()
    assert json_of((tmp_path / "s" / "subscriptionGroup.json").read_bytes()) == json_of(
        master.encode()
    )


def test_equal_editions_do_not_hide_a_missing_group(tmp_path: Path) -> None:
    master, slave = manager_of(tmp_path / "m"), manager_of(tmp_path / "s")
    master.find_or_create("g")
    wrapper = master.wrapper()
    slave.replace_all(replace(wrapper, subscription_group_table={}))
    assert (slave.find("g"), slave.data_version) == (None, wrapper.data_version)
    assert "TOOLS_CONSUMER" in slave.group_names(), "every broker has it"
    slave.replace_all(wrapper)
    assert slave.wrapper() == wrapper


def test_the_forbidden_table_comes_from_the_master(tmp_path: Path) -> None:
    slave = manager_of(tmp_path)
    wrapper = replace(slave.wrapper(), forbidden_table={"g": {"t": 1}})
    slave.replace_all(wrapper)
    assert slave.wrapper() == wrapper


def test_a_group_may_be_forbidden_a_topic(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    assert manager.is_readable("g", "t")
    assert manager.update_readable("g", "t", False)
    assert manager.update_readable("g", "u", False)
    assert manager.update_readable("h", "t", False)
    assert [manager.is_readable(*at) for at in (("g", "t"), ("g", "v"), ("i", "t"))] == [
        *(False, True, True)
    ]
    saved = json_of((tmp_path / "subscriptionGroup.json").read_bytes())
    assert saved["forbiddenTable"] == {"g": {"t": 4, "u": 4}, "h": {"t": 4}}, "Java's bit"
    version = manager.data_version.counter
    assert manager.update_readable("g", "t", True)
    assert manager.update_readable("h", "t", True)
    assert manager.data_version.counter == version + 2
    again = manager_of(tmp_path)
    assert again.wrapper().forbidden_table == {"g": {"u": 4}}, "u stays forbidden"
    assert (again.is_readable("g", "t"), again.is_readable("g", "u")) == (True, False)


def test_other_bits_of_the_forbidden_table_stay(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.replace_all(replace(manager.wrapper(), forbidden_table={"g": {"t": 3, "n": -1}}))
    assert manager.is_readable("g", "t")
    assert manager.is_readable("g", "n"), "Java takes a negative number as 0"
    manager.update_readable("g", "t", False)
    assert manager.wrapper().forbidden_table == {"g": {"t": 7, "n": -1}}
    manager.update_readable("g", "t", True)
    assert manager.wrapper().forbidden_table == {"g": {"t": 3, "n": -1}}


def test_a_deleted_group_is_forbidden_nothing(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.find_or_create("g")
    manager.update_readable("g", "t", False)
    manager.update_readable("h", "t", False)
    manager.delete("g")
    assert manager.wrapper().forbidden_table == {"h": {"t": 4}}


@pytest.mark.parametrize(
    "text", ["{}", '{"subscriptionGroupTable":null}', '{"subscriptionGroupTable":{"a":{}}}']
)
def test_a_file_without_the_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "subscriptionGroup.json").write_text(text)
    with pytest.raises(ConfigFileError):
        manager_of(tmp_path)
