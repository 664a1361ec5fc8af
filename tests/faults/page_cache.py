"""A disk below the page cache of a broker's processes (page_cache.c): its syncs fail on request,
and a power cut leaves of each file what its syncs have brought to disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.faults.shim import compile_shim

SOURCE: Final = Path(__file__).parent / "page_cache.c"


class PageCache:
    """The disk of one directory. Names survive a power cut; bytes only if they were synced."""

    def __init__(self, directory: Path, library: Path | None = None) -> None:
        """directory: on one file system with the store, which reuses no inode (tmpfs). library: of
        SOURCE, if it was compiled before."""
        self._shadow = directory / "shadow"
        self._switch = directory / "the disk is broken"
        self._library = library or compile_shim(SOURCE, directory)

    def environment(self, fails_for: str) -> dict[str, str]:
        """For the processes. fails_for: part of the path of the files whose syncs may fail."""
        self._shadow.mkdir(exist_ok=True)
        return {
            "LD_PRELOAD": str(self._library),
            "PAGE_CACHE_SHADOW": str(self._shadow),
            "FAILING_SYNC": str(self._switch),
            "FAILING_PATH": fails_for,
        }

    def write(self, path: Path, data: bytes) -> None:
        """A new file that is on the disk already."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        for kind in ("disk", "clean"):
            (self._shadow / f"{path.stat().st_ino}.{kind}").write_bytes(data)

    def fail_once(self) -> None:
        """The next sync with something to write fails, and its pages count as clean."""
        self._switch.touch()

    @property
    def has_failed(self) -> bool:
        """Whether it was asked for and has happened."""
        return not self._switch.exists()

    def cut_power(self, root: Path) -> None:
        """Every file under `root` has what the disk has. All processes must have ended; the next
        ones begin with that."""
        for path in sorted(root.rglob("*")):
            if path.is_file():
                size = path.stat().st_size
                disk = self._shadow / f"{path.stat().st_ino}.disk"
                data = disk.read_bytes()[:size] if disk.exists() else b""
                path.write_bytes(data.ljust(size, b"\0"))
        shutil.rmtree(self._shadow)
        self._shadow.mkdir()
        for path in root.rglob("*"):
            if path.is_file():
                for kind in ("disk", "clean"):
                    shutil.copyfile(path, self._shadow / f"{path.stat().st_ino}.{kind}")
