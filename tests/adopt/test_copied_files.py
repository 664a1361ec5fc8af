"""Copies: whole files or none, holes and times kept, never a hard link; one that was cut off goes
on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adopt import copied_files
from adopt.copied_files import check_room, copy_files, files_below
from store.errors import DiskFullError, StoreError


def nothing_out(_path: Path) -> bool:
    return False


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/sparse").write_bytes(b"begin" + bytes(3 << 20) + b"end" + bytes(2 << 20))
    (root / "plain").write_bytes(b"plain")
    (root / "plain").chmod(0o600)
    os.utime(root / "plain", ns=(1, 1_700_000_000_123_456_789))
    return root


def test_a_copy_is_the_same(source: Path, tmp_path: Path) -> None:
    target, seen = tmp_path / "target", []
    files = files_below(source, nothing_out)
    copy_files(source, files, target, lambda done, total: seen.append((done, total)))
    for path in ("a/b/sparse", "plain"):
        one, other = source / path, target / path
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_mtime_ns == other.stat().st_mtime_ns
        assert one.stat().st_mode == other.stat().st_mode
        assert other.stat().st_nlink == 1
        assert one.stat().st_ino != other.stat().st_ino
    assert (target / "a/b/sparse").stat().st_blocks * 512 < 4 << 20
    assert seen[-1] == (seen[-1][1], (source / "a/b/sparse").stat().st_size + 5)


def test_what_is_there_is_not_copied_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    files = files_below(source, nothing_out)
    (target / "a/b").mkdir(parents=True)
    (target / "plain").write_bytes(b"PLAIN")
    os.utime(target / "plain", ns=(1, (source / "plain").stat().st_mtime_ns))
    (target / "a/b/sparse").write_bytes(b"half")
    (target / "a/b/sparse.mqadopt.part").write_bytes(b"cut off")
    copy_files(source, files, target, lambda *_: None)
    assert (target / "plain").read_bytes() == b"PLAIN"
    assert (target / "a/b/sparse").read_bytes() == (source / "a/b/sparse").read_bytes()
    assert not (target / "a/b/sparse.mqadopt.part").exists()


def test_links_and_pipes_below_the_top_are_refused(source: Path) -> None:
    (source / "linked").symlink_to(source / "a")
    assert Path("linked/b/sparse") in {each.path for each in files_below(source, nothing_out)}
    (source / "a/passwd").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="a/passwd: neither a file nor a directory"):
        files_below(source, nothing_out)
    (source / "a/passwd").unlink()
    os.mkfifo(source / "a/pipe")
    with pytest.raises(StoreError, match="a/pipe: neither a file nor a directory"):
        files_below(source, nothing_out)
    assert files_below(source, lambda path: path.name == "pipe")


def test_a_loop_of_links_ends(source: Path) -> None:
    (source / "loop").symlink_to(source)
    with pytest.raises(StoreError, match="loop/loop: neither"):
        files_below(source, nothing_out)


def test_room(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_below(source, nothing_out)
    assert check_room(files, tmp_path / "x/y") > copied_files.SPARE
    monkeypatch.setattr(copied_files, "SPARE", 1 << 60)
    with pytest.raises(DiskFullError, match="bytes are needed"):
        check_room(files, tmp_path / "x/y")


def test_a_file_that_was_written_since_is_copied_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copy_files(source, files_below(source, nothing_out), target, lambda *_: None)
    changed = next(each.path for each in files_below(source, nothing_out) if each.size)
    data = bytes(each ^ 1 for each in (source / changed).read_bytes())
    (source / changed).write_bytes(data)
    os.utime(source / changed, ns=(5, 5))
    copy_files(source, files_below(source, nothing_out), target, lambda *_: None)
    assert (target / changed).read_bytes() == data
