"""StoreSide: what the log's writer is given."""

from __future__ import annotations

from pathlib import Path

from store.queue_room import RESERVED_ROWS
from tests.broker.route_world import built_controller


def test_rows_are_kept_for_delay_levels_timers_and_transactions(tmp_path: Path) -> None:
    with built_controller(tmp_path) as controller:
        room = controller._store.log._room
        assert room is not None
        assert room._reserved == RESERVED_ROWS


def test_a_queue_that_a_record_makes_is_read(tmp_path: Path) -> None:
    """Whoever puts it: the topic table hears of it (test_lost_topics.py)."""
    with built_controller(tmp_path) as controller:
        topics, room = controller._tables.topics, controller._store.log._room
        topics.load()
        topics.put_back("T", 0)
        assert room is not None
        room.take("T", 11)
        found = topics.find("T")
        assert found is not None
        assert (found.read_queue_nums, found.write_queue_nums) == (12, 8)
