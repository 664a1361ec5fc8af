"""Execution: one target's inputs, one after the other, each within the limits that all share.

A finding is: an exception that is not of the room's own kinds; an error that was logged with a
traceback (a guard caught a bug); a second of processor time; memory; a neighbour that is not
served afterwards. The world is made anew after a finding and after `lives` inputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import logging
import os
import re
import resource
import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.fuzz.target import Target, World

LONGEST_S = 1.0
"""Processor time of one input."""
MOST_MEMORY = 64 << 20
"""Bytes by which one input may raise the process' resident memory, at its highest."""
_MEMORY_FILES = "/dev/shm"
"""A file system without a disk: saving a table costs nothing there."""
_PAGE = resource.getpagesize()
_HIGHEST = re.compile(rb"VmHWM:\s+(\d+) kB")
_ROOT = Path(__file__).parents[2]
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Finding:
    """What one input did. `key` is the same for inputs that do the same."""

    key: str
    text: str


class LoggedError(Exception):
    """A guard logged an exception."""


class _Guards(logging.Handler):
    """Notes what is logged with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.caught: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.caught.append(record.exc_info[1])


class Execution:
    """A context manager. Owned by one thread."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.count = 0
        self._left = 0
        self._world: World | None = None
        memory = _MEMORY_FILES if os.access(_MEMORY_FILES, os.W_OK) else None
        self._directory = Path(tempfile.mkdtemp(prefix=f"fuzz-{target.name}-", dir=memory))
        self._guards = _Guards()
        self._peak = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Execution:
        root = logging.getLogger()
        root.addHandler(self._guards)
        self._level = root.level
        root.setLevel(logging.ERROR)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        root = logging.getLogger()
        root.removeHandler(self._guards)
        root.setLevel(self._level)
        self.forget()
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._peak)
        os.close(self._statm)
        os.close(self._status)

    def run(self, data: bytes) -> Finding | None:
        """Give one input to the world, and ask for its neighbours."""
        world = self._living()
        self.count += 1
        self._left -= 1
        finding = self._judged(world, data)
        if finding is not None:
            self.forget()
        return finding

    def forget(self) -> None:
        """Close the world: the next input has a new one."""
        world, self._world = self._world, None
        if world is not None:
            # After a finding anything may be broken.
            with contextlib.suppress(Exception):
                world.close()
            shutil.rmtree(self._directory / "world", ignore_errors=True)

    def _living(self) -> World:
        if self._world is None or not self._left:
            self.forget()
            _give_memory_back()
            directory = self._directory / "world"
            directory.mkdir()
            self._world = self.target.world(directory)
            self._left = self.target.lives
            self._guards.caught.clear()
        return self._world

    def _judged(self, world: World, data: bytes) -> Finding | None:
        os.pwrite(self._peak, b"5", 0)
        before = int(os.pread(self._statm, 100, 0).split()[1]) * _PAGE
        began_s = time.thread_time()
        try:
            world.run(data)
            if self._guards.caught:
                raise self._guards.caught.pop(0)
        except Exception as error:  # noqa: BLE001
            return _finding_of(error)
        took_s = time.thread_time() - began_s
        grown = self._highest() - before
        if took_s > LONGEST_S:
            return Finding("hang", f"{took_s:.1f} s of processor time")
        if grown > MOST_MEMORY:
            return Finding("memory", f"{grown >> 20} MiB more")
        try:
            world.check()
            if self._guards.caught:
                raise self._guards.caught.pop(0)
        except Exception as error:  # noqa: BLE001
            found = _finding_of(error)
            return Finding(f"neighbour: {found.key}", f"a neighbour afterwards:\n{found.text}")
        return None

    def _highest(self) -> int:
        """Bytes. Not ru_maxrss: at exec that keeps the highest of the process that it came from."""
        found = _HIGHEST.search(os.pread(self._status, 4096, 0))
        assert found is not None
        return int(found[1]) * 1024


def _give_memory_back() -> None:
    """What worlds and others left: freed while an input runs, it would hide what that takes."""
    gc.collect()
    _LIBC.malloc_trim(0)


def _finding_of(error: BaseException) -> Finding:
    """Its kind and the innermost place in the product name it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(str(_ROOT)) and "/.venv/" not in f.filename]
    product = [f for f in ours if not f.filename.startswith(str(_ROOT / "tests"))] or ours
    place = ""
    if product:
        inner = product[-1]
        place = f" in {Path(inner.filename).relative_to(_ROOT)}:{inner.name}"
    text = "".join(traceback.format_exception(error))
    return Finding(f"{type(error).__name__}{place}", text)


def name_of(data: bytes) -> str:
    """The file name of an input."""
    return hashlib.sha256(data).hexdigest()[:16]
