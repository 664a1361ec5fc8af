from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from store.errors import StoreError
from store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig

FIELDS = dataclasses.fields(MessageStoreConfig)
SPELLED_OTHERWISE = {"checkCRCOnRecover"}


def test_every_field_says_its_key_and_what_it_is() -> None:
    for item in FIELDS:
        assert set(item.metadata) <= {"key", "doc", "unit", "min", "max", "important"}
        assert item.metadata["doc"]
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", item.metadata["key"]).lower()
        if item.metadata["key"] not in SPELLED_OTHERWISE:
            assert snake == item.name
    assert len({item.metadata["key"] for item in FIELDS}) == len(FIELDS)


def test_defaults_are_within_their_bounds() -> None:
    config = MessageStoreConfig()
    config.validate()
    for item in FIELDS:
        value = getattr(config, item.name)
        assert item.metadata.get("min", value) <= value if "min" in item.metadata else True
        assert value <= item.metadata["max"] if "max" in item.metadata else True


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
        ({"store_path_commit_log": "/a,/b"}, "storePathCommitLog.*several paths"),
        ({"store_path_root_dir": "/a", "store_path_commit_log": "/a"}, "storePathCommitLog"),
        (
            {"disk_space_clean_forcibly_ratio": 80, "disk_space_warning_level_ratio": 70},
            "diskSpaceCleanForciblyRatio",
        ),
    ],
)
def test_contradictions_are_named(setting: dict[str, object], key: str) -> None:
    with pytest.raises(StoreError, match=key):
        MessageStoreConfig(**setting).validate()  # type: ignore[arg-type]
