from __future__ import annotations

from pathlib import Path

import pytest

from store.retention_clock import CATCH_UP, SAVE_MS, RetentionClock
from tests.support.manual_clock import ManualClock

START = 1_700_000_000_000
SECOND, HOUR = 1_000, 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, monotonic_ms=5 * DAY)


def begun(clock: ManualClock, path: Path, time_ms: int = 0) -> RetentionClock:
    found = RetentionClock(clock, path / "retention.json")
    found.begin_at(time_ms)
    return found


def test_it_is_the_wall_clock(clock: ManualClock, tmp_path: Path) -> None:
    time = begun(clock, tmp_path)
    for _ in range(100):
        clock.advance(10 * SECOND)
        assert time.now_ms() == clock.now_ms()


@pytest.mark.parametrize("days", [30, -30, 20_000])
def test_a_jump_for_half_a_minute(clock: ManualClock, tmp_path: Path, days: int) -> None:
    time = begun(clock, tmp_path)
    time.now_ms()
    clock.jump_to(START + days * DAY)
    for _ in range(3):
        clock.advance(10 * SECOND)
        assert time.now_ms() <= START + CATCH_UP * 30 * SECOND
    clock.jump_to(START + 30 * SECOND)
    assert time.now_ms() <= START + 30 * SECOND
    for _ in range(120):
        clock.advance(10 * SECOND)
        assert time.now_ms() <= clock.now_ms()
    assert time.now_ms() == clock.now_ms(), "caught up"


def test_a_week_without_the_broker(clock: ManualClock, tmp_path: Path) -> None:
    """In another boot it goes on where it was, and is a day later after each hour."""
    time = begun(clock, tmp_path)
    time.now_ms()
    time.save()
    file = tmp_path / "retention.json"
    file.write_text(file.read_text().replace('"boot": "', '"boot": "another'))
    later = ManualClock(START + 7 * DAY, monotonic_ms=0)
    time = begun(later, tmp_path, START + 7 * DAY)
    assert time.now_ms() == START
    for hour in range(1, 7):
        later.advance(HOUR)
        assert time.now_ms() == START + hour * DAY
    later.advance(2 * HOUR)
    assert time.now_ms() == later.now_ms()


def test_a_stop_within_a_boot_is_known(clock: ManualClock, tmp_path: Path) -> None:
    begun(clock, tmp_path).save()
    time = begun(clock, tmp_path)
    time.now_ms()
    time.save(at_once=True)
    clock.advance(7 * DAY)
    assert begun(clock, tmp_path).now_ms() == clock.now_ms()
    clock.jump_to(clock.now_ms() + 30 * DAY)
    assert begun(clock, tmp_path).now_ms() == START + 7 * DAY, "a restart during a jump"


def test_without_a_file_it_begins_when_something_was_written(
    clock: ManualClock, tmp_path: Path
) -> None:
    assert begun(clock, tmp_path, START - 3 * DAY).now_ms() == START - 3 * DAY
    assert begun(clock, tmp_path, START + DAY).now_ms() == START
    (tmp_path / "retention.json").write_text("{}")
    assert begun(clock, tmp_path).now_ms() == START


def test_it_is_saved_now_and_then(clock: ManualClock, tmp_path: Path) -> None:
    time = begun(clock, tmp_path)
    file = tmp_path / "retention.json"
    time.now_ms()
    time.save()
    first = file.read_text()
    clock.advance(SAVE_MS - 1)
    time.now_ms()
    time.save()
    assert file.read_text() == first
    clock.advance(1)
    time.save()
    assert file.read_text() != first
    file.unlink()
    file.mkdir()
    clock.advance(SAVE_MS)
    time.save()
