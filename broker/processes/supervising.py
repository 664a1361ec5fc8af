"""Composition root of the supervisor: the child processes and what they inherit.

Runs on the supervisor's main thread. `open` takes the store's lock, binds every port and creates
the shared memory, bells and channels; a failing step raises one clear error and undoes the others.
`run` starts the children and monitors them (broker/supervisor/supervisor.py). No policy, no message
handling.

Tested by tests/broker/container/test_broker_container.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.metrics import kept_sends
from broker.out.control_slots import EMBEDS_NAME_SERVER, NAME_SERVERS_MISSING
from broker.processes.child_entry import child_entry
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import BootInfo
from broker.supervisor.child_state import ChildSpec
from broker.supervisor.console_program import console_program
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.life_stages import ChildTimeouts, LifeStages
from broker.supervisor.listening_sockets import bind_listener, bind_remoting, own_address, port_of
from broker.supervisor.supervisor import Supervisor
from conf.pid_file import remove_pid_file, write_pid_file
from ipc.bell import Bell
from ipc.clock import Clock
from ipc.command_channel import create_channel
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import create_metric_slots
from ipc.queue_table import create_queue_table, reset_queue_table
from store.control_slots import write_refusal
from store.store_lock import StoreLock

if TYPE_CHECKING:
    from broker.processes.supervisor_services import SupervisorServices

log = logging.getLogger(__name__)

_MODULES: Final = {
    ProcessIndex.NAMESRV: "broker.processes.namesrv",
    ProcessIndex.STORE: "broker.processes.store",
    ProcessIndex.HA: "broker.processes.ha",
    ProcessIndex.REMOTING: "broker.processes.remoting",
}
_MEMBER: Final = "broker.processes.ha_member"
"""Process `ha` in controller mode."""
_REFUSAL: Final = "the store rejects writes: %s"
_BELLS: Final = ("store", "remoting", "ha")
_CHANNELS: Final = (("remoting", "store"), ("remoting", "ha"), ("ha", "remoting"), ("ha", "store"))
"""(client, server) of each command channel."""


def print_line(line: str) -> None:
    """Print a line for the user who started the program. stdout may be a file on a full disk, or
    a terminal that is gone: the program serves all the same."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def say_serving(boot_line: str, refusal: str) -> None:
    """Tell the user who started the broker that it serves and, last, why it takes no messages.

    refusal: `write_refusal`'s text."""
    print_line(boot_line)
    if refusal:
        log.error(_REFUSAL, refusal)


