from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from store.errors import DiskFullError
from store.store_checkpoint import StoreCheckpoint

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"


def test_golden_checkpoint_is_read_and_written_back(tmp_path: Path) -> None:
    raw = (GOLDEN / "master" / "checkpoint").read_bytes()
    path = tmp_path / "checkpoint"
    path.write_bytes(raw)
    found = StoreCheckpoint.load(path)
    assert found.physic_msg_timestamp == found.logics_msg_timestamp == 0x1A1F8EE88CC
    assert found.index_msg_timestamp == 0
    found.flush()
    assert path.read_bytes() == raw


def test_java_has_the_confirm_offset_where_we_look_for_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    raw = (GOLDEN.parent / "controller-5.3.3" / "checkpoint").read_bytes()
    path.write_bytes(raw)
    found = StoreCheckpoint.load(path)
    assert found.physic_msg_timestamp == 1795391110917
    assert (found.master_flushed_offset, found.confirm_offset) == (1014, 914)
    found.flush()
    assert path.read_bytes() == raw
    found.confirm_offset = 1377
    found.flush()
    assert path.read_bytes() == raw[:32] + (1377).to_bytes(8, "big") + raw[40:]


def test_java_has_the_offset_of_flushed_units_where_we_look_for_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    raw = (GOLDEN.parent / "store-5.5.0" / "checkpoint").read_bytes()
    path.write_bytes(raw)
    found = StoreCheckpoint.load(path)
    assert found.logics_physical_offset == 0x1BC2E
    found.flush()
    assert path.read_bytes() == raw
    found.units_end_at(0x1BC2F)
    assert found.logics_physical_offset == 0x1BC2E
    found.units_end_at(700)
    found.flush()
    assert path.read_bytes() == raw[:40] + (700).to_bytes(8, "big") + raw[48:]


def test_fields_of_later_versions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqqqq", 1, 2, 3, 4, 5, 6, 7) + bytes(4040))
    found = StoreCheckpoint.load(path)
    found.index_msg_timestamp = 9
    assert found.master_flushed_offset == 4
    found.flush()
    assert path.read_bytes() == struct.pack(">qqqqqqq", 1, 2, 9, 4, 5, 6, 7) + bytes(4040)


def test_a_full_disk_is_no_reason_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = StoreCheckpoint.load(tmp_path / "checkpoint")
    monkeypatch.setattr(os, "pwrite", no_space)
    with pytest.raises(DiskFullError, match="checkpoint: No space left"):
        found.flush()


def test_a_new_checkpoint_is_4096_bytes(tmp_path: Path) -> None:
    found = StoreCheckpoint.load(tmp_path / "checkpoint")
    assert found.min_timestamp() == 0
    found.physic_msg_timestamp = 5
    found.flush()
    assert (tmp_path / "checkpoint").read_bytes() == struct.pack(">q", 5) + bytes(4088)


@pytest.mark.parametrize("raw", [b"", bytes(100), bytes(4097), b"\xff" * 4096])
def test_what_is_no_checkpoint_counts_as_none(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(raw)
    assert StoreCheckpoint.load(path).min_timestamp(with_index=True) == 0


def test_min_timestamp_has_a_margin(tmp_path: Path) -> None:
    found = StoreCheckpoint(tmp_path / "checkpoint")
    found.physic_msg_timestamp, found.logics_msg_timestamp = 10_000, 9_000
    found.index_msg_timestamp = 500
    assert found.min_timestamp() == 6_000
    assert found.min_timestamp(with_index=True) == 500
    found.logics_msg_timestamp = 2_999
    assert found.min_timestamp() == 0


@pytest.mark.parametrize(("offset", "read"), [(1 << 40, 1 << 40), (-1, 0)])
def test_the_masters_flushed_offset(tmp_path: Path, offset: int, read: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqq", 1, 2, 3, offset, 5) + bytes(4056))
    found = StoreCheckpoint.load(path)
    assert found.master_flushed_offset == read
    found.master_flushed_offset = 7
    found.flush()
    assert path.read_bytes() == struct.pack(">qqqqq", 1, 2, 3, 7, 5) + bytes(4056)
