"""Every file that a broker keeps or reads, damaged in every way: a start names it, or goes on.

The table of damages runs against the readers themselves; real processes show what an operator sees.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from broker.acl.acl_files import merge, read_files
from broker.json_config_manager import ConfigFileError, JsonConfigManager
from broker.settings.startup_options import StartupOptions
from broker.slave.promotion import read_state
from broker.wiring.broker_tables import BrokerTables
from conf.credentials import find_credentials
from conf.errors import ConfigError
from conf.settings_file import read_settings_file
from ha.replica_memory import ReplicaMemory
from ipc.clock import SystemClock
from namesrv.kv_config_manager import KVConfigError, KVConfigManager
from store.clean_exit import read_clean_exit
from store.errors import StoreError
from store.queue_states import load_queue_states
from store.resync_request import find_request
from store.store_checkpoint import StoreCheckpoint
from tests.support.our_broker import SMALL_FILES, OurBroker

TABLES: Final = {
    "topics.json": '{"topicConfigTable":{"T":{"topicName":"T","perm":6}},"dataVersion":{}}',
    "topicQueueMapping.json": '{"topicQueueMappingInfoMap":{"T":{"topic":"T","totalQueues":1}}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
    "consumerOffset.json": '{"offsetTable":{"T@G":{0:5}}}',
    "delayOffset.json": '{"offsetTable":{1:5}}',
    "consumerFilter.json": '{"filterDataByTopic":{"T":{"groupFilterData":{},"topic":"T"}}}',
}


def damages(good: str) -> dict[str, bytes | None]:
    """Each way of damage; None: a directory in its place."""
    value = next(iter(json.loads(good.replace("0:", '"0":').replace("1:", '"1":'))))
    return {
        "empty": b"",
        "zeros": bytes(64),
        "garbage": b"\x00\x93{:]",
        "cut off": good[: len(good) // 2].encode(),
        "another type": b"[1]",
        "a number": b"7",
        "wrong value": f'{{"{value}":5}}'.encode(),
        "wrong row": f'{{"{value}":{{"x":[[]]}}}}'.encode(),
        "not UTF-8": good.encode().replace(b'":', b'\xff":', 1),
        "a directory": None,
    }


def put(path: Path, data: bytes | None) -> None:
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)


def table_of(root: Path, name: str) -> JsonConfigManager:
    options = StartupOptions.from_settings(
        {
            "storePathRootDir": str(root),
            "brokerIP1": "127.0.0.1",
            "listenPort": "10911",
            "namesrvAddr": "",
            "rocketmqHome": str(root),
        }
    )
    (root / "config").mkdir(exist_ok=True)
    tables = BrokerTables(options, SystemClock())
    managers = (
        *(tables.topics, tables.mappings, tables.groups, tables.offsets),
        *(tables.schedule_offsets, tables.filters),
    )
    return next(each for each in managers if each.path.name == name)


@pytest.mark.fault(27)
@pytest.mark.parametrize("with_backup", [False, True])
@pytest.mark.parametrize("damage", damages('{"a":1}'))
@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_table_is_named_or_its_copy_counts(
    tmp_path: Path, name: str, damage: str, with_backup: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(tmp_path, name)
    put(table.path, damages(TABLES[name])[damage])
    if with_backup:
        table.backup_path.write_text(TABLES[name])
    if with_backup and damage != "a directory":
        table.load()
        assert f"{table.path}: loaded from {table.backup_path} instead" in caplog.text
        return
    with pytest.raises(ConfigFileError) as caught:
        table.load()
    text = str(caught.value)
    assert f"{table.path}: " in text
    assert "estore" in text, "the way out"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_table_without_rights_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path, "topics.json")
    table.path.write_text(TABLES["topics.json"])
    table.path.chmod(0)
    with pytest.raises(ConfigFileError, match="Permission denied"):
        table.load()


def _kv(path: Path) -> None:
    KVConfigManager(path).load()


def _acl(path: Path) -> None:
    merge(read_files(path.parent))


# path below a directory of the test -> how it is read, what it may raise
OTHERS: Final[dict[str, tuple[Callable[[Path], object], type[Exception] | None]]] = {
    "broker.conf": (read_settings_file, ConfigError),
    "plain_acl.yml": (_acl, ConfigError),
    "tools.yml": (lambda path: find_credentials(path.parent), ConfigError),
    "kvConfig.json": (_kv, KVConfigError),
    "replica.json": (read_state, StoreError),
    "resync.json": (lambda path: find_request(path.parent), StoreError),
    "clean.exit": (read_clean_exit, None),
    "queues.exit": (load_queue_states, None),
    "checkpoint": (StoreCheckpoint.load, StoreError),
    "replicas.json": (lambda path: ReplicaMemory(path, SystemClock()).load(), None),
}


@pytest.mark.parametrize("damage", damages('{"a":1}'))
@pytest.mark.parametrize("name", OTHERS)
def test_other_damaged_files_are_named(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is refused by its name, or passed over as if it were not there, never with a bare
    exception of Python."""
    read, refusal = OTHERS[name]
    path = tmp_path / name
    put(path, damages('{"configTable":{"n":{"k":"v"}}}')[damage])
    caplog.set_level(logging.WARNING)
    if refusal is None:
        read(path)
        return
    try:
        read(path)
    except refusal as error:
        told = str(error)
    else:
        return
    assert name in told


# -- what an operator sees -----------------------------------------------------------------------


@pytest.mark.fault(27)
@pytest.mark.parametrize("damage", ["cut off", "a directory"])
def test_a_broker_without_its_topics_ends_at_once(tmp_path: Path, damage: str) -> None:
    broker = OurBroker(tmp_path, **SMALL_FILES)
    path = broker.store_dir / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    put(path, damages(TABLES["topics.json"])[damage])
    with broker.start(wait=False):
        assert broker.wait_ended() == 255
        assert broker.log("broker").count("remoting: started, pid") == 1
        output = broker.output()
    assert f"{path}" in output
    assert "(line 1, column " in output or damage == "a directory"
    assert "Restore one of the two files" in output or damage == "a directory"


def test_a_broker_whose_tables_are_lost_goes_on_with_what_is_stored(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        with broker.client() as client:
            for queue_id in range(3):
                assert client.send("Lost", queue_id, b"kept").code == 0
        assert broker.terminate() == 0
        shutil.rmtree(broker.store_dir / "config")
        broker.start()
        with broker.client() as client:
            assert [each.body for each in client.pull("Lost", 2, 0).messages] == [b"kept"]
            assert client.send("Lost", 2, b"more").code == 0
        assert "put back 1 topics" in broker.log("remoting")
        assert broker.terminate() == 0
        assert broker.check().is_clean
