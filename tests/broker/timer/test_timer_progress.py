"""broker.timer.timer_progress: believed after a kill, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.timer.timer_progress import SLOTS, TimerProgress

SLOT_MS = 1_795_391_992_000


def left_behind(path: Path) -> None:
    """By a process that was killed."""
    progress = TimerProgress(path, 1000)
    progress.open(0)
    progress.record(SLOT_MS, 7, 364, 5_000)


def found(path: Path, log_end: int = 5_000, precision_ms: int = 1000) -> tuple[int, int]:
    progress = TimerProgress(path, precision_ms)
    progress.open(log_end)
    try:
        return progress.delivered(SLOT_MS)
    finally:
        progress.close()


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerprogress")
    assert found(path) == found(path, 6_000) == (7, 364)


def test_a_shorter_log(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerprogress")
    assert found(path, 4_999) == (0, 0)
    assert found(path) == (0, 0)


def test_another_precision(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerprogress")
    assert found(path, precision_ms=100) == (0, 0)


def test_another_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(path := tmp_path / "timerprogress")
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "another")
    assert found(path) == (0, 0)


def test_a_slave(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerprogress")
    TimerProgress(path, 1000).remove()
    assert found(path) == (0, 0)


def test_a_file_of_another_size(tmp_path: Path) -> None:
    (path := tmp_path / "timerprogress").write_bytes(b"x" * 10)
    assert found(path) == (0, 0)


def test_a_slot_of_the_next_turn(tmp_path: Path) -> None:
    progress = TimerProgress(tmp_path / "timerprogress", 1000)
    progress.open(0)
    progress.record(SLOT_MS, 7, 364, 5_000)
    progress.record(SLOT_MS + SLOTS * 1000, 2, 520, 6_000)
    assert progress.delivered(SLOT_MS) == (0, 0)
    assert progress.delivered(SLOT_MS + SLOTS * 1000) == (2, 520)
    progress.clear(6_000)
    assert progress.delivered(SLOT_MS + SLOTS * 1000) == (0, 0)
    progress.close()
