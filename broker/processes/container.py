"""`python -m broker.processes.container`: what bin/mqbrokercontainer executes.

The composition root of the container's process. Its main thread is a Supervisor
(broker/supervisor/supervisor.py) of the embedded name server, if there is one, and looks after the
brokers' supervisors at each of its ticks; a loop thread and request threads answer at the
container's port. No policy, no message. Every error found before a process starts is one line on
stderr and RocketMQ's exit code.

Tested by tests/broker/container/test_broker_container.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import setproctitle

from broker.container.broker_container import BrokerContainer
from broker.container.broker_container_processor import (
    REQUEST_POOL,
    BrokerContainerProcessor,
    OperatorsOnly,
)
from broker.container.contained_broker import BrokerStartError, ContainedBroker
from broker.container.contained_options import BrokerSettingsError, ContainedOptions
from broker.container.container_server import ContainerServer
from broker.container.container_settings import ContainerSettings
from broker.container.container_startup import PROGRAM, ContainerOptions, load_container_options
from broker.processes.child_entry import child_entry
from broker.processes.supervising import print_line
from broker.settings.changed_settings import ChangedSettings
from broker.supervisor.boot_info import BootInfo
from broker.supervisor.child_state import ChildSpec
from broker.supervisor.compile_program import compile_program
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.descriptor_limit import raise_descriptor_limit
from broker.supervisor.life_stages import ChildTimeouts, LifeStages
from broker.supervisor.listening_sockets import (
    PortTakenError,
    bind_listener,
    bind_remoting,
    own_address,
    port_of,
)
from broker.supervisor.supervisor import Supervisor
from conf.command_line import check_home
from conf.compiled_modules import log_modules_in_use
from conf.config_loader import describe
from conf.errors import EXIT_CANNOT_START, ConfigError, StartupExitError
from conf.file_permissions import set_umask
from conf.installation import enter_program
from conf.logging_setup import configure_logging, log_directory
from conf.pid_file import remove_pid_file, write_pid_file
from ipc.clock import Clock, process_clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import create_metric_slots
from remoting.server_tls import ServerTls

log = logging.getLogger("broker.container")

_NAMESRV_MODULE: Final = "broker.processes.namesrv"
_NAMESRV_PORT: Final = "embeddedNamesrvPort, or name a running name server with -n"


def run() -> int:
    """The console script `mqbrokercontainer` of an installed wheel."""
    enter_program(PROGRAM, sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of the container."""
    try:
        options = load_container_options(arguments, os.environ)
        check_home(options.container.rocketmq_home)
        return _run(options)
    except StartupExitError as error:
        stream = sys.stdout if error.to_stdout else sys.stderr
        stream.write(f"{error.text}\n")
        return error.exit_code
    except (PortTakenError, BrokerSettingsError, ConfigError, OSError) as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
    return EXIT_CANNOT_START


def _run(options: ContainerOptions) -> int:
    setproctitle.setproctitle(f"{PROGRAM}: supervisor")
    set_umask(options.files)
    log_dir = log_directory(options.logging)
    configure_logging("container", log_dir, level=options.logging.log_level, console=True)
    log_modules_in_use()
    raise_descriptor_limit()
    process = ContainerProcess(options, log_dir, process_clock())
    process.open()
    return process.run()


