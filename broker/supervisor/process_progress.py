"""Whether a process does anything: processor time and bytes read or written, as Linux counts them.

Runs in the supervisor, which looks at children that do not serve yet. A process that is stopped,
or waits for something that never comes, uses neither; one that is only slow uses some. It knows
only /proc.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CPU_FIELDS: Final = slice(11, 15)
"""utime, stime, cutime, cstime of /proc/PID/stat, counted from behind the name (proc(5))."""
_IO_FIELDS: Final = frozenset({"rchar", "wchar", "read_bytes", "write_bytes"})


def progress_of(pid: int) -> tuple[int, int]:
    """(clock ticks of processor time, bytes read and written) since `pid` was started; both only
    grow. What cannot be read, as of a process that is gone, is 0."""
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
