"""The stand-alone name server: `python -m namesrv` (bin/mqnamesrv).

Order of a start: settings, log, port, KV file, pid file, the boot line; then the loop runs on this
thread until SIGTERM or SIGINT. A failed start prints one clear line and exits with a nonzero code.
Kin: NamesrvStartup.
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
from namesrv.kv_config_manager import KVConfigError
from namesrv.namesrv_controller import NamesrvController
from namesrv.namesrv_startup import load_namesrv_options
from remoting.listening_socket import ListenError, bind_server
from remoting.server_tls import ServerTls

log = logging.getLogger("namesrv")

PROCESS_NAME: Final = "namesrv"
PID_KIND: Final = "mqnamesrv"


def run() -> int:
    """The console script `mqnamesrv` of an installed wheel."""
    enter_program("mqnamesrv", sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the name server with this process's command line; returns the exit code."""
    return run_program(_start, log)


def _start(stack: ExitStack) -> Started:
    """All steps that may fail. Raises StartupExitError."""
    options = load_namesrv_options(sys.argv[1:], os.environ)
    check_home(options.namesrv.rocketmq_home)
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
        listening = bind_server("mqnamesrv", options.server)
        stack.callback(listening.close)
        tls = ServerTls(options.tls)
        controller = NamesrvController(options.namesrv, options.server, listening, tls=tls)
        controller.open()
        stack.callback(remove_pid_file, write_pid_file(PID_KIND, os.getpid()))
    except (ConfigError, KVConfigError, ListenError, OSError) as error:
        raise StartupExitError(EXIT_CANNOT_START, str(error), to_stdout=False) from error
    address, port = listening.getsockname()
    boot_line = f"The Name Server boot success. serializeType=JSON, address {address}:{port}"
    return Started(controller, boot_line, options.warnings)


if __name__ == "__main__":
    sys.exit(main())
