"""`python -m broker`: what bin/mqbroker executes. Reads the settings, becomes the supervisor.

Runs in the supervisor process. Every error found before a child starts ends here: one line on
stderr and RocketMQ's exit code.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final, TextIO

import setproctitle

from broker.broker_startup import load_startup_options
from broker.processes.supervising import BrokerProcess, say_serving
from broker.settings.startup_options import StartupOptions
from broker.slave.promotion import check_promotion, complete_promotion
from broker.supervisor.compile_program import compile_program
from broker.supervisor.descriptor_limit import raise_descriptor_limit
from broker.supervisor.listening_sockets import PortTakenError
from conf.command_line import check_home
from conf.compiled_modules import log_modules_in_use
from conf.errors import EXIT_CANNOT_START, ConfigError, StartupExitError
from conf.file_permissions import set_umask
from conf.installation import enter_program
from conf.logging_setup import configure_logging, log_directory
from ipc.clock import process_clock
from store.disk_fault_hooks import install_disk_faults
from store.errors import StoreError

log = logging.getLogger(__name__)

_SECOND_BROKER: Final = (
    " (a second broker on this host: -n 127.0.0.1:9876 and a settings file with its own"
    " listenPort, storePathRootDir and metricsPort=0)"
)


def run() -> int:
    """The console script `mqbroker` of an installed wheel."""
    enter_program("mqbroker", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: list[str]) -> int:
    """Returns the exit code of the broker."""
    try:
        warning = install_disk_faults(os.environ)
        options = load_startup_options(arguments, os.environ)
        check_home(options.broker.rocketmq_home)
        check_promotion(options)
        return _run(options, warning)
    except StartupExitError as error:
        _say(error.text, sys.stdout if error.to_stdout else sys.stderr)
        return error.exit_code
    except PortTakenError as error:
        _say(f"mqbroker: {error}{_SECOND_BROKER}", sys.stderr)
    except (ConfigError, StoreError, OSError) as error:
        _say(f"mqbroker: {error}", sys.stderr)
    return EXIT_CANNOT_START


def _say(text: str, stream: TextIO) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def _run(options: StartupOptions, warning: str | None) -> int:
    setproctitle.setproctitle("mqbroker: supervisor")
    set_umask(options.files)
    broker = options.broker
    directory = log_directory(options.logging, broker.broker_name, broker.broker_id)
    configure_logging("supervisor", directory, level=options.logging.log_level, console=True)
    log_modules_in_use()
    if warning is not None:
        log.critical(warning)
    raise_descriptor_limit()
    wanted = options.supervisor.compile_modules
    compiling = compile_program(os.environ, directory, is_wanted=wanted)

    def serves(boot_line: str, refusal: str) -> None:
        say_serving(boot_line, refusal)
        compiling.start()

    process = BrokerProcess(
        options, str(directory), process_clock(), on_serving=serves, each_tick=compiling.tick
    )
    process.open()
    complete_promotion(options)
    try:
        return process.run()
    finally:
        compiling.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