class ContainerProcess:
    """The process of one broker container. Owned by: its main thread."""

    def __init__(self, options: ContainerOptions, log_dir: Path, clock: Clock) -> None:
        self._options = options
        self._log_dir = log_dir
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._stack = contextlib.ExitStack()
        self._listeners: list[socket.socket] = []
        self._namesrv: socket.socket | None = None
        self._configured: list[ContainedOptions] = []
        wanted = options.container.compile_modules
        self._compiling = compile_program(os.environ, log_dir, is_wanted=wanted)
        self._brokers_serve = False
        """Since the last tick. Set on a request thread."""

    # -- open ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Bind the ports and check the settings of all brokers. Raises PortTakenError,
        BrokerSettingsError, OSError; nothing stays open then."""
        with contextlib.ExitStack() as undo:
            self._bind(undo)
            self._page_fd = ControlPage.create()
            self._page = ControlPage(self._page_fd)
            self._life_read, self._life_write = os.pipe2(os.O_CLOEXEC)
            self._settings = ContainerSettings(self._options, self._clock.now_ms)
            self._brokers = BrokerContainer(
                self._options,
                self._namesrv_addresses,
                os.environ,
                life_fd=self._life_read,
                is_pinning=lambda: self._settings.container.broker_cpu_pinning_enable,
                say=print_line,
            )
            self._configured = self._brokers.load_configured()
            undo.callback(remove_pid_file, write_pid_file(PROGRAM, os.getpid()))
            self._stack = undo.pop_all()

    def _bind(self, undo: contextlib.ExitStack) -> None:
        server = self._options.server
        backlog = server.server_socket_backlog
        self._listeners += bind_remoting(server.bind_address, server.listen_port, backlog)
        for sock in self._listeners:
            undo.callback(sock.close)
        if self._options.embeds_namesrv:
            port = self._options.container.embedded_namesrv_port
            self._namesrv = bind_listener(server.bind_address, port, backlog, _NAMESRV_PORT)
            undo.callback(self._namesrv.close)

    @property
    def _namesrv_addresses(self) -> str:
        if self._namesrv is not None:
            return own_address(self._namesrv)
        return ";".join(self._options.namesrv_addresses)

    # -- run -------------------------------------------------------------------------------------

    def run(self) -> int:
        """Start all, watch until the end; returns the exit code."""
        with self._stack:
            for warning in self._options.warnings:
                log.warning("%s", warning)
            self._supervisor = Supervisor(
                [] if self._namesrv is None else [self._namesrv_spec(self._namesrv)],
                self._page,
                self._clock,
                ChildTimeouts(hang_ms=self._options.container.process_hang_timeout_millis),
                LifeStages(on_started=self._begin, on_tick=self._tick, on_stop=self._end),
                home=Path(__file__).resolve().parents[2],
            )
            try:
                return self._supervisor.run()
            finally:
                self._compiling.stop()

    def _tick(self) -> None:
        self._brokers.watch()
        if self._brokers_serve:
            self._brokers_serve = False
            self._compiling.start()
        self._compiling.tick()

    def _begin(self) -> None:
        """The container's threads; none exists while the name server is forked."""
        processor = BrokerContainerProcessor(self._brokers, self._settings)
        self._server = ContainerServer(
            processor.routes(),
            self._listeners,
            self._options.server,
            pool=REQUEST_POOL,
            gate=OperatorsOnly(self._options.container.admin_allowed_addresses).check,
            tls=ServerTls(self._options.tls),
            on_failure=lambda reason: self._supervisor.stop_with(reason, 1),
        )
        # The supervisor's quiet tick: it has no other child that is about to serve.
        self._page.counters[REMOTING_READY] = 1
        log.info("%s", self._boot_line())
        print_line(self._boot_line())
        try:
            started = self._brokers.start_configured(self._configured)
        except BrokerStartError as error:
            self._stop_for(error)
        else:
            self._server.start(lambda: self._await_configured(started))

    def _stop_for(self, error: BrokerStartError) -> None:
        self._supervisor.stop_with(f"{error}; the broker container stops", EXIT_CANNOT_START)

    def _await_configured(self, started: list[ContainedBroker]) -> None:
        """On a request thread."""
        try:
            self._brokers.await_configured(started)
            self._brokers_serve = True
        except BrokerStartError as error:
            self._stop_for(error)
        except Exception as error:  # the service guard: logged, then the container stops
            log.exception("starting the brokers failed")
            self._supervisor.stop_with(f"starting the brokers failed: {error!r}", 1)

    def _end(self) -> None:
        """Stop in order: requests, brokers; the name server is stopped by the supervisor."""
        self._brokers.stop_starting()
        self._server.shutdown()
        problems = self._brokers.stop_all()
        if problems:
            self._supervisor.stop_with("; ".join(problems), 1)

    def _boot_line(self) -> str:
        """RocketMQ's, and the ports."""
        address = f"{self._options.container.broker_container_ip}:{port_of(self._listeners[0])}"
        line = "The broker container boot success. serializeType=JSON"
        if self._namesrv_addresses:
            line += f" and name server is {self._namesrv_addresses}"
        return f"{line} (container: {address}, brokers: {len(self._configured)})"

    def _namesrv_spec(self, listening: socket.socket) -> ChildSpec:
        index = ProcessIndex.NAMESRV
        metrics_fd, changes_fd = create_metric_slots(), ChangedSettings.create()
        options = self._options
        boot = BootInfo(
            name="namesrv",
            index=index,
            parent_pid=0,
            broker_started_ms=self._started_ms,
            settings={**options.settings(), **describe(options.tls)},
            log_dir=str(self._log_dir),
            control_page_fd=self._page_fd,
            queue_table_fd=-1,
            metrics_fd=metrics_fd,
            life_fd=self._life_read,
            bell_fds={},
            listen_fds={"namesrv": listening.fileno()},
            changes_fd=changes_fd,
        )
        inherited = (self._page_fd, metrics_fd, changes_fd, self._life_read, listening.fileno())
        entry = child_entry(_NAMESRV_MODULE)
        # Brokers serve the clients that know their routes without it: they do not stop for it.
        return ChildSpec("namesrv", index, _NAMESRV_MODULE, boot, inherited, entry, is_vital=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
