"""LmqConsumerOffsetManager: the file and the body of 43 as Java's, one offset for a light group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager, parse_offset_table
from broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager
from tests.store import lmq_golden


def manager(root: Path) -> LmqConsumerOffsetManager:
    found = LmqConsumerOffsetManager(root / "lmqConsumerOffset.json", root / "consumerOffset.json")
    found.load()
    return found


def test_the_file_and_the_body_are_javas(tmp_path: Path) -> None:
    """4.9's, byte for byte; 5.3 has two members more."""
    golden = lmq_golden.load("4.9.7")
    offsets = manager(tmp_path)
    for group in ("%LMQ%g", "g"):
        offsets.commit_offset("c", group, "%LMQ%a", 0, 2)
    assert offsets.save_if_changed()
    assert (tmp_path / "lmqConsumerOffset.json").read_text() == golden.offsets_file
    assert offsets.encode().hex() == golden.answers(43)[0]["body"]


@pytest.mark.parametrize("version", lmq_golden.VERSIONS)
def test_javas_file_is_read(tmp_path: Path, version: str) -> None:
    golden = lmq_golden.load(version)
    (tmp_path / "lmqConsumerOffset.json").write_text(golden.offsets_file)
    offsets = manager(tmp_path)
    assert offsets.query_offset("%LMQ%g", "%LMQ%a", 0) == 2
    assert offsets.query_offset("%LMQ%g", "%LMQ%a", 3) == 2, "whatever the queue"
    assert offsets.query_offset("g", "%LMQ%a", 0) == 2
    assert offsets.query_offset("g", "%LMQ%a", 3) is None


def test_a_light_group_has_one_offset(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    offsets.commit_offset("c", "%LMQ%g", "T", 5, 9)
    assert offsets.query_offsets("%LMQ%g", "T") == {0: 9}
    assert json.loads(offsets.encode()) == {"lmqOffsetTable": {"T@%LMQ%g": 9}, "offsetTable": {}}
    assert offsets.remove_group("%LMQ%g") == 1
    assert offsets.query_offset("%LMQ%g", "T", 0) is None


def test_the_first_start_takes_over_the_ordinary_offsets(tmp_path: Path) -> None:
    ordinary = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    ordinary.load()
    ordinary.commit_offset("c", "g", "T", 1, 7)
    assert ordinary.save_if_changed()
    offsets = manager(tmp_path)
    assert not offsets.was_missing
    assert offsets.query_offset("g", "T", 1) == 7
    offsets.commit_offset("c", "g", "T", 1, 8)
    assert offsets.save_if_changed()
    assert manager(tmp_path).query_offset("g", "T", 1) == 8


def test_nothing_to_take_over(tmp_path: Path) -> None:
    assert manager(tmp_path).was_missing


def test_a_slave_takes_the_light_groups_offsets(tmp_path: Path) -> None:
    """Unlike Java's, which loses them (its issue 9711)."""
    body = bytes.fromhex(lmq_golden.load("5.3.3").answers(43)[0]["body"])
    text = body.replace(b"{0:", b'{"0":')
    table = parse_offset_table(json.loads(text))
    offsets = manager(tmp_path)
    assert offsets.merge_from_master(table, {}) == 2
    assert offsets.query_offset("%LMQ%g", "%LMQ%a", 0) == 2
