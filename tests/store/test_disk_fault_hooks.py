"""store.disk_fault_hooks: off without the variable; with it each fault, and what a disk has."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import disk_fault_hooks
from store.disk_fault_hooks import VARIABLE, DiskFaults, install_disk_faults
from store.errors import StoreError
from store.file_system_sync import FileSystemSync
from tools.chaos.scratch_disk import ScratchDisk

ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096
HOOKED = ("fsync", "fdatasync", "posix_fallocate", "pwrite", "write")


@pytest.fixture
def disk(tmp_path: Path) -> ScratchDisk:
    root = tmp_path / "store"
    root.mkdir()
    return ScratchDisk(tmp_path / "control", root)


@pytest.fixture
def hooks(disk: ScratchDisk) -> DiskFaults:
    """Not installed: called directly."""
    return DiskFaults(Path(disk.environment[VARIABLE]))


@pytest.fixture
def file(disk: ScratchDisk) -> Iterator[int]:
    fd = os.open(disk.root / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_without_a_place_for_copies_none_is_made(tmp_path: Path) -> None:
    """And the disk can still be full."""
    root = tmp_path / "store"
    root.mkdir()
    disk = ScratchDisk(tmp_path / "control", root, keeps_copies=False)
    hooks = DiskFaults(Path(disk.environment[VARIABLE]))
    with (root / "file").open("wb") as file:
        hooks.fsync(file.fileno())
        disk.set_fault("full_disk")
        with pytest.raises(OSError, match="No space left"):
            hooks.posix_fallocate(file.fileno(), 0, 1)
    assert not disk.durable.exists()


def on_disk(disk: ScratchDisk, fd: int) -> bytes:
    return (disk.durable / f"{os.fstat(fd).st_ino}.disk").read_bytes()


def test_without_the_variable_the_calls_are_the_systems_own() -> None:
    """In a process that has loaded all that writes: nothing is slower by a single call."""
    script = (
        "import os, posix\n"
        "from broker.__main__ import install_disk_faults\n"
        "import broker.processes.store, broker.processes.remoting, broker.processes.ha\n"
        "assert install_disk_faults(os.environ) is None\n"
        f"assert all(getattr(os, n) is getattr(posix, n) for n in {HOOKED})\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != VARIABLE}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


def test_with_the_variable_they_are_not_and_the_broker_says_so(disk: ScratchDisk) -> None:
    script = (
        "import os, posix\n"
        "from store import disk_fault_hooks as hooks\n"
        "print(hooks.install_disk_faults(os.environ))\n"
        f"assert not any(getattr(os, n) is getattr(posix, n) for n in {HOOKED})\n"
        "assert hooks.are_installed()\n"
    )
    environment = {**os.environ, **disk.environment}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.startswith(f"DISK FAULTS ARE INJECTED ({VARIABLE}=")


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_directory_that_is_none_of_mqchaos(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "fault.json").write_text(content)
    with pytest.raises(StoreError, match=f"unset {VARIABLE}"):
        install_disk_faults({VARIABLE: str(tmp_path)})
    assert not disk_fault_hooks.are_installed()


def test_a_sync_keeps_what_was_written_and_nothing_later(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    os.pwrite(file, b"a" * PAGE, 0)
    os.ftruncate(file, 3 * PAGE)
    hooks.fdatasync(file)
    os.pwrite(file, b"b" * PAGE, PAGE)
    assert on_disk(disk, file) == b"a" * PAGE + bytes(2 * PAGE)
    hooks.fsync(file)
    assert on_disk(disk, file) == b"a" * PAGE + b"b" * PAGE + bytes(PAGE)
    os.ftruncate(file, PAGE)
    os.ftruncate(file, 3 * PAGE)
    hooks.fsync(file)
    assert on_disk(disk, file) == b"a" * PAGE + bytes(2 * PAGE)


def test_a_directory_keeps_the_names_of_its_last_sync(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    directory = os.open(disk.root, os.O_RDONLY | os.O_DIRECTORY)
    hooks.fsync(directory)
    (disk.root / "later").touch()
    names = json.loads((disk.durable / f"{os.fstat(directory).st_ino}.names").read_bytes())
    os.close(directory)
    assert names == {"file": os.fstat(file).st_ino}


def test_files_elsewhere_are_left_alone(
    disk: ScratchDisk, hooks: DiskFaults, tmp_path: Path
) -> None:
    disk.arm_error("")
    fd = os.open(tmp_path / "store.log", os.O_RDWR | os.O_CREAT)
    hooks.fsync(fd)
    disk.set_fault("full_disk")
    assert hooks.pwrite(fd, b"x" * PAGE, 0) == PAGE
    hooks.posix_fallocate(fd, 0, 1 << 20)
    os.close(fd)
    assert list(disk.durable.glob("*.disk")) == []


def test_a_failed_sync_is_one_and_its_pages_reach_the_disk_only_when_written_again(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    hooks.pwrite(file, b"a" * PAGE, 0)
    hooks.fdatasync(file)
    hooks.pwrite(file, b"b" * PAGE + b"c" * PAGE, PAGE)
    disk.arm_error("/elsewhere")
    hooks.fdatasync(file)
    disk.arm_error("/file")
    hooks.pwrite(file, b"B" * PAGE + b"C" * PAGE, PAGE)
    before = time.monotonic()
    with pytest.raises(OSError, match="Input/output error") as error:
        hooks.fdatasync(file)
    assert error.value.errno == errno.EIO
    assert before <= (disk.failed_at() or 0.0) <= time.monotonic()
    hooks.pwrite(file, b"d" * PAGE, 3 * PAGE)
    hooks.fdatasync(file)
    old = b"a" * PAGE + b"b" * PAGE + b"c" * PAGE
    assert on_disk(disk, file) == old + b"d" * PAGE, "the kernel calls the failed pages clean"
    hooks.pwrite(file, b"B" * PAGE, PAGE)
    hooks.fdatasync(file)
    assert on_disk(disk, file)[PAGE : 3 * PAGE] == b"B" * PAGE + b"c" * PAGE
    os.pwrite(file, b"X", 2 * PAGE)  # As through a mapping: the page is dirty, for it has changed.
    hooks.fdatasync(file)
    assert on_disk(disk, file)[2 * PAGE : 3 * PAGE] == b"X" + b"C" * (PAGE - 1)


def test_a_full_disk_writes_what_is_allocated(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    hooks.posix_fallocate(file, 0, PAGE)
    disk.set_fault("full_disk")
    assert hooks.pwrite(file, b"x" * 2 * PAGE, 0) == PAGE
    assert hooks.write(file, b"y" * PAGE) == PAGE
    for call in (
        lambda: hooks.pwrite(file, b"x", PAGE),
        lambda: hooks.write(file, b"x"),
        lambda: hooks.posix_fallocate(file, 0, 2 * PAGE),
    ):
        with pytest.raises(OSError, match="No space left") as error:
            call()
        assert error.value.errno == errno.ENOSPC
    hooks.posix_fallocate(file, 0, PAGE)
    disk.heal()
    assert hooks.pwrite(file, b"x" * PAGE, PAGE) == PAGE


def test_short_space_has_room_for_small_files_only(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    disk.set_fault("short_space")
    with pytest.raises(OSError, match="No space left"):
        hooks.posix_fallocate(file, 0, 1 << 20)
    hooks.posix_fallocate(file, 0, 1 << 16)
    assert hooks.pwrite(file, b"x", 1 << 17) == 1


def test_a_slow_sync_takes_its_time_and_ends_with_the_fault(
    disk: ScratchDisk, hooks: DiskFaults, file: int
) -> None:
    disk.set_fault("slow_fsync", delay_s=0.3)
    began = time.monotonic()
    hooks.fdatasync(file)
    assert time.monotonic() - began >= 0.3
    disk.set_fault("slow_fsync", delay_s=3600)
    disk.heal()
    hooks.fdatasync(file)


def test_a_file_system_is_not_synced_past_the_hooks(
    disk: ScratchDisk, hooks: DiskFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FileSystemSync(disk.root)
    for name in HOOKED:
        monkeypatch.setattr(os, name, getattr(hooks, name))
    whole.open()
    assert not whole.sync()
