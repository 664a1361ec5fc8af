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
