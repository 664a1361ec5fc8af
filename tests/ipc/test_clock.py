from __future__ import annotations

import time
from pathlib import Path

import pytest

from ipc.clock import WALL_OFFSET, WALL_OFFSET_VARIABLE, Clock, SystemClock, process_clock
from tests.support.manual_clock import ManualClock


def test_system_clock_is_the_systems() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    assert 0 <= clock.monotonic_ms() - time.monotonic() * 1000 + 1000 < 2000


def test_manual_clock_moves_when_told() -> None:
    clock: Clock = ManualClock(now_ms=10)
    assert isinstance(clock, ManualClock)
    clock.advance(5)
    clock.jump_to(3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (3, 5)


def test_a_process_has_the_systems_clock_unless_a_file_sets_it(tmp_path: Path) -> None:
    assert type(process_clock({})) is SystemClock
    path = tmp_path / "offset"
    path.write_bytes(WALL_OFFSET.pack(0))
    clock = process_clock({WALL_OFFSET_VARIABLE: str(path)})
    for hours in (0, 1, -1, 24 * 365):
        with path.open("r+b") as file:
            file.write(WALL_OFFSET.pack(hours * 3_600_000))
        assert abs(clock.now_ms() - (time.time() + hours * 3_600) * 1000) < 1000
        assert 0 <= clock.monotonic_ms() - time.monotonic() * 1000 + 1000 < 2000


@pytest.mark.parametrize("content", [None, b""])
def test_an_offset_file_that_is_none_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "offset"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match=r"MQBROKER_WALL_OFFSET_FILE=.*unset it"):
        process_clock({WALL_OFFSET_VARIABLE: str(path)})
