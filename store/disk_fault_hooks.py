"""Disk faults for bin/mqchaos: hooks around the system calls that write, allocate and sync.

Off unless the environment variable MQBROKER_DISK_FAULTS names a control directory: then each
process of the broker puts functions of this module in the place of os.fsync, fdatasync,
posix_fallocate, pwrite and write. Without the variable those are the operating system's own and
cost nothing. Only mqchaos sets it, for brokers of its own; the broker says so loudly. Any thread of
any process of the broker; what they share lies in files.

The control directory (written by mqchaos but for what is marked; tools/chaos/scratch_disk.py is the
other end and knows these names, too):

- `fault.json`: `{"root": store, "kind": K, "path": part, "delay_s": seconds}`; K is "none",
  "fsync_error", "slow_fsync", "full_disk" (nothing is allocated any more) or "short_space" (there
  is no room for 1 MiB in one piece). Replaced as a whole, read at each call.
- `armed`: the next sync of a file whose path holds `part` fails with EIO. The hook removes it and
  leaves `failed.json` (*here*): `{"at_s": CLOCK_MONOTONIC, "path": path}`.
- `disk/` (*here*): what a power cut leaves for certain (store/synced_copies.py); where there is no
  such directory nothing is kept for one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from store.errors import StoreError
from store.synced_copies import NoCopies, SyncedCopies

VARIABLE: Final = "MQBROKER_DISK_FAULTS"
_BLOCK: Final = 512
"""Unit of st_blocks."""
_LARGE: Final = 1 << 20
_LOOK_S: Final = 0.02


def install_disk_faults(environment: Mapping[str, str]) -> str | None:
    """Put the hooks in place if the variable is set; returns what has to be said then, else None.

    Before the first write of the process. Raises StoreError: the variable names no control
    directory.
    """
    named = environment.get(VARIABLE)
    if not named:
        return None
    DiskFaults(Path(named)).install()
    return (
        f"DISK FAULTS ARE INJECTED ({VARIABLE}={named}): this broker fails syncs and loses data on "
        f"purpose. It is for bin/mqchaos only: unset {VARIABLE} and start again"
    )


def are_installed() -> bool:
    """Whether this process has the hooks: syncs that go round them would not be seen."""
    return isinstance(getattr(os.fdatasync, "__self__", None), DiskFaults)


@dataclass(frozen=True, slots=True)
class _Fault:
    """fault.json."""

    root: str
    kind: str
    path: str
    delay_s: float


class DiskFaults:
    """The hooks of one process. See the module."""

    def __init__(self, control: Path) -> None:
        """Raises StoreError."""
        self._control = control
        kept = control / "disk"
        self._copies = SyncedCopies(kept) if kept.is_dir() else NoCopies(kept)
        try:
            self._root = self._fault().root
            self._copies.open()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{VARIABLE}={control} is not a control directory of mqchaos ({error!r}): unset "
                f"{VARIABLE}; only bin/mqchaos sets it"
            ) from error
        self._fsync, self._fdatasync = os.fsync, os.fdatasync
        self._posix_fallocate, self._pwrite, self._write = os.posix_fallocate, os.pwrite, os.write

    def install(self) -> None:
        """From now on this process has the faults."""
        os.fsync, os.fdatasync = self.fsync, self.fdatasync  # type: ignore[assignment]
        os.posix_fallocate = self.posix_fallocate
        os.pwrite, os.write = self.pwrite, self.write

    # -- the calls ---------------------------------------------------------------------------------

    def fsync(self, fd: int) -> None:
        """As os.fsync."""
        self._sync(fd, self._fsync)

    def fdatasync(self, fd: int) -> None:
        """As os.fdatasync."""
        self._sync(fd, self._fdatasync)

    def posix_fallocate(self, fd: int, offset: int, size: int, /) -> None:
        """As os.posix_fallocate; without room ENOSPC."""
        status = os.fstat(fd)
        lacking = offset + size - status.st_blocks * _BLOCK
        kind = self._fault().kind if self._is_watched(fd, status) else "none"
        if lacking > 0 and (kind == "full_disk" or (kind == "short_space" and lacking >= _LARGE)):
            raise _no_space()
        self._posix_fallocate(fd, offset, size)

    def pwrite(self, fd: int, data: Any, offset: int, /) -> int:
        """As os.pwrite; on a full disk only what lies in allocated blocks is written."""
        status = os.fstat(fd)
        if not self._is_watched(fd, status):
            return self._pwrite(fd, data, offset)
        written = self._pwrite(fd, self._that_fits(status, data, offset), offset)
        self._copies.rewritten(status.st_ino, offset, offset + written)
        return written

    def write(self, fd: int, data: Any, /) -> int:
        """As os.write, with the same limit."""
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not self._is_watched(fd, status):
            return self._write(fd, data)
        appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
        at = status.st_size if appends else os.lseek(fd, 0, os.SEEK_CUR)
        return self._write(fd, self._that_fits(status, data, at))

    # -- faults ------------------------------------------------------------------------------------

    def _fault(self) -> _Fault:
        found = json.loads((self._control / "fault.json").read_bytes())
        return _Fault(found["root"], found["kind"], found["path"], found["delay_s"])

    def _that_fits(self, status: os.stat_result, data: Any, at: int) -> memoryview:
        view = memoryview(data).cast("B")
        if self._fault().kind != "full_disk":
            return view
        room = status.st_blocks * _BLOCK - at
        if view and room <= 0:
            raise _no_space()
        return view[: max(room, 0)]

    def _sync(self, fd: int, real: Callable[[int], None]) -> None:
        status = os.fstat(fd)
        if not self._is_watched(fd, status):
            real(fd)
            return
        if stat.S_ISDIR(status.st_mode):
            real(fd)
            self._copies.keep_names(fd)
            return
        fault = self._fault()
        path = _path_of(fd)
        if fault.kind == "slow_fsync":
            self._delay(fault.delay_s)
        elif fault.kind == "full_disk" and path.endswith(".tmp"):
            # What a file object wrote without this hook: delayed allocation says so at the sync.
            raise _no_space()
        elif fault.kind == "fsync_error" and fault.path in path and self._take_error(path):
            self._copies.lose(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)
        self._copies.keep(fd, path)

    def _delay(self, seconds: float) -> None:
        """So long, or until the fault is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._fault().kind == "slow_fsync":
            threading.Event().wait(_LOOK_S)

    def _take_error(self, path: str) -> bool:
        try:
            (self._control / "armed").unlink()
        except FileNotFoundError:
            return False
        text = json.dumps({"at_s": time.monotonic(), "path": path})
        temporary = self._control / f"failed.{os.getpid()}"
        temporary.write_text(text)
        temporary.replace(self._control / "failed.json")
        return True

    def _is_watched(self, fd: int, status: os.stat_result) -> bool:
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            return False
        return f"{_path_of(fd)}/".startswith(f"{self._root}/")


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
