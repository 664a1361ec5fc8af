"""Measures the progress of a process: CPU time and bytes read or written, as counted by Linux.

Used by the supervisor for children that do not serve yet. A process that is stopped or blocked
forever uses neither; a slow one uses some. Knows only /proc.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CPU_FIELDS: Final = slice(11, 15)
"""utime, stime, cutime, cstime of /proc/PID/stat, counted after the name field (proc(5))."""
_IO_FIELDS: Final = frozenset({"rchar", "wchar", "read_bytes", "write_bytes"})


def progress_of(pid: int) -> tuple[int, int]:
    """(clock ticks of CPU time, bytes read and written) since `pid` was started; both only grow.
    Unreadable values, such as those of an ended process, are 0."""
    return _cpu_ticks(pid), _io_bytes(pid)


def _cpu_ticks(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[_CPU_FIELDS]))


def _io_bytes(pid: int) -> int:
    pairs = (line.partition(": ") for line in _read(pid, "io").splitlines())
    return sum(int(value) for name, _, value in pairs if name in _IO_FIELDS)


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
