from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from conf.config_fields import field_specs, value_text
from store.errors import StoreError
from store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig

SPELLED_OTHERWISE = {"checkCRCOnRecover", "rocketmq.broker.multiPathSplitter"}


def test_keys_follow_from_the_names_of_the_fields() -> None:
    specs = field_specs(MessageStoreConfig)
    for spec in specs:
        assert spec.doc
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spec.key).lower()
        if spec.key not in SPELLED_OTHERWISE:
            assert snake == spec.name
    assert len({spec.key for spec in specs}) == len(specs)


def test_defaults_are_within_their_bounds() -> None:
    config = MessageStoreConfig()
    config.validate()
    for spec in field_specs(MessageStoreConfig):
        value = getattr(config, spec.name)
        assert spec.parse(value_text(value)) == value


def test_defaults_are_the_originals() -> None:
    config = MessageStoreConfig()
    assert config.mapped_file_size_commit_log == 1073741824
    assert config.mapped_file_size_consume_queue == 6_000_000
    assert config.max_message_size == 4194304
    assert config.broker_role is BrokerRole.ASYNC_MASTER
    assert config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert config.root == Path.home() / "store"
    assert config.ha_slave_fallbehind_max == 268435456
    assert config.delete_hours == {4}
    levels = config.delay_level_ms
    assert (levels[1], levels[5], levels[18], len(levels)) == (1000, 60_000, 7_200_000, 18)


def test_paths() -> None:
    config = MessageStoreConfig(store_path_root_dir="/data/store")
    assert config.commit_log_path == Path("/data/store/commitlog")
    other = dataclasses.replace(config, store_path_commit_log="~/log")
    assert other.commit_log_path == Path.home() / "log"
    assert [
        str(path)
        for path in (
            config.consume_queue_path,
            config.index_path,
            config.config_path,
            config.checkpoint_path,
            config.abort_path,
            config.lock_path,
            config.clean_exit_path,
        )
    ] == [
        f"/data/store/{name}"
        for name in (
            "consumequeue",
            "index",
            "config",
            "checkpoint",
            "abort",
            "lock",
            "clean.exit",
        )
    ]


@pytest.mark.parametrize(("size", "rounded"), [(2000, 2000), (2001, 2020), (20, 20), (1, 20)])
def test_consumequeue_files_hold_whole_entries(size: int, rounded: int) -> None:
    config = MessageStoreConfig(mapped_file_size_consume_queue=size)
    assert config.mapped_file_size_consume_queue == rounded


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4;16", {4, 16}), ("00;23;", {0, 23}), ("", set())]
)
def test_delete_hours(text: str, hours: set[int]) -> None:
    assert MessageStoreConfig(delete_when=text).delete_hours == hours


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ({"delete_when": "24"}, "deleteWhen"),
        ({"delete_when": "4,5"}, "deleteWhen"),
        ({"message_delay_level": "1s 5x"}, "messageDelayLevel"),
        ({"message_delay_level": "1"}, "messageDelayLevel"),
        (
            {"store_path_commit_log": "/a, /b", "read_only_commit_log_store_paths": "/b,/a"},
            "readOnlyCommitLogStorePaths = /b,/a: .*none could get new files",
        ),
        (
            {"store_path_root_dir": "/a", "read_only_commit_log_store_paths": "/a/index"},
            "readOnlyCommitLogStorePaths = /a/index is used",
        ),
        ({"store_path_root_dir": "/a", "store_path_commit_log": "/a"}, "storePathCommitLog"),
        (
            {"store_path_root_dir": "/a", "store_path_commit_log": "/a/compaction"},
            "storePathCommitLog",
        ),
        (
            {"disk_space_clean_forcibly_ratio": 80, "disk_space_warning_level_ratio": 70},
            "diskSpaceCleanForciblyRatio",
        ),
    ],
)
def test_contradictions_are_named(setting: dict[str, object], key: str) -> None:
    with pytest.raises(StoreError, match=key):
        MessageStoreConfig(**setting).validate()  # type: ignore[arg-type]
