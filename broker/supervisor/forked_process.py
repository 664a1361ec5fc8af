"""ForkedProcess: a child that starts as a copy of the supervisor, with all modules imported.

Runs on the supervisor's main thread, and in the child until `run` is called. Four children that
import everything themselves need more processor time than all else a broker does to start. Only a
process with a single thread may fork; one with more starts its children as fresh interpreters
(broker/supervisor/supervisor.py). The child keeps nothing of the supervisor but what it inherits:
no descriptor, no signal handler, no log file, and it never returns into the supervisor's code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from conf.logging_setup import remove_logging

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
"""Those that the supervisor handles."""


class ForkedProcess:
    """Waits for and signals one forked child, as subprocess.Popen does. Owned by: main thread."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self.returncode: int | None = None
        """The exit code; a signal's number, negative; None while it runs."""

    def poll(self) -> int | None:
        """The exit code if it has ended, without waiting."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        code = self._wait(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def may_fork() -> bool:
    """Whether this process has one thread, counting those that Python does not know."""
    return len(os.listdir("/proc/self/task")) == 1


def fork_child(run: Callable[[], None], inherited_fds: Iterable[int]) -> ForkedProcess:
    """Fork a child in a process group of its own that calls `run` and exits as a program whose main
    module is `run` would. It has `inherited_fds`, stdout and stderr; stdin is /dev/null.

    Raises OSError: there is no memory, or too many processes exist.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Objects that the collector never looks at stay in memory that both share.
    gc.collect()
    gc.freeze()
    # A signal that comes before the child has given up the supervisor's handlers waits for that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _run_and_exit(run, {0, 1, 2, *inherited_fds}, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ForkedProcess(pid)


def _run_and_exit(run: Callable[[], None], kept: set[int], mask: Iterable[int]) -> NoReturn:
    """In the child. Objects of the supervisor stay alive on the stack below: none of them closes a
    number that is another file's now."""
    code = 1
    try:
        _leave_supervisor(kept)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = _exit_code(run)
        # Joins threads and ends executors, as an interpreter does that exits by itself.
        threading._shutdown()  # type: ignore[attr-defined]
        sys.stderr.flush()
    finally:
        os._exit(code)


def _leave_supervisor(kept: set[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)
    remove_logging()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            # The listing's own is closed already.
            with contextlib.suppress(OSError):
                os.close(int(name))


def _exit_code(run: Callable[[], None]) -> int:
    try:
        run()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter's last resort
        traceback.print_exc()
        return 1
    return 0
