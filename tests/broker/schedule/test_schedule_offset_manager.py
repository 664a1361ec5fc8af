"""broker.schedule.schedule_offset_manager: delay offsets and their exact file."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.schedule.schedule_offset_manager import ScheduleOffsetManager, parse_delay_offset_table
from tests.broker.broker_fakes import GOLDEN_CONFIG


def manager_of(tmp_path: Path) -> ScheduleOffsetManager:
    manager = ScheduleOffsetManager(tmp_path / "delayOffset.json")
    manager.load()
    return manager


def test_the_file_is_javas_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    java = (GOLDEN_CONFIG / "delayOffset.json").read_bytes()
    path.write_bytes(java)
    manager = manager_of(tmp_path)
    manager.persist()
    assert path.read_bytes() == java
    assert manager.offsets() == {1: 1, 2: 1, 3: 3}


def test_update(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    assert manager.find_offset(3) is None
    manager.update_offset(3, 9)
    assert manager.find_offset(3) == 9
    assert manager.encode() == b'{"offsetTable":{3:9}}'
    manager.save_if_changed()
    manager.path.unlink()
    manager.update_offset(3, 9)
    manager.save_if_changed()
    assert not manager.path.exists(), "the same offset is no change"


def test_a_slave_takes_its_masters_table(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.update_offset(1, 7)
    manager.update_offset(2, 9)
    manager.replace_all({2: 5})
    assert manager.offsets() == {2: 5}, "lower and missing ones, too"
    manager.save_if_changed()
    assert manager_of(tmp_path).offsets() == {2: 5}
    changes = manager.changes
    manager.replace_all({2: 5})
    assert manager.changes == changes, "the same table is no change"


def test_what_a_slave_delivered_itself_is_not_taken_back(tmp_path: Path) -> None:
    """By a master that does not know of it yet."""
    manager = manager_of(tmp_path)
    manager.update_own(2, 9)
    manager.replace_all({1: 4, 2: 5})
    assert manager.offsets() == {1: 4, 2: 9}
    manager.replace_all({2: 12})
    assert manager.offsets() == {2: 12}


def test_a_table_of_5_x_is_read() -> None:
    value = {"offsetTable": {"2": 5}, "dataVersion": {"counter": 1}}
    assert parse_delay_offset_table(value) == {2: 5}
    with pytest.raises(ValueError, match="offsetTable"):
        parse_delay_offset_table({})
