"""broker.timer.early_deliveries: believed after a kill and an orderly stop, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.timer.early_deliveries import EarlyDeliveries

SLOT_MS = 1_795_391_992_000


def left_behind(path: Path) -> EarlyDeliveries:
    """By a process that was killed, unless it is closed."""
    early = EarlyDeliveries(path, 1000)
    early.open(0)
    assert not path.exists()
    for phy_offset in (700, 300):
        assert early.claim(SLOT_MS, 4_000)
        early.record(SLOT_MS, phy_offset, 5_000)
    return early


def found(path: Path, log_end: int = 5_000, precision_ms: int = 1000) -> frozenset[int]:
    early = EarlyDeliveries(path, precision_ms)
    early.open(log_end)
    return early.of_slot(SLOT_MS)


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerearly")
    assert found(path) == found(path, 6_000) == {300, 700}
    assert path.stat().st_size == 4096 + 8 * 32_768 * 8


def test_the_layout(tmp_path: Path) -> None:
    left_behind(path := tmp_path / "timerearly")
    raw = path.read_bytes()
    assert int.from_bytes(raw[:8], "little") == len(raw)
    assert int.from_bytes(raw[16:24], "little") == 5_000
    assert int.from_bytes(raw[88:96], "little") == SLOT_MS // 1000
    assert int.from_bytes(raw[96:104], "little") == 2
    assert int.from_bytes(raw[4096:4104], "little") == 700


def test_what_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timerearly"
    left_behind(path)
    assert found(path, 4_999) == frozenset()
    assert found(path) == frozenset(), "it was cleared"
    path.unlink()
    left_behind(path)
    assert found(path, precision_ms=100) == frozenset()
    path.unlink()
    left_behind(path)
    EarlyDeliveries(path, 1000).remove()
    assert found(path) == frozenset()
    path.write_bytes(b"x" * 10)
    assert found(path) == frozenset()
    path.unlink()
    left_behind(path)
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "another")
    assert found(path) == frozenset()


def test_an_orderly_stop_outlives_the_boot_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(path := tmp_path / "timerearly").close()
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "another")
    assert found(path) == {300, 700}
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "a third")
    assert found(path) == frozenset()


def test_eight_slots_have_places_until_they_are_over(tmp_path: Path) -> None:
    early = EarlyDeliveries(tmp_path / "timerearly", 1000)
    early.open(0)
    slots_ms = [SLOT_MS + number * 1000 for number in range(9)]
    for number, slot_ms in enumerate(slots_ms[:8]):
        early.record(slot_ms, number, 10)
    assert not early.claim(slots_ms[8], 10)
    early.record(slots_ms[8], 8, 10)
    assert early.of_slot(slots_ms[8]) == frozenset()
    early.free_before(slots_ms[1])
    assert early.of_slot(slots_ms[0]) == frozenset()
    assert early.of_slot(slots_ms[1]) == {1}
    early.record(slots_ms[8], 8, 10)
    assert early.of_slot(slots_ms[8]) == {8}
    early.close()


def test_a_file_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_args: object) -> int:
        raise PermissionError("no")

    early = EarlyDeliveries(tmp_path / "timerearly", 1000)
    early.open(0)
    monkeypatch.setattr(os, "open", refuse)
    assert not early.claim(SLOT_MS, 0)
    assert not early.claim(SLOT_MS, 0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
