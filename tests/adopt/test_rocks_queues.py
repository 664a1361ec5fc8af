"""Units and bounds of RocksDB, counted against a log."""

from __future__ import annotations

from pathlib import Path

from adopt.rocks_codec import Bound, Unit, UnitKey, encode_bound, encode_unit, encode_unit_key
from adopt.rocks_database import write_database
from adopt.rocks_queues import count_units, read_bounds
from tests.adopt.golden_stores import QUEUES, unpack_all


def test_of_a_killed_java_broker(tmp_path: Path) -> None:
    unpack_all(tmp_path)
    found = read_bounds(tmp_path / "killed/consumequeue")
    count_units(tmp_path / "killed/consumequeue", found, 0, 259540, lambda: None)
    assert (found.checkpoint, found.lost, found.damaged) == (236940, 0, [])
    assert found.units == QUEUES
    assert found.ends == QUEUES


def test_what_the_log_lacks_at_either_end(tmp_path: Path) -> None:
    units = [
        (encode_unit_key(UnitKey("T", 0, n)), encode_unit(Unit(100 * n, 100, 0, 0)))
        for n in range(10)
    ]
    bounds = [encode_bound(Bound("T", 0, True, 300, 3)), encode_bound(Bound("U", 1, True, 0, 41))]
    write_database(
        tmp_path / "db",
        {"default": [*units, (b"\0", b"odd")], "offset": [*bounds, (b"\0\0", b"odd")]},
    )
    found = read_bounds(tmp_path / "db")
    count_units(tmp_path / "db", found, 250, 700, lambda: None)
    assert found.units == {("T", 0): 4}
    assert found.lost == 3
    # The bound of T is behind its units; U has none any more.
    assert found.ends == {("T", 0): 10, ("U", 1): 42}
    assert len(found.damaged) == 2
