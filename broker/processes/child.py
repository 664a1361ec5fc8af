"""Common startup and shutdown of the child processes: boot information, title, signals, parent
watch.

Runs on the child's main thread. A child is forked by the supervisor or a fresh interpreter.
Everything it inherits (descriptors, settings) is described by a JSON text in a memfd; a fresh
interpreter has its number as its only argument.

Tested by tests/broker/test_ha_process.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

import msgspec
import setproctitle

from broker.settings.changed_settings import ChangedSettings
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, BootInfo
from broker.supervisor.process_end import end_process, say_last_words_with
from conf.compiled_modules import log_modules_in_use
from conf.logging_setup import configure_logging
from ipc.bell import Bell
from ipc.command_channel import CommandServer
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import MAX_SERIES, MetricSlots
from store.control_slots import STORE_STATE, StoreState
from store.disk_fault_hooks import install_disk_faults

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
_ORPHAN_STOP_S: Final = 10.0
_STORE_POLL_S: Final = 0.01
_MOST_SIGNALS: Final = 4096
_read_boot_info: Final = msgspec.json.Decoder(BootInfo).decode


class Child:
    """The environment of a child process. Owned by: its main thread."""

    def __init__(self, boot: BootInfo) -> None:
        self.boot = boot
        self.page = ControlPage(boot.control_page_fd)
        self.index = ProcessIndex(boot.index)
        # `ha` has per-replica totals, which must not be merged; there are never many of them.
        is_ha = self.index is ProcessIndex.HA
        max_series = MAX_SERIES if is_ha else boot.metrics_max_series
        self.metrics = MetricSlots(boot.metrics_fd, self.index, max_series=max_series)
        """This process's counters, including those of its predecessors."""
        self.stopping = threading.Event()
        self._stop_seen = False
        self._signalled, self._signals = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        """A signal's number comes here, whichever thread the kernel gave it to."""
        self._on_stop: Callable[[], None] = lambda: None

    @property
    def changed_settings(self) -> ChangedSettings:
        """The settings changed at run time."""
        return ChangedSettings(self.boot.changes_fd)

    def settings(self) -> dict[str, str]:
        """The settings that the broker was started with, plus run-time changes: a process that is
        restarted alone must not fall back."""
        return {**self.boot.settings, **self.changed_settings.read()}

    def bell(self, name: str) -> Bell:
        """The bell of process `name` (its own to sleep on, another process's to ring)."""
        owner = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING}.get(
            name, ProcessIndex.HA
        )
        return Bell(self.page, owner, self.boot.bell_fds[name])

    def socket(self, kind: str, name: str) -> socket.socket:
        """An inherited socket: kind "listen" or "channel"."""
        table = self.boot.listen_fds if kind == "listen" else self.boot.channel_fds
        return socket.socket(fileno=table[name])

    def say(self, text: str) -> None:
        """Print one line for the user who started the broker; stderr is the supervisor's. One that
        cannot be written is dropped."""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def wait_for_store(self) -> bool:
        """Send heartbeats until the store is ready; False if asked to stop before that."""
        while self.page.counters[STORE_STATE] != StoreState.READY:
            if self.stopping.wait(_STORE_POLL_S):
                return False
            self.page.beat_starting(self.index)
        return True

    def serve(
        self,
        *servers: CommandServer,
        each_turn: Callable[[], None] = lambda: None,
        turn_ms: int | None = None,
    ) -> None:
        """Serve the commands of other processes until asked to stop. each_turn: called every
        `turn_ms` and after each command, on this thread."""
        poll = select.poll()
        poll.register(self._signalled, select.POLLIN)
        for server in servers:
            poll.register(server.fileno(), select.POLLIN)
        while not self.stopping.is_set():
            each_turn()
            if poll.poll(turn_ms):
                # Of a signal that asks for no stop: else no turn would wait any more.
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signalled, _MOST_SIGNALS)
                for server in servers:
                    server.step()

    def on_stop(self, function: Callable[[], None]) -> None:
        """Set the function to be called (on the main thread, from the signal handler) when the
        child is asked to stop; called at once if that has already happened."""
        self._on_stop = function
        if self.stopping.is_set():
            function()

    def install(self) -> None:
        """Title, logging, disk faults of mqchaos, signals, parent watch, collector settings."""
        setproctitle.setproctitle(f"mqbroker: {self.boot.name}")
        configure_logging(self.boot.name, self.boot.log_dir)
        log_modules_in_use()
        say_last_words_with(functools.partial(self.page.say_last, self.index))
        warning = install_disk_faults(os.environ)
        if warning is not None:
            log.critical(warning)
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._handle_stop)
        signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
        _die_with_parent(self.boot)
        watch = threading.Thread(target=self._watch_parent, name="ParentWatch", daemon=True)
        watch.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)

    def _handle_stop(self, _number: int, _frame: object) -> None:
        # Two SIGTERMs arrive when the supervisor dies. A plain flag, since the second one may
        # interrupt the first within Event.set, and would deadlock on its lock.
        if not self._stop_seen:
            self._stop_seen = True
            self.stopping.set()
            self._on_stop()

    def _watch_parent(self) -> None:
        """The pipe's other end closes when the supervisor ends for any reason. Nothing is left to
        kill a child that fails to stop, so it ends itself to release the store's lock."""
        os.read(self.boot.life_fd, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            log.error("the supervisor has died: stopping")
        finally:
            threading.Event().wait(_ORPHAN_STOP_S)
            self._end("did not stop in time after the supervisor died")

    def _end(self, why: str) -> None:
        """Exit at once, regardless of other threads and of stderr."""
        try:
            self.say(f"process {self.boot.name} {why}: exiting")
        finally:
            os._exit(1)


def ring_nobody() -> None:
    """Ring of a bell that no process waits on in this role."""


def _die_with_parent(boot: BootInfo) -> None:
    """Request a SIGTERM when the spawning thread ends; it may have ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        log.warning("prctl(PR_SET_PDEATHSIG) failed: errno %s", ctypes.get_errno())
    if os.getppid() != boot.parent_pid:
        log.error("the supervisor ended while this process started: stopping")
        raise SystemExit(EXIT_CANNOT_BOOT)


def read_boot_info(fd: int) -> BootInfo:
    """The boot information of this process, from its memfd."""
    size = os.fstat(fd).st_size
    return _read_boot_info(os.pread(fd, size, 0))


def run_child(main: Callable[[Child], None], boot_fd: int | None = None) -> None:
    """Run `main` as a child process; boot_fd: the process's first argument if not given. This is
    the service guard: an unexpected exception is logged once and ends the process; the supervisor
    restarts it and recovery repairs the files."""
    child = Child(read_boot_info(int(sys.argv[1]) if boot_fd is None else boot_fd))
    child.install()
    try:
        main(child)
    except SystemExit:
        raise
    except BaseException as error:
        log.exception("process %s failed", child.boot.name)
        end_process(child.boot.name, error)
    logging.shutdown()
