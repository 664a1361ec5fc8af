"""Pid files: which brokers and name servers of this user run on this host.

Written by the supervisor and the name server at their start, read by `bin/mqshutdown`. A pid may
have been reused by another process, so a file also has the process's start time, boot id and pid
namespace; the file of a process that has ended is removed by its next reader. Standard library
only: mqshutdown runs without the virtual environment.

Files: <run directory>/mqbroker-<pid>.pid, lines `key=value`. The run directory is
$ROCKETMQ_RUN_DIR, else ~/.rocketmq-python/run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conf.atomic_file import write_atomic

RUN_DIRECTORY_VARIABLE = "ROCKETMQ_RUN_DIR"
_STARTTIME_FIELD = 19  # of /proc/<pid>/stat, counted after the command's name (field 22)


@dataclass(frozen=True, slots=True)
class PidRecord:
    """A running process and its pid file."""

    pid: int
    path: Path


def run_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The directory of the pid files."""
    named = (os.environ if environment is None else environment).get(RUN_DIRECTORY_VARIABLE)
    return Path(named) if named else Path.home() / ".rocketmq-python" / "run"


def write_pid_file(kind: str, pid: int, directory: Path | None = None) -> Path:
    """Records that process `pid` is a `kind` ("mqbroker", "mqnamesrv"). Raises OSError."""
    path = (directory or run_directory()) / f"{kind}-{pid}.pid"
    lines = [f"{key}={value}\n" for key, value in _identity(pid).items()]
    write_atomic(path, "".join(lines).encode())
    return path


def remove_pid_file(path: Path) -> None:
    """Idempotent."""
    path.unlink(missing_ok=True)


def running(kind: str, directory: Path | None = None) -> list[PidRecord]:
    """The running processes of this kind, ordered by pid; removes the files of ended ones.

    Files of other hosts or containers that share the directory are left alone.
    """
    found = []
    here = _place(_identity(os.getpid()))
    for path in (directory or run_directory()).glob(f"{kind}-*.pid"):
        stated = _read(path)
        pid = int(stated["pid"]) if stated.get("pid", "").isdecimal() else None
        if pid is not None and _place(stated) != here:
            continue
        if pid is not None and stated == _identity(pid):
            found.append(PidRecord(pid, path))
        else:
            remove_pid_file(path)
    return sorted(found, key=lambda record: record.pid)


def start_time(pid: int) -> str | None:
    """Start of the process in clock ticks since boot; None if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[_STARTTIME_FIELD]


def _identity(pid: int) -> dict[str, str]:
    return {
        "pid": str(pid),
        "start_time": start_time(pid) or "",
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        "host": os.uname().nodename,
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


def _place(identity: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Pids can only be compared within the same host and pid namespace."""
    return identity.get("host"), identity.get("pid_namespace")


def _read(path: Path) -> dict[str, str]:
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}
    return {}
