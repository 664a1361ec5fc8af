"""The controller: `python -m controller` (bin/mqcontroller).

Order of a start: settings, log, port, store, pid file, the boot line; then the loop runs on this
thread until SIGTERM or SIGINT. A failed start prints one clear line and exits with a nonzero code.
Kin: ControllerStartup.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from typing import Final

from conf.command_line import check_home
from conf.errors import EXIT_CANNOT_START, ConfigError, StartupExitError
from conf.file_permissions import set_umask
from conf.installation import enter_program
from conf.logging_setup import configure_logging, log_directory
from conf.pid_file import remove_pid_file, write_pid_file
from conf.standalone_program import Started, run_program, say
from controller.controller_server import ControllerServer
from controller.controller_startup import PROGRAM, load_controller_options
from controller.embedded_store import ControllerStoreError
from remoting.client_tls import ClientTls
from remoting.listening_socket import ListenError, bind_server
from remoting.server_tls import ServerTls

log = logging.getLogger("controller")

PROCESS_NAME: Final = "controller"


def run() -> int:
    """The console script `mqcontroller` of an installed wheel."""
    enter_program(PROGRAM, sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the controller with this process's command line; returns the exit code."""
    return run_program(_start, log)


def _start(stack: ExitStack) -> Started:
    """All steps that may fail. Raises StartupExitError."""
    options = load_controller_options(sys.argv[1:], os.environ)
    check_home(options.controller.rocketmq_home)
    for message in options.messages:
        say(message)
    set_umask(options.files)
    try:
        configure_logging(
            PROCESS_NAME,
            log_directory(options.logging),
            level=options.logging.log_level,
            console=True,
        )
        listening = bind_server(PROGRAM, options.server)
        stack.callback(listening.close)
        server = ControllerServer(
            options.controller,
            options.server,
            options.client,
            listening,
            tls=ServerTls(options.tls),
            client_tls=ClientTls(options.tls) if options.client.use_tls else None,
        )
        server.open()
        stack.callback(remove_pid_file, write_pid_file(PROGRAM, os.getpid()))
    except (ConfigError, ControllerStoreError, ListenError, OSError) as error:
        raise StartupExitError(EXIT_CANNOT_START, str(error), to_stdout=False) from error
    address, port = listening.getsockname()
    boot_line = f"The Controller Server boot success. serializeType=JSON, address {address}:{port}"
    return Started(server, boot_line, options.warnings)


if __name__ == "__main__":
    sys.exit(main())
