"""Child processes of tests and benchmark: start, wait until ready, measure, end for certain.

Knows nothing of RocketMQ. Every child leads a process group of its own; whatever still lives when
the test process ends is killed with its group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.our_broker import stands_still
from tests.support.program import ForkedProgram, start_program
from tests.support.stolen_time import OwnTime
from tools.chaos.processes import is_running

_POLL_S = 0.02


class PeerError(Exception):
    """A peer did not start, answer or stop; the text ends with the tail of its log."""


def wait_until(
    condition: Callable[[], object], what: str, timeout_s: float = 30.0, poll_s: float = _POLL_S
) -> None:
    """Poll `condition` until it holds; raises PeerError naming `what` after `timeout_s` of the
    machine's own time.

    poll_s: the time between two polls, longer where each one costs the brokers something.
    """
    clock = OwnTime()
    while not condition():
        if clock.s() > timeout_s:
            raise PeerError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(poll_s)


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """One process, from /proc."""

    pid: int
    title: str
    cpu_s: float  # user and system time so far
    rss_anon: int  # bytes


def process_tree(root_pid: int) -> list[ProcessFigures]:
    """`root_pid` and all its descendants that live now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents.setdefault(_stat_fields(int(entry.name))[1], []).append(int(entry.name))
    found: list[ProcessFigures] = []
    todo = [root_pid]
    while todo:
        pid = todo.pop()
        todo.extend(parents.get(pid, []))
        with contextlib.suppress(OSError, IndexError):
            found.append(_figures(pid))
    return found


def _stat_fields(pid: int) -> list[int]:
    """state (as 0), ppid, pgrp, ... of /proc/PID/stat: the fields behind the name."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return [0, *(int(field) for field in text.rsplit(")", 1)[1].split()[1:40])]


def _figures(pid: int) -> ProcessFigures:
    fields = _stat_fields(pid)
    title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    status = Path(f"/proc/{pid}/status").read_text()
    rss = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    cpu_s = (fields[11] + fields[12]) / os.sysconf("SC_CLK_TCK")
    return ProcessFigures(pid, title.strip(), cpu_s, int(rss.group(1)) * 1024 if rss else 0)


class ServerProcess:
    """One server under test: a command, its log, and the line it prints when it is ready."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        ready: str,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = list(command)
        self._ready = re.compile(ready)
        self._env = {**os.environ, **(env or {})}
        self._popen: ForkedProgram | subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._popen is None:
            raise PeerError(f"{self.name} was not started")
        return self._popen.pid

    def start(self, timeout_s: float = 60.0) -> re.Match[str]:
        """Start and wait for the ready line; gives its match."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            begin = log.tell()
            self._popen = start_program(
                self._command,
                environment=self._env,
                output=log.fileno(),
                directory=Path.cwd(),
            )
        _LIVING.add(self)
        found: list[re.Match[str]] = []

        def is_ready() -> bool:
            exited = not self.is_alive()
            text = self.log_path.read_bytes()[begin:].decode(errors="replace")
            match = self._ready.search(text)
            if match:
                found.append(match)
            elif exited:
                raise PeerError(f"{self.name} ended at its start\n{self.log_tail()}")
            return bool(match)

        try:
            wait_until(is_ready, f"{self.name} ready", timeout_s)
        except PeerError as error:
            self.kill()
            raise PeerError(f"{error}\n{self.log_tail()}") from None
        return found[0]

    def is_alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM and wait; gives the exit status. Kills and raises when it does not end."""
        if self._popen is None:
            return 0
        if self.is_alive():
            os.kill(self._popen.pid, signal.SIGTERM)
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                tail = self.log_tail()
                self.kill()
                message = f"{self.name} did not stop within {timeout_s:.0f} s of SIGTERM\n{tail}"
                raise PeerError(message) from None
        status = self._popen.wait()
        self._forget()
        return status

    def kill(self) -> None:
        """SIGKILL to it and all its descendants; returns when they are gone."""
        if self._popen is not None:
            # Stopped first, so that nobody starts more children or sees another one's death.
            pids = self._signal_all(signal.SIGSTOP)
            for pid in pids:
                _signal(pid, signal.SIGKILL)
            self._popen.wait(10)
            wait_until(lambda: not any(map(is_running, pids)), f"{self.name} gone", 10)
            self._forget()

    def pause(self) -> None:
        """SIGSTOP to it and all its descendants; returns when every thread stands still."""
        pids = self._signal_all(signal.SIGSTOP)
        wait_until(lambda: all(map(stands_still, pids)), f"{self.name} stopped", 10)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> list[int]:
        """Signal itself first, then its descendants; the pids of all."""
        _signal(self.pid, number)
        descendants = [p.pid for p in process_tree(self.pid) if p.pid != self.pid]
        for pid in descendants:
            _signal(pid, number)
        return [self.pid, *descendants]

    def log_tail(self, size: int = 3000) -> str:
        """Whether it lives, and the end of what it printed and logged."""
        if not self.log_path.exists():
            return ""
        status = self._popen.poll() if self._popen is not None else "stopped"
        state = "running" if status is None else f"ended: {status}"
        parts = [f"--- {self.name} ({state}): {self.log_path}\n{_end_of(self.log_path, size)}"]
        # A Java server says there, and nowhere else, why it does not start.
        for path in sorted(self.log_path.parent.glob("java-home/logs/**/*.log")):
            parts.append(f"--- {path}\n{_end_of(path, size)}")
        return "\n".join(parts)

    def _forget(self) -> None:
        self._popen = None
        _LIVING.discard(self)


def _end_of(path: Path, size: int) -> str:
    return path.read_bytes()[-size:].decode(errors="replace")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


_LIVING: set[ServerProcess] = set()


@atexit.register
def _kill_the_living() -> None:
    for server in list(_LIVING):
        server.kill()