class BrokerProcess:
    """The supervisor process of one broker. Owned by: its main thread."""

    def __init__(
        self,
        options: StartupOptions,
        log_dir: str,
        clock: Clock,
        *,
        writes_pid_file: bool = True,
        on_serving: Callable[[str, str], None] = say_serving,
        each_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """writes_pid_file: whether bin/mqshutdown shall find it. on_serving: called with the boot
        line, and with why the store refuses writes (empty: it takes them), once the broker serves.
        each_tick: called at every tick of the supervisor."""
        self._options = options
        self._writes_pid_file = writes_pid_file
        self._on_serving = on_serving
        self._each_tick = each_tick
        self._log_dir = log_dir
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._stack = contextlib.ExitStack()
        self._listeners: dict[str, socket.socket] = {}
        self._boot_line_printed = False
        self._missing = 0
        self.stop_reason = ""
        """Why the broker stopped by itself; empty after an orderly stop, and before the end."""
        self._refusal = ""
        self._services: SupervisorServices | None = None

    # -- open ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Acquire everything that the children inherit. Raises PortTakenError, StoreError,
        OSError."""
        with contextlib.ExitStack() as undo:
            self._lock = undo.enter_context(StoreLock(self._options.store.root))
            self._bind(undo)
            self._page_fd = ControlPage.create()
            self._table_fd = create_queue_table()
            self._metrics_fd = create_metric_slots()
            kept = Path(self._options.store.root, kept_sends.FILE_NAME)
            self._ended = kept_sends.read_kept_sends(kept)
            self._kept_fd = kept_sends.create_kept_sends(kept)
            self._changes_fd = ChangedSettings.create()
            self._page = ControlPage(self._page_fd)
            self._bells = {name: Bell.create() for name in _BELLS}
            self._channels: dict[str, socket.socket] = {}
            for client, server in _CHANNELS:
                asking, answering = create_channel()
                self._channels[f"{client}->{server}"] = asking
                self._channels[f"{server}<-{client}"] = answering
            self._channels["ha->lent"], self._channels["remoting<-lent"] = create_channel()
            self._life_read, self._life_write = os.pipe2(os.O_CLOEXEC)
            if self._writes_pid_file:
                undo.callback(remove_pid_file, write_pid_file("mqbroker", os.getpid()))
            self._stack = undo.pop_all()

    def _bind(self, undo: contextlib.ExitStack) -> None:
        options, server = self._options, self._options.server
        backlog = server.server_socket_backlog
        main, vip = bind_remoting(server.bind_address, server.listen_port, backlog)
        self._listeners.update(main=main, vip=vip)
        for sock in (main, vip):
            undo.callback(sock.close)
        self._add(undo, "ha", server.bind_address, options.ha.ha_listen_port, "haListenPort")
        metrics = options.supervisor
        address = metrics.metrics_address or server.bind_address
        self._add(undo, "metrics", address, metrics.metrics_port, "metricsPort")
        if self.embeds_namesrv:
            port = metrics.embedded_namesrv_port
            setting = "embeddedNamesrvPort, or name a running name server with -n"
            self._add(undo, "namesrv", server.bind_address, port, setting)

    def _add(
        self, undo: contextlib.ExitStack, name: str, address: str, port: int, setting: str
    ) -> None:
        backlog = self._options.server.server_socket_backlog
        sock = self._listeners[name] = bind_listener(address, port, backlog, setting)
        undo.callback(sock.close)

    @property
    def embeds_namesrv(self) -> bool:
        """Whether this broker runs an embedded name server."""
        options = self._options
        is_named = options.namesrv_addresses or options.broker.fetch_namesrv_addr_by_address_server
        return options.supervisor.embedded_namesrv_enable and not is_named

    @property
    def namesrv_addresses(self) -> str:
        """The name servers that the broker registers with, separated by `;`."""
        if self.embeds_namesrv:
            return own_address(self._listeners["namesrv"])
        return ";".join(self._options.namesrv_addresses)

    # -- run -----------------------------------------------------------------------------------

    def run(self) -> int:
        """Start the children, print the boot line once they serve, and monitor them until the
        end."""
        with self._stack:
            for warning in self._options.warnings:
                log.warning("%s", warning)
            self._page.counters[EMBEDS_NAME_SERVER] = self.embeds_namesrv
            self._console = console_program(
                self._options.supervisor, self.namesrv_addresses, self._log_dir, self._clock
            )
            self._supervisor = Supervisor(
                self._specs(),
                self._page,
                self._clock,
                ChildTimeouts(hang_ms=self._options.supervisor.process_hang_timeout_millis),
                LifeStages(
                    on_started=self._begin_services,
                    on_tick=self._tick,
                    on_reopen=self._reset_queue_table,
                    on_answered=lambda in_order: self._end_dump(in_order=in_order),
                ),
                home=Path(__file__).resolve().parents[2],
            )
            try:
                return self._supervisor.run()
            finally:
                self.stop_reason = self._supervisor.stop_reason
                self._console.stop()
                if self._services is not None:
                    self._services.end()

    def _begin_services(self) -> None:
        """The supervisor's other threads; none exists while it forks its children."""
        # Not before: what is imported is in each child that is forked afterwards.
        from broker.processes.supervisor_services import SupervisorServices

        self._services = SupervisorServices(
            self._options,
            page=self._page,
            children=self._supervisor.children,
            clock=self._clock,
            metrics_fd=self._metrics_fd,
            changes_fd=self._changes_fd,
        )
        self._services.begin(
            self._listeners["metrics"], kept_sends.KeptSends(self._kept_fd), self._ended
        )

    def _end_dump(self, *, in_order: bool) -> None:
        if self._services is not None:
            self._services.end_dump(in_order=in_order)

    def _reset_queue_table(self) -> None:
        """A resync may remove queues; no process has the table mapped at this point."""
        reset_queue_table(self._table_fd)

    def _tick(self) -> None:
        self._each_tick()
        self._report_write_refusal()
        self._report_registration()
        if not self._boot_line_printed and self._page.counters[REMOTING_READY]:
            self._boot_line_printed = True
            log.info("%s", self._boot_line())
            self._on_serving(self._boot_line(), self._refusal)
        if self._boot_line_printed:
            self._console.tick()

    def _report_registration(self) -> None:
        """Say on stderr, too, that clients do not find this broker, and when that is over."""
        missing = self._page.counters[NAME_SERVERS_MISSING]
        if missing == self._missing or not self._boot_line_printed:
            return
        self._missing = missing
        if missing:
            log.error(
                "not registered with %s of the name servers %s: clients that ask there cannot find "
                "this broker; registration is retried, see remoting.log for the reason",
                missing,
                self.namesrv_addresses,
            )
        else:
            log.warning("registered with all name servers now")

    def _report_write_refusal(self) -> None:
        """Say on stderr, too, why the store refuses writes, and when that is over."""
        refusal = write_refusal(self._page)
        if refusal == self._refusal:
            return
        self._refusal = refusal
        if refusal:
            log.error(_REFUSAL, refusal)
        else:
            log.warning("the store accepts writes again")

    def _boot_line(self) -> str:
        broker = self._options.broker
        address = f"{broker.broker_ip1}:{port_of(self._listeners['main'])}"
        line = f"The broker[{broker.broker_name}, {address}] boot success. serializeType=JSON"
        if self.namesrv_addresses:
            line += f" and name server is {self.namesrv_addresses}"
        ports = ", ".join(f"{name} {port_of(sock)}" for name, sock in self._listeners.items())
        return f"{line} (ports: {ports})"

    def _specs(self) -> list[ChildSpec]:
        """The children in start order; they stop in the reverse order."""
        names = [ProcessIndex.STORE, ProcessIndex.HA, ProcessIndex.REMOTING]
        if self.embeds_namesrv:
            names.insert(0, ProcessIndex.NAMESRV)
        return [self._spec(index) for index in names]

    def _spec(self, index: ProcessIndex) -> ChildSpec:
        name = index.name.lower()
        config_file = self._options.config_file
        listen = {
            "remoting": ("main", "vip"),
            "ha": ("ha",),
            "namesrv": ("namesrv",),
        }.get(name, ())
        listen_fds = {key: self._listeners[key].fileno() for key in listen}
        channel_fds = {
            key: sock.fileno()
            for key, sock in self._channels.items()
            if key.startswith((f"{name}->", f"{name}<-"))
        }
        boot = BootInfo(
            name=name,
            index=index,
            parent_pid=0,
            broker_started_ms=self._started_ms,
            settings=self._child_settings(),
            log_dir=self._log_dir,
            control_page_fd=self._page_fd,
            queue_table_fd=self._table_fd,
            metrics_fd=self._metrics_fd,
            kept_sends_fd=self._kept_fd,
            metrics_max_series=self._options.supervisor.metrics_max_series,
            life_fd=self._life_read,
            bell_fds=self._bells,
            channel_fds=channel_fds,
            listen_fds=listen_fds,
            config_file="" if config_file is None else str(config_file.absolute()),
            changes_fd=self._changes_fd,
            lock_fd=self._lock.fileno(),
        )
        inherited = (
            self._page_fd,
            self._table_fd,
            self._metrics_fd,
            self._changes_fd,
            self._life_read,
            self._lock.fileno(),
            *self._bells.values(),
            *channel_fds.values(),
            *listen_fds.values(),
            *(() if self._kept_fd < 0 else (self._kept_fd,)),
        )
        module = _MODULES[index]
        if index is ProcessIndex.HA and self._options.controller_mode.enable_controller_mode:
            module = _MEMBER
        return ChildSpec(name, index, module, boot, inherited, child_entry(module))

    def _child_settings(self) -> dict[str, str]:
        settings = self._options.child_settings()
        settings["listenPort"] = str(port_of(self._listeners["main"]))
        settings["haListenPort"] = str(port_of(self._listeners["ha"]))
        settings["namesrvAddr"] = self.namesrv_addresses
        return settings
