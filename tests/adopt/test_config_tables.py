"""Topics, groups and offsets from RocksDB are what Java wrote into JSON for the same load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adopt.config_tables import (
    ConfigTables,
    json_files,
    read_json,
    read_v1,
    read_v2,
    v1_databases,
)
from adopt.rocks_database import write_database
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from store.errors import StoreError
from tests.adopt.golden_stores import OFFSETS, unpack_all


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    return directory


def test_v1_says_what_java_s_json_says(golden: Path, tmp_path: Path) -> None:
    """`double` is a broker with JSON, given the same topics, groups and offsets."""
    tables, java = read_v1(golden / "clean/config"), read_json(golden / "double/config")
    assert tables.same_as(java)
    assert tables.counts() == {"topics": 15, "groups": 10, "forbidden": 0, "offsets": 5}
    assert tables.offsets == OFFSETS
    assert tables.versions["topics.json"] == {
        "counter": 3,
        "stateVersion": 0,
        "timestamp": 1795734473852,
    }
    for name, data in json_files(tables).items():
        mine, theirs = lines(data), lines((golden / "double/config" / name).read_bytes())
        # Java's maps have an order of their own; the versions are of another day.
        assert mine - theirs <= {f'"timestamp":{v["timestamp"]}' for v in versions(tables)}
        assert {each for each in theirs - mine if "timestamp" not in each} <= GROUP_TOPICS


GROUP_TOPICS = {'"groupTopicMap":{', '"GRocks1":["TRocksA"]', '"GRocks2":["TRocksC"]'}
"""Which Java writes of its getter, and does not read."""


def versions(tables: ConfigTables) -> list[dict[str, int]]:
    return [*tables.versions.values(), {"timestamp": 0}]


def lines(data: bytes) -> set[str]:
    return {line.strip().rstrip(",") for line in data.decode().splitlines()}


def test_ours_loads_what_is_written(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(
        json_files(read_v1(golden / "pop/config"))["consumerOffset.json"]
    )
    manager = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    manager.load()
    assert manager.query_offsets("GRocks1", "TRocksB") == {
        0: 8,
        1: 0,
    }  # as Java left them: below what it popped


def test_v2(golden: Path) -> None:
    tables = read_v2(golden / "v2/config/rdb")
    assert sorted(tables.topics) == ["TRocksA", "TRocksB", "TRocksC"]
    assert sorted(tables.groups) == ["GRocks1", "GRocks2"]
    assert tables.topics["TRocksB"]["readQueueNums"] == 2
    assert (tables.offsets, tables.pull_offsets, tables.damaged) == (OFFSETS, 1, [])
    assert tables.versions["subscriptionGroup.json"]["counter"] == 3


def test_there_and_back(golden: Path, tmp_path: Path) -> None:
    """JSON as v1 databases, with forbidden topics, and read again."""
    tables = read_json(golden / "double/config")
    tables.forbidden = {"GRocks1": {"TRocksA": 4}}
    for name, families in v1_databases(tables).items():
        write_database(tmp_path / name, dict(families))
    again = read_v1(tmp_path)
    assert again.same_as(tables)
    assert again.versions == tables.versions
    written = json.loads(json_files(again)["subscriptionGroup.json"])
    assert written["forbiddenTable"] == {"GRocks1": {"TRocksA": 4}}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("topics", b"{"),
        ("topics", b"[]"),
        ("topics", b'{"topicName":"T","readQueueNums":"many"}'),
        ("groups", b'{"groupName":"G","retryMaxTimes":"many"}'),
        ("offsets", b'{"offsetTable":{"0":"x"}}'),
        ("offsets", b'{"offsetTable":{"zero":1}}'),
        ("offsets", b'{"offsetTable":{"0":9223372036854775808}}'),
        ("offsets", b"{}"),
        ("forbidden", b'{"T":true}'),
        ("topics", b"[" * 100_000),
    ],
)
def test_damaged_entries_are_named_and_left_out(kind: str, text: bytes) -> None:
    tables = ConfigTables()
    tables.add(kind, "na\nme", text)
    assert sum(tables.counts().values()) == 0
    (said,) = tables.damaged
    assert said.startswith(f"{kind} 'na\\nme': ")


def test_json_falls_back_to_its_bak(golden: Path, tmp_path: Path) -> None:
    good = (golden / "double/config/topics.json").read_bytes()
    (tmp_path / "topics.json").write_bytes(good[:100])
    (tmp_path / "topics.json.bak").write_bytes(good)
    assert len(read_json(tmp_path).topics) == 15
    (tmp_path / "topics.json.bak").write_bytes(b"")
    with pytest.raises(StoreError, match="restore one of the two"):
        read_json(tmp_path)


def test_keys_that_are_no_text_are_damage(tmp_path: Path) -> None:
    """Two of them would become one name."""
    topic = b'{"topicName":"T","readQueueNums":1,"writeQueueNums":1,"perm":6}'
    entries = [(b"T\xfe", topic), (b"T\xff", topic)]
    write_database(tmp_path / "topics", {"default": entries})
    tables = read_v1(tmp_path)
    assert tables.topics == {}
    assert len(tables.damaged) == 2


@pytest.mark.parametrize("queue", ["1_0", " 1", "01", "٣", "+1"])
def test_numbers_of_queues_have_one_form(queue: str) -> None:
    tables = ConfigTables()
    tables.add("offsets", "T@G", json.dumps({"offsetTable": {"1": 5, queue: 7}}).encode())
    assert tables.offsets == {}
    assert len(tables.damaged) == 1
