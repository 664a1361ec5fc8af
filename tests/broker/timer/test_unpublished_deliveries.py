"""broker.timer.unpublished_deliveries: what is in the log after a kill, and only that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.timer import unpublished_deliveries
from broker.timer.unpublished_deliveries import OPEN_SLOT, Unpublished, UnpublishedDeliveries

SLOT_MS = 1_795_391_992_000
PUT = [Unpublished(SLOT_MS, 364, 7, 5_000), Unpublished(SLOT_MS, OPEN_SLOT, 1_234, 5_300)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Left behind by a process that was killed within a turn."""
    noted = UnpublishedDeliveries(tmp_path / "timerunpublished", 1000)
    assert noted.open(4_000) == []
    for delivery in PUT:
        noted.note(delivery)
    return tmp_path / "timerunpublished"


def found(path: Path, log_end: int = 5_300, precision_ms: int = 1000) -> list[Unpublished]:
    opened = UnpublishedDeliveries(path, precision_ms)
    try:
        return opened.open(log_end)
    finally:
        opened.close()


def test_what_the_log_has_was_delivered(path: Path) -> None:
    assert found(path, 9_000) == found(path) == PUT
    assert found(path, 5_299) == PUT[:1], "its record is not whole"
    assert found(path, 4_999) == []
    assert found(path) == [], "the log goes on from there with something else"


@pytest.mark.parametrize(("log_end", "believed"), [(5_300, 2), (5_299, 1), (4_999, 0)])
def test_a_log_that_grows_after_it_was_opened_makes_nothing_true(
    path: Path, log_end: int, believed: int
) -> None:
    UnpublishedDeliveries(path, 1000).settle(log_end)
    assert found(path, 1 << 40) == PUT[:believed]


def test_what_is_not_believed_now_is_not_later(path: Path) -> None:
    """The precision changes and changes back, and the life between begins no timers."""
    UnpublishedDeliveries(path, 100).settle(5_300)
    assert found(path) == []


def test_settling_where_nothing_is(tmp_path: Path) -> None:
    UnpublishedDeliveries(tmp_path / "none", 1000).settle(0)
    assert not list(tmp_path.iterdir()), "a broker without timers has no such file"


def test_what_cannot_be_settled_is_believed_by_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def read_only(self: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        if mode == "r+b":
            raise OSError(30, "Read-only file system")
        return opened(self, mode, *more, **options)

    monkeypatch.setattr(Path, "open", read_only)
    UnpublishedDeliveries(path, 1000).settle(5_299)
    monkeypatch.undo()
    assert found(path, 1 << 40) == []


def test_what_is_noted_elsewhere_is_taken_away(path: Path) -> None:
    noted = UnpublishedDeliveries(path, 1000)
    assert noted.open(5_300) == PUT
    noted.clear()
    assert found(path) == []
    noted.note(PUT[0])
    assert found(path) == PUT[:1]


def test_another_precision(path: Path) -> None:
    assert found(path, precision_ms=100) == []


def test_another_boot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.unflushed_map.boot_id", lambda: "another")
    assert found(path) == []


def test_a_slave(path: Path) -> None:
    UnpublishedDeliveries(path, 1000).remove()
    assert found(path) == []


def test_a_file_of_another_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])
    assert found(path) == []


def test_more_than_there_is_room_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpublished_deliveries, "CAPACITY", 3)
    noted = UnpublishedDeliveries(path, 1000)
    noted.open(0)
    for number in range(5):
        noted.note(Unpublished(SLOT_MS, OPEN_SLOT, number, 10))
    assert [each.number for each in found(path)] == [0, 1, 2]
