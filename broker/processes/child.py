"""What every child process does first and last: boot information, title, signals, parent watch.

Runs on the child's main thread. A child is a fresh interpreter; it gets everything it inherits
(descriptors, settings) as one JSON text in a memfd whose number is its only argument.
"""

from __future__ import annotations

import ctypes
import faulthandler
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
from ipc.bell import Bell

from broker.settings.changed_settings import ChangedSettings
from broker.supervisor.process_end import end_process
from conf.logging_setup import configure_logging
from ipc.command_channel import CommandServer
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import MAX_SERIES, MetricSlots
from store.control_slots import STORE_STATE, StoreState

log = logging.getLogger(__name__)

EXIT_CANNOT_BOOT: Final = 3
"""Starting again will not help: the supervisor stops the whole broker."""
EXIT_FLUSH_FAILED: Final = 4
"""fdatasync failed: what the page cache holds is unknown, only a recovery from disk helps."""
EXIT_REOPEN: Final = 5
"""The store's files shall change as only a closed store's may (store/replica_resync.py): the
supervisor stops every child and starts the broker again."""
_PR_SET_PDEATHSIG: Final = 1
_ORPHAN_STOP_S: Final = 10.0
_STORE_POLL_S: Final = 0.01
_SERVE_POLL_MS: Final = 200


class BootInfo(msgspec.Struct, kw_only=True):
    """Everything a child inherits; descriptors are numbers valid in the child."""

    name: str
    index: int
    parent_pid: int
    broker_started_ms: int
    """Monotonic: when the supervisor was started."""
    settings: dict[str, str]
    log_dir: str
    control_page_fd: int
    queue_table_fd: int
    metrics_fd: int
    metrics_max_series: int = MAX_SERIES
    life_fd: int
    bell_fds: dict[str, int]
    channel_fds: dict[str, int] = {}
    listen_fds: dict[str, int] = {}
    config_file: str = ""
    """The -c file, absolute; empty when the broker was started without one."""
    changes_fd: int
    """ChangedSettings: what requests have changed since the start."""
    lock_fd: int = -1
    """Kept open only: the store's lock holds until the last process is gone."""


class Child:
    """The frame around a child process. Owned by: its main thread."""

    def __init__(self, boot: BootInfo) -> None:
        self.boot = boot
        self.page = ControlPage(boot.control_page_fd)
        self.index = ProcessIndex(boot.index)
        # `ha` writes totals, which no two replicas may share; there are never many of them.
        is_ha = self.index is ProcessIndex.HA
        max_series = MAX_SERIES if is_ha else boot.metrics_max_series
        self.metrics = MetricSlots(boot.metrics_fd, self.index, max_series=max_series)
        """This process' own counters, those of its predecessors included."""
        self.stopping = threading.Event()
        self._stop_seen = False
        self.orphaned = False
        """The supervisor is gone: other children stop at the same time, in no order."""
        self._on_stop: Callable[[], None] = lambda: None

    @property
    def changed_settings(self) -> ChangedSettings:
        """What requests have changed since the start."""
        return ChangedSettings(self.boot.changes_fd)

    def settings(self) -> dict[str, str]:
        """Those of the broker's start, with what has changed since: a process that starts again
        alone must not fall back."""
        return {**self.boot.settings, **self.changed_settings.read()}

    def bell(self, name: str) -> Bell:
        """The bell of process `name` (our own to sleep on, another's to ring)."""
        owner = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING}.get(
            name, ProcessIndex.HA
        )
        return Bell(self.page, owner, self.boot.bell_fds[name])

    def socket(self, kind: str, name: str) -> socket.socket:
        """An inherited socket: kind "listen" or "channel"."""
        table = self.boot.listen_fds if kind == "listen" else self.boot.channel_fds
        return socket.socket(fileno=table[name])

    def say(self, text: str) -> None:
        """One line for whoever started the broker: stderr is the supervisor's."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def wait_for_store(self) -> bool:
        """Beat until the store is ready: True; False when asked to stop before."""
        while self.page.counters[STORE_STATE] != StoreState.READY:
            if self.stopping.wait(_STORE_POLL_S):
                return False
            self.page.beat_starting(self.index)
        return True

    def serve(self, *servers: CommandServer, each_turn: Callable[[], None] = lambda: None) -> None:
        """Answer the commands of other processes until asked to stop. each_turn(): several times a
        second, on this thread."""
        poll = select.poll()
        for server in servers:
            poll.register(server.fileno(), select.POLLIN)
        while not self.stopping.is_set():
            each_turn()
            if poll.poll(_SERVE_POLL_MS):
                for server in servers:
                    server.step()

    def on_stop(self, function: Callable[[], None]) -> None:
        """Called (on the main thread, from the signal handler) when the child shall stop;
        at once when that was asked for before."""
        self._on_stop = function
        if self.stopping.is_set():
            function()

    def install(self) -> None:
        """Title, logging, signals, parent watch, collector settings."""
        setproctitle.setproctitle(f"mqbroker: {self.boot.name}")
        configure_logging(self.boot.name, self.boot.log_dir)
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._handle_stop)
        _die_with_parent(self.boot)
        watch = threading.Thread(target=self._watch_parent, name="ParentWatch", daemon=True)
        watch.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)

    def _handle_stop(self, _number: int, _frame: object) -> None:
        if os.getppid() != self.boot.parent_pid:
            self.orphaned = True
        # Two SIGTERMs come when the supervisor dies. A plain flag, since the second may interrupt
        # the first within Event.set, whose lock it would wait for for ever.
        if not self._stop_seen:
            self._stop_seen = True
            self.stopping.set()
            self._on_stop()

    def _watch_parent(self) -> None:
        """The pipe's other end closes with the supervisor, however that ended. Nobody is left to
        kill a child that cannot stop: it ends itself, so that the store's lock becomes free."""
        os.read(self.boot.life_fd, 1)
        self.orphaned = True
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            log.error("the supervisor is gone: stopping")
        finally:
            threading.Event().wait(_ORPHAN_STOP_S)
            self._end("did not stop in time after the supervisor's death")

    def _end(self, why: str) -> None:
        """At once, whatever the other threads do, and whoever still reads stderr."""
        try:
            self.say(f"process {self.boot.name} {why}: it ends")
        finally:
            os._exit(1)


def ring_nobody() -> None:
    """The ring of a bell that no process sleeps on in this role."""


def _die_with_parent(boot: BootInfo) -> None:
    """SIGTERM when the thread that spawned us ends; it may have ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        log.warning("prctl(PR_SET_PDEATHSIG) failed: errno %s", ctypes.get_errno())
    if os.getppid() != boot.parent_pid:
        log.error("the supervisor ended while this process started: stopping")
        raise SystemExit(EXIT_CANNOT_BOOT)


def read_boot_info() -> BootInfo:
    """The boot information of this process: argument 1 is the number of a memfd."""
    fd = int(sys.argv[1])
    size = os.fstat(fd).st_size
    return msgspec.json.decode(os.pread(fd, size, 0), type=BootInfo)


def run_child(main: Callable[[Child], None]) -> None:
    """Run `main` in the frame; the service guard: an unexpected exception is logged once and
    ends the process, the supervisor restarts it and recovery repairs."""
    child = Child(read_boot_info())
    child.install()
    try:
        main(child)
    except SystemExit:
        raise
    except BaseException as error:
        log.exception("process %s failed", child.boot.name)
        end_process(child.boot.name, error)
    logging.shutdown()
