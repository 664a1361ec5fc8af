"""The side of a step kill that dies: `python -m tests.faults.step_child`.

Reads one request a line (JSON), forks, and lets the child play one role of the store; the child
counts the steps it takes and kills itself with SIGKILL at the one it was told. Steps are patched
in here: the product has no failpoints. The answer is one line: how the child ended. Single-
threaded, so that forking is safe and each run takes milliseconds.

    request  {"role", "root", "page", "table": paths of the memfds, "kill_at": step or -1,
              "steps": file that gets the steps' names (in a run that is not killed),
              "lines": true = every line of store/ and ipc/ is a step, too, ...}
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ipc import control_page
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableWriter
from store import control_slots, replica_resync
from store.commit_log import CommitLog
from store.index_file import IndexFile
from store.log_file import LogFile
from tests.faults.fork_server import serve
from tests.faults.store_world import BATCH, StoreDesk, World, Writer

_ROOMS = tuple(
    f"{Path(inspect.getfile(module)).parent}{os.sep}" for module in (replica_resync, control_page)
)
_PAGE = 4096
_SLOTS = {
    value: name
    for name, value in vars(control_slots).items()
    if name.isupper() and isinstance(value, int)
}
_SYSTEM_CALLS = (
    "fsync",
    "fdatasync",
    "unlink",
    "rename",
    "replace",
    "ftruncate",
    "posix_fallocate",
    "mkdir",
    "rmdir",
)


class Steps:
    """Counts steps; dies at one of them."""

    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self.names: list[str] = []

    def hit(self, name: str) -> None:
        """The step `name` was taken."""
        if len(self.names) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` with a step before and after it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.hit(f"before {name}")
            result = function(*args, **kwargs)
            self.hit(f"after {name}")
            return result

        return call

    def trace_lines(self) -> None:
        """From now on every line of store/ and ipc/ is a step."""

        def local(frame: FrameType, event: str, _argument: object) -> Any:
            if event == "line":
                self.hit(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
            return local

        def trace(frame: FrameType, _event: str, _argument: object) -> Any:
            return local if frame.f_code.co_filename.startswith(_ROOMS) else None

        sys.settrace(trace)


class SteppedCounters:
    """The control page's counters; each store to one is a step."""

    def __init__(self, counters: memoryview[int], steps: Steps) -> None:
        self._counters = counters
        self._steps = steps

    def __getitem__(self, slot: int) -> int:
        return self._counters[slot]

    def __setitem__(self, slot: int, value: int) -> None:
        self._counters[slot] = value
        if slot in _SLOTS:
            self._steps.hit(f"{_SLOTS[slot]} set")


def _patch_copies(steps: Steps) -> None:
    """A write to a log file happens in pieces."""
    write = LogFile.write

    def write_in_pieces(self: LogFile, position: int, data: Any) -> None:
        size = len(data)
        cuts = sorted({0, size // 3, size // 2, size - 1, size})
        for start, end in itertools.pairwise(cuts):
            steps.hit(f"copy of {size} bytes: {start} done")
            write(self, position + start, bytes(data)[start:end])
        steps.hit(f"copy of {size} bytes: done")

    LogFile.write = write_in_pieces  # type: ignore[method-assign]


def _patch_system_calls(steps: Steps) -> None:
    for name in _SYSTEM_CALLS:
        setattr(os, name, steps.around(name, getattr(os, name)))
    pwrite = os.pwrite

    def torn_pwrite(fd: int, data: Any, offset: int) -> int:
        """The kernel looks for a fatal signal between two pages: that is where a write tears."""
        left = _PAGE - offset % _PAGE
        steps.hit(f"before pwrite of {len(data)}")
        done = 0
        if left < len(data):
            done = pwrite(fd, data[:left], offset)
            steps.hit(f"pwrite of {len(data)} torn at {left}")
        done += pwrite(fd, data[done:], offset + done)
        steps.hit(f"after pwrite of {len(data)}")
        return done

    os.pwrite = torn_pwrite


def _patch_methods(steps: Steps) -> None:
    for owner, names in (
        (QueueTableWriter, ("_add", "set_offsets", "mark_moved", "reset")),
        (IndexFile, ("_write_units", "_put")),
        (CommitLog, ("_open", "_roll")),
    ):
        for name in names:
            method = getattr(owner, name)
            setattr(owner, name, steps.around(f"{owner.__name__}.{name}", method))


def play(request: dict[str, Any]) -> None:
    """One role from its first step to its last, if it comes that far."""
    logging.disable(logging.CRITICAL)
    signal.alarm(60)
    steps = Steps(request["kill_at"])
    world = World(
        Path(request["root"]),
        os.open(request["page"], os.O_RDWR),
        os.open(request["table"], os.O_RDWR),
    )
    page = ControlPage(world.page_fd)
    page.counters = SteppedCounters(page.counters, steps)  # type: ignore[assignment]
    _patch_copies(steps)
    _patch_system_calls(steps)
    _patch_methods(steps)
    _ROLES[request["role"]](world, page, steps, request)
    sys.settrace(None)
    Path(request["steps"]).write_text("\n".join(steps.names))


def _write(world: World, page: ControlPage, steps: Steps, request: dict[str, Any]) -> None:
    """The writer of a restarted `remoting`: rebuild, zero, write, close."""
    writer = Writer(world, page)
    writer.log._on_publish = steps.around("ring", lambda: None)
    if request["lines"]:
        steps.trace_lines()
    writer.open()
    writer.write(range(*request["numbers"]), request.get("batch", BATCH))
    writer.close()


def _keep(world: World, page: ControlPage, steps: Steps, request: dict[str, Any]) -> None:
    """The store from its start to its orderly stop."""
    desk = StoreDesk(world, page)
    desk.store._progress.ring_readers = steps.around("ring", lambda: None)
    if request["lines"]:
        steps.trace_lines()
    desk.open()
    desk.store._flush._flusher._fdatasync = os.fdatasync
    desk.dispatch()
    desk.flush()
    if request["stop"]:
        desk.shutdown()


def _resync(world: World, page: ControlPage, steps: Steps, request: dict[str, Any]) -> None:
    """What the store does before it recovers, when a re-sync was asked for."""
    for name in ("make_directory", "_move", "zero_range"):
        setattr(replica_resync, name, steps.around(name, getattr(replica_resync, name)))
    if request["lines"]:
        steps.trace_lines()
    replica_resync.perform_request(world.config)


_ROLES = {"writer": _write, "store": _keep, "resync": _resync}


if __name__ == "__main__":
    serve(play)
