"""Processes: what /proc says of a broker's processes. Any thread; Linux only.

A process that ended meanwhile is no error anywhere here: it has no children, no title and no
figures.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TITLE: Final = "mqbroker: "
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STATE, _PARENT, _USER, _SYSTEM, _THREADS = 0, 1, 11, 12, 17
"""Fields of /proc/<pid>/stat after the name."""


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie: of one that was killed, the first thread may be
    one while others still hold its files and locks."""
    fields = stat_fields(pid)
    return bool(fields) and (fields[_STATE] not in "ZX" or int(fields[_THREADS]) > 1)


def parent_of(pid: int) -> int:
    """The pid of its parent; 0: there is no such process."""
    fields = stat_fields(pid)
    return int(fields[_PARENT]) if fields else 0


def children_of(parent: int) -> list[int]:
    """The pids of the living children."""
    found = []
    for name in os.listdir("/proc"):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and int(fields[_PARENT]) == parent and fields[_STATE] not in "ZX":
            found.append(int(name))
    return found


def titled_children(parent: int) -> dict[str, int]:
    """Name to pid of a supervisor's children that have given themselves their title."""
    found = {}
    for pid in children_of(parent):
        title = _read(pid, "cmdline").replace("\0", " ")
        if title.startswith(_TITLE):
            found[title.removeprefix(_TITLE).strip()] = pid
    return found


def stat_fields(pid: int) -> Sequence[str]:
    """/proc/<pid>/stat after the name; empty for no process."""
    return _read(pid, "stat").rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """Processor time that it has used, of all threads."""
    fields = stat_fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else 0.0


def open_descriptors(pid: int) -> list[int]:
    """The numbers of its open descriptors."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a process holds at a moment."""

    memory_mb: float
    """Anonymous memory, swapped or not: what a leak is made of. Mapped files are the page cache's
    and shared memory has one size."""
    descriptors: int
    threads: int


def figures_of(pid: int) -> ProcessFigures | None:
    """None: it ended, or ends."""
    status = dict(
        line.split(":", 1) for line in _read(pid, "status").splitlines() if line.count(":")
    )
    if "RssAnon" not in status:
        return None
    kib = sum(int(status.get(key, "0 kB").split()[0]) for key in ("RssAnon", "VmSwap"))
    return ProcessFigures(kib / 1024, len(open_descriptors(pid)), int(status["Threads"]))


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
