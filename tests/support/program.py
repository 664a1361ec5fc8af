"""Starting programs of ours, as `python -m` does, without the second that an interpreter imports.

`start_program` has a server fork them (tests/support/program_server.py), one for each process of
the tests and kind of modules, started at the first use; only within pytest (tests/conftest.py),
since benchmarks measure what an interpreter costs, too, and not within `own_interpreters`. A
program that is to have an environment, limits, a umask or namespaces that only a new process takes
over whole, such as a library to be loaded first, gets an interpreter of its own. So do those that
tests start through bin/, from the wheel, the Dockerfile or mqchaos, which prove the start itself.
Any thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from conf.compiled_modules import OFF, REQUIRED, VARIABLE
from tests.support.program_server import END, MOST, PROGRAMS, Request
from tools.chaos.processes import is_running

_HOME: Final = Path(__file__).parents[2]
_OF_A_PROGRAM: Final = {"HOME", "ROCKETMQ_HOME", "ROCKETMQ_RUN_DIR", "PYTEST_CURRENT_TEST"}
"""Variables that are read when a program runs, and by nobody before."""
_OF_A_JVM: Final = {"JAVA_HOME"}
"""The tests of the report set it for good; no broker reads it."""

_OF_SPARK: Final = ("SPARK_", "PYSPARK_")
"""PySpark sets some for itself when it starts; no broker reads them."""
Inherited = dict[str, object]
_LIMITS: Final = 16
"""Kinds of resource limits that Linux has."""
_LOOK_S: Final = 0.1


class Forking:
    """Whether programs may be forked. Set by the main thread."""

    allowed = False


@contextlib.contextmanager
def own_interpreters() -> Iterator[None]:
    """Programs that start meanwhile have interpreters of their own: what they share with the server
    would count as memory of each."""
    before, Forking.allowed = Forking.allowed, False
    try:
        yield
    finally:
        Forking.allowed = before


class ForkedProgram:
    """As much of subprocess.Popen as tests use. Any thread."""

    def __init__(self, told: int) -> None:
        """told: where the server tells its pid and its end; closed when that was read."""
        self._told = told
        self._lock = threading.Lock()
        self.returncode: int | None = None
        """The exit code; a signal's number, negative; None while it was not seen to have ended."""
        self.pid: Final = self._read()

    def poll(self) -> int | None:
        """The exit code if it has ended, without waiting."""
        with self._lock:
            # One that has ended is told of a moment later than /proc shows it.
            if self.returncode is None and self._is_told(0 if is_running(self.pid) else None):
                self.returncode = self._read()
                os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # Without the lock, for a moment each: another thread may see the end meanwhile.
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            left_s = _LOOK_S if deadline is None else deadline - time.monotonic()
            self._is_told(max(0.0, min(left_s, _LOOK_S)))
        return code

    def _is_told(self, timeout_s: float | None) -> bool:
        """Not select, which knows the first 1,024 descriptors only."""
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1_000))

    def _read(self) -> int:
        data = os.read(self._told, END.size)
        if len(data) != END.size:
            raise OSError("the server of programs has ended: see the output of the tests")
        return int(END.unpack(data)[0])


class _Server:
    """Owned by: whoever holds the lock."""

    def __init__(self, modules: str) -> None:
        """modules: ROCKETMQ_COMPILED of its programs; it has imported theirs."""
        self._environment: Final = {VARIABLE: modules}
        self.lock: Final = threading.Lock()
        self._asking: socket.socket | None = None
        self._inherited: Inherited = {}

    def start(self, request: Request, output: int) -> ForkedProgram | None:
        """None: it has to have an interpreter of its own."""
        inherited = _inherited(request.environment)
        with self.lock:
            if self._asking is None:
                own = {**os.environ, **self._environment}
                self._inherited = _inherited(own)
                self._asking = _start_server(own)
            if inherited != self._inherited:
                # A test that leaves something changed makes every later start of its worker dear.
                print(
                    "not forked, since it would inherit others:",
                    _differing(self._inherited, inherited),
                )
                return None
            told, telling = os.pipe()
            try:
                socket.send_fds(self._asking, [request.packet()], [output, telling])
            finally:
                os.close(telling)
        return ForkedProgram(told)


def _start_server(environment: Mapping[str, str]) -> socket.socket:
    asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST)
    with asked:
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.program_server", str(asked.fileno())],
            cwd=_HOME,
            # numpy's threads would keep it from forking.
            env={**environment, "PYTHONPATH": str(_HOME), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[asked.fileno()],
            start_new_session=True,
        )
    return asking


def _differing(ours: Inherited, wanted: Inherited) -> str:
    """What of it is another one, for who looks why programs are not forked."""
    return ", ".join(
        sorted(name for name in ours.keys() | wanted.keys() if ours.get(name) != wanted.get(name))
    )


def _inherited(environment: Mapping[str, str]) -> Inherited:
    """What a program has from its start on and cannot be given later, by its name."""
    variables = {
        name: text
        for name, text in environment.items()
        if name not in _OF_A_PROGRAM | _OF_A_JVM and not name.startswith(_OF_SPARK)
    }
    # Those of the report put the checkout there once more.
    if set(variables.get("PYTHONPATH", "").split(os.pathsep)) <= {"", str(_HOME)}:
        variables.pop("PYTHONPATH", None)
    umask = re.search(r"^Umask:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert umask is not None
    limits = [resource.getrlimit(kind) for kind in range(_LIMITS)]
    share = (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
    namespaces = sorted(os.readlink(entry) for entry in Path("/proc/self/ns").iterdir())
    others = {"limits": limits, "umask": umask[1], "share": share, "namespaces": namespaces}
    return {**variables, **others}


_SERVERS: Final = {modules: _Server(modules) for modules in (OFF, REQUIRED)}


def start_program(
    command: Sequence[str], *, output: int, environment: Mapping[str, str], directory: Path = _HOME
) -> ForkedProgram | subprocess.Popen[bytes]:
    """`command` in a session of its own, without input; all that it prints goes to the descriptor
    `output`. Forked if it is this interpreter with `-m` and one of PROGRAMS."""
    is_ours = list(command[:2]) == [sys.executable, "-m"] and command[2] in PROGRAMS
    server = _SERVERS.get(environment.get(VARIABLE, ""))
    if is_ours and Forking.allowed and server is not None:
        request = Request(command[2], list(command[3:]), dict(environment), str(directory))
        program = server.start(request, output)
        if program is not None:
            return program
    return subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
