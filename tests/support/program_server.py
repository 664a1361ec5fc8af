"""Programs of ours that start as copies of one process, with all modules imported.

`python -m tests.support.program_server FD` is the process that tests/support/program.py starts and
asks: at each request on the socket FD it forks, and the child becomes the program, by the same
`runpy` call that `python -m` makes. An interpreter that imports all that a broker is made of needs
0.6 s of a processor, a fork a fiftieth of that. It has one thread, and keeps nothing of a program
but its end.

A request is one packet, `Request` as JSON, with two descriptors: of what the program prints, and of
a pipe that tells the tests its pid and, once it has ended, its exit code, both as `END`. A program
that has ended stays a zombie, its pid its own, until the tests have read that.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import runpy
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Final

import setproctitle

END: Final = struct.Struct("<i")
MOST: Final = 1 << 17
"""Bytes of a request."""
PROGRAMS: Final = ("broker", "namesrv")
_MODULES: Final = (
    "broker.broker_startup",
    "broker.processes.ha",
    "broker.processes.namesrv",
    "broker.processes.remoting",
    "broker.processes.store",
    "broker.processes.supervising",
    "broker.processes.supervisor_services",
    "broker.slave.promotion",
    "namesrv.namesrv_startup",
)
"""All that the programs import, but for their own main modules."""


@dataclass(frozen=True, slots=True)
class Request:
    """A program to be started: `python -m module arguments`."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str

    def packet(self) -> bytes:
        """As it is sent."""
        return json.dumps(dataclasses.asdict(self)).encode()


class ProgramServer:
    """Forks programs and waits for them. Owned by: the main thread."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._poll = select.poll()
        self._poll.register(asked, select.POLLIN)
        self._running: dict[int, tuple[int, int]] = {}
        """pidfd to (pid, pipe)."""
        self._ended: dict[int, int] = {}
        """Pipe to the pid of a program whose end nobody has read yet."""

    def serve(self) -> Request | None:
        """Until the tests end: None. In each child: what it has to become."""
        while True:
            for number, _event in self._poll.poll():
                if number in self._running:
                    self._tell_end(number)
                elif number in self._ended:
                    self._reap(number)
                else:
                    packet, descriptors, _, _ = socket.recv_fds(self._asked, MOST, 2)
                    if not packet:
                        return None
                    if self._fork(*descriptors) == 0:
                        return Request(**json.loads(packet))

    def _fork(self, output: int, pipe: int) -> int:
        pid = os.fork()
        if pid == 0:
            _detach(output)
            return 0
        os.close(output)
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = (pid, pipe)
        self._poll.register(pidfd, select.POLLIN)
        os.write(pipe, END.pack(pid))
        return pid

    def _tell_end(self, pidfd: int) -> None:
        pid, pipe = self._running.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        self._ended[pipe] = pid
        # Nothing but that the other end is closed.
        self._poll.register(pipe, 0)
        try:
            os.write(pipe, END.pack(code))
        except BrokenPipeError:
            self._reap(pipe)

    def _reap(self, pipe: int) -> None:
        os.waitpid(self._ended.pop(pipe), 0)
        self._poll.unregister(pipe)
        os.close(pipe)


def _detach(output: int) -> None:
    """In the child: a session of its own; nothing of the server's but stdin, which is /dev/null."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)


def _become(request: Request) -> None:
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    command = [sys.executable, "-m", request.module, *request.arguments]
    setproctitle.setproctitle(" ".join(command))
    setproctitle.setthreadtitle(os.path.basename(sys.executable))
    sys.argv = ["-m", *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Serves, or is the program."""
    for module in _MODULES:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "only a process with one thread may fork"
    # The first title finds its place beside the environment, which programs change.
    setproctitle.setproctitle("tests: program server")
    asked = socket.socket(fileno=int(sys.argv[1]))
    # Objects that the collector never looks at stay in memory that all share.
    gc.collect()
    gc.freeze()
    request = ProgramServer(asked).serve()
    if request is not None:
        asked.detach()
        _become(request)


if __name__ == "__main__":
    main()
