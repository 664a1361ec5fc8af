"""conf.atomic_file: a crash at any step leaves the file or its backup whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from conf.atomic_file import backup_path, replace_file, write_atomic


class Crash(BaseException):
    """The process ends here: nothing behind this point runs."""


def write_until(monkeypatch: pytest.MonkeyPatch, path: Path, data: bytes, step: int) -> bool:
    """Writes with a crash before the `step`-th call that changes a directory; True if it struck."""
    calls = iter(range(1000))

    def crashing(real: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == step:
                raise Crash
            return real(*arguments, **keywords)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "link", "fsync", "open"):
            patch.setattr(os, name, crashing(getattr(os, name)))
        try:
            write_atomic(path, data, backup=True)
        except Crash:
            return True
    return False


def test_creates_directories_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_atomic(path, b"1")
    write_atomic(path, b"2")
    assert path.read_bytes() == b"2"
    assert [item.name for item in path.parent.iterdir()] == ["b.json"]


def test_backup_is_the_text_before(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    for text in (b"1", b"2", b"3"):
        write_atomic(path, text, backup=True)
    assert (path.read_bytes(), backup_path(path).read_bytes()) == (b"3", b"2")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["b.json", "b.json.bak"]


def test_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    struck = True
    step = 0
    while struck:
        path = tmp_path / f"{step}.json"
        write_atomic(path, b"1", backup=True)
        write_atomic(path, b"2", backup=True)
        struck = write_until(monkeypatch, path, b"3", step)
        assert path.read_bytes() in (b"2", b"3")
        assert backup_path(path).read_bytes() in (b"1", b"2")
        write_atomic(path, b"4", backup=True)  # what the crash left is no obstacle
        assert path.read_bytes() == b"4"
        step += 1
    assert step > 5


def test_the_new_text_is_on_disk_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves the name with nothing in it."""
    path = tmp_path / "b.json"
    steps: list[tuple[str, str, int]] = []
    fsync, replace = os.fsync, os.replace

    def note_sync(fd: int) -> None:
        place = os.readlink(f"/proc/self/fd/{fd}")
        is_file = os.path.isfile(place)
        steps.append(("sync", os.path.basename(place), os.fstat(fd).st_size if is_file else 0))
        fsync(fd)

    def note_replace(source: Path, target: Path) -> None:
        steps.append(("name", target.name, 0))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_atomic(path, b"twelve bytes")
    assert steps == [
        ("sync", "b.json.tmp", 12),
        ("name", "b.json", 0),
        ("sync", tmp_path.name, 0),
    ]


def test_damaged_file_does_not_replace_a_good_backup_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old text may be torn by another program: until the new one is there, .bak stays."""
    for step in range(20):
        path = tmp_path / f"{step}.json"
        path.write_bytes(b"torn")
        backup_path(path).write_bytes(b"good")
        write_until(monkeypatch, path, b"new", step)
        assert path.read_bytes() == b"new" or backup_path(path).read_bytes() == b"good"


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "b.json"
    for text in (b"1", b"2"):
        write_atomic(path, text, backup=True)
    assert (path.read_bytes(), backup_path(path).read_bytes()) == (b"2", b"1")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"1")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"2"


def test_a_link_that_leads_nowhere_is_an_os_error_or_replaced(tmp_path: Path) -> None:
    """Callers go on without the file after an OSError; anything else would end their process."""
    (tmp_path / "loop").symlink_to("loop")
    write_atomic(tmp_path / "loop", b"1")
    assert (tmp_path / "loop").read_bytes() == b"1"
    (tmp_path / "gone").symlink_to("missing/file")
    with pytest.raises(OSError, match="missing"):
        replace_file(tmp_path / "gone", b"1")


def test_the_mode_of_a_file_that_holds_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.yml"
    write_atomic(path, b"old", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    write_atomic(path, b"new", backup=True, mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert backup_path(path).stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"new"


def test_a_backup_is_no_more_open_than_the_file(tmp_path: Path) -> None:
    """It has keys, too; so has what a crash left behind while somebody had it open."""
    path = tmp_path / "keys.yml"
    left_behind = path.with_name("keys.yml.tmp")
    for each in (path, left_behind):
        each.write_bytes(b"old")
        each.chmod(0o644)
    with left_behind.open("rb") as watching:
        write_atomic(path, b"new", backup=True, mode=0o640)
        assert watching.read() == b"old"
    assert path.stat().st_mode & 0o777 == 0o640
    assert backup_path(path).stat().st_mode & 0o777 == 0o640
    assert backup_path(path).read_bytes() == b"old"
