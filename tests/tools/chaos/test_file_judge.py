"""tools.chaos.file_judge: a table that a broker has not saved is found in its files."""

from __future__ import annotations

import json
from pathlib import Path

from tools.chaos.file_judge import file_violations, table_violations
from tools.chaos.scratch_group import ScratchBroker


class Group:
    """What is used of a ScratchGroup."""

    def __init__(self, *brokers: ScratchBroker) -> None:
        self.brokers = list(brokers)
        self.master, *self.slaves = brokers


def broker(directory: Path, *topics: str) -> ScratchBroker:
    config = directory / "store" / "config"
    config.mkdir(parents=True)
    table = {topic: {"topicName": topic} for topic in topics}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return ScratchBroker(directory.name, directory, {})


def test_a_topic_that_a_slave_did_not_save(tmp_path: Path) -> None:
    master, slave = broker(tmp_path / "master", "A", "B"), broker(tmp_path / "slave", "A")
    group = Group(master, slave)
    assert table_violations(group, ["A"]) == []  # type: ignore[arg-type]
    missing = "slave: topic B is not in its table's file"
    assert table_violations(group, ["A", "B"]) == [missing]  # type: ignore[arg-type]
    (slave.store / "config" / "topics.json").unlink()
    assert len(table_violations(group, ["A", "B"])) == 2  # type: ignore[arg-type]


def test_logs_that_part_and_a_store_that_is_not_whole(tmp_path: Path) -> None:
    master, slave = broker(tmp_path / "master"), broker(tmp_path / "slave")
    for each, data in ((master, b"abcd"), (slave, b"abXd")):
        (each.store / "commitlog").mkdir()
        (each.store / "commitlog" / f"{0:020d}").write_bytes(data)
    found = file_violations(Group(master, slave))  # type: ignore[arg-type]
    assert found[0] == "the logs part at byte 2 of 4 and 4"
    assert [text.partition(":")[0] for text in found[1:]] == [
        "store.check of master",
        "store.check of slave",
    ]
