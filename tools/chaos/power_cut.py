"""Power cut: what a store's directory looks like when the machine comes back.

Works on files of a broker that has ended. For certain there is what was synced (`disk/` of the
broker's control directory, see store/disk_fault_hooks.py). Of everything else the seed decides:

- each page (4,096 bytes) that differs from the disk's is there, is not, or is torn at one of its
  sectors (512 bytes): of each file those up to one of them, or, scattered, any of them, as a kernel
  may write pages back in any order;
- each name that came to, left or changed in a directory since that was synced last: a new file may
  vanish, a deleted one come back, a renamed one have its old content again;
- a file that grew has its old length where none of its new pages is there.

Not played: a page as it was at some moment between the last sync and the cut, and directories that
were removed. The store gets new files; whoever still had an old one open would not see them.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = 4096
SECTOR: Final = 512
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SMALL: Final = 1 << 16
_SHARES: Final = (0.0, 0.05, 0.5, 0.95)
"""How much of what was not synced a cut leaves, roughly."""

Draw = Callable[[], float]
"""Uniform in [0, 1), of the seed."""


@dataclass(slots=True)
class Loss:
    """What a power cut took, for the run's log."""

    pages_lost: int = 0
    pages_kept: int = 0
    pages_torn: int = 0
    names_undone: int = 0

    def text(self) -> str:
        """One line."""
        return (
            f"{self.pages_lost} pages lost, {self.pages_kept} kept, {self.pages_torn} torn, "
            f"{self.names_undone} names undone"
        )


def cut_power(root: Path, durable: Path, draw: Draw, *, is_scattered: bool = True) -> Loss:
    """Give `root` what the disk has. All processes of the broker have ended. Raises OSError."""
    cut = _PowerCut(root, durable, draw, is_scattered=is_scattered)
    after = root.with_name(root.name + ".after-cut")
    cut.copy_directory(root, after)
    before = root.with_name(root.name + ".before-cut")
    shutil.rmtree(before, ignore_errors=True)
    root.rename(before)
    after.rename(root)
    shutil.rmtree(before)
    _boot_another_time(root)
    keep_all(root, durable)
    return cut.loss


def keep_all(root: Path, durable: Path) -> None:
    """From now on everything in `root` is on disk."""
    shutil.rmtree(durable)
    durable.mkdir()
    for directory, names, files in os.walk(root):
        place = Path(directory)
        known = {name: (place / name).stat().st_ino for name in (*names, *files)}
        (durable / f"{place.stat().st_ino}.names").write_text(json.dumps(known))
        for name in files:
            shutil.copyfile(place / name, durable / f"{known[name]}.disk")
            os.link(place / name, durable / f"{known[name]}.link")


def torn_page(disk: bytes, memory: bytes, draw: Draw, *, is_scattered: bool) -> bytes:
    """The first sectors as they are in memory, the others as on disk; scattered: or the other way
    round."""
    at = SECTOR * (1 + int(draw() * (PAGE // SECTOR - 1)))
    is_turned = is_scattered and draw() < 0.5
    first, last = (disk, memory) if is_turned else (memory, disk)
    return first[:at] + last[at:]


class _PowerCut:
    """One cut."""

    def __init__(self, root: Path, durable: Path, draw: Draw, *, is_scattered: bool) -> None:
        self._durable = durable
        self._is_scattered = is_scattered
        self._draw = draw
        self._share = _SHARES[int(draw() * len(_SHARES))]
        self._living = {entry.stat().st_ino for entry in root.rglob("*")}
        self.loss = Loss()

    def copy_directory(self, source: Path, target: Path) -> None:
        """With what is in it and survives."""
        target.mkdir()
        living = {entry.name: entry.stat().st_ino for entry in sorted(source.iterdir())}
        for name, inode in sorted(self._surviving(source, living).items()):
            place = source / name
            if inode == living.get(name) and place.is_dir():
                self.copy_directory(place, target / name)
            elif inode == living.get(name):
                self._copy_file(place, inode, target / name)
            else:
                self._copy_file(self._durable / f"{inode}.link", inode, target / name)

    def _surviving(self, source: Path, living: dict[str, int]) -> dict[str, int]:
        """Names and inodes of a directory: as synced, and of the changes since then some."""
        synced = self._names_of(source)
        names = {}
        for name in sorted(living.keys() | synced.keys()):
            now, before = living.get(name), synced.get(name)
            if now != before and self._can_be_undone(before) and self._draw() >= self._share:
                self.loss.names_undone += 1
                now = before
            if now is not None:
                names[name] = now
        return names

    def _names_of(self, directory: Path) -> dict[str, int]:
        try:
            path = self._durable / f"{directory.stat().st_ino}.names"
            found: dict[str, int] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def _can_be_undone(self, before: int | None) -> bool:
        """A new name can vanish. An old one comes back with the file that it named, unless that has
        another name now, or nothing is known of its content."""
        if before is None:
            return True
        return before not in self._living and (self._durable / f"{before}.link").exists()

    def _copy_file(self, source: Path, inode: int, target: Path) -> None:
        memory = source.read_bytes()
        synced = self._durable / f"{inode}.disk"
        disk = synced.read_bytes() if synced.exists() else b""
        target.write_bytes(self._mixed(disk, memory))
        shutil.copystat(source, target)

    def _mixed(self, disk: bytes, memory: bytes) -> bytes:
        size, end = len(memory), min(len(disk), len(memory))
        mixed = bytearray(disk[:size].ljust(size, b"\0"))
        if mixed == memory and size == len(disk):
            return memory
        padded = memory.ljust(-(-size // PAGE) * PAGE, b"\0")
        has_ended = False
        for at in range(0, size, PAGE):
            before, now = bytes(mixed[at : at + PAGE]).ljust(PAGE, b"\0"), padded[at : at + PAGE]
            if before == now:
                continue
            page = before if has_ended else self._page(before, now)
            has_ended = has_ended or (page != now and not self._is_scattered)
            mixed[at : at + PAGE] = page[: size - at]
            if page != before:
                end = max(end, min(at + PAGE, size))
        return bytes(mixed if self._draw() < 0.5 else mixed[:end])

    def _page(self, disk: bytes, memory: bytes) -> bytes:
        lot = self._draw()
        if lot >= self._share:
            self.loss.pages_lost += 1
            return disk
        if lot < self._share * 0.1:
            self.loss.pages_torn += 1
            return torn_page(disk, memory, self._draw, is_scattered=self._is_scattered)
        self.loss.pages_kept += 1
        return memory


def _boot_another_time(root: Path) -> None:
    """The machine was started again: what named its boot names one that is over."""
    this = _BOOT_ID.read_bytes().strip()
    for path in root.rglob("*"):
        if path.is_file() and path.stat().st_size < _SMALL and this in (text := path.read_bytes()):
            path.write_bytes(text.replace(this, str(uuid.uuid4()).encode()))
