"""`python -m broker`: what bin/mqbroker executes. Reads the settings, becomes the supervisor.

Runs the supervisor process; everything that can be wrong before a child starts ends here with
one line on stderr and the original's exit code.
"""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

import setproctitle

from broker.broker_startup import load_startup_options
from broker.processes.supervising import BrokerProcess
from broker.settings.startup_options import StartupOptions
from broker.slave.promotion import check_promotion, complete_promotion
from broker.supervisor.descriptor_limit import raise_descriptor_limit
from broker.supervisor.listening_sockets import PortTakenError
from conf.command_line import check_home
from conf.errors import EXIT_CANNOT_START, ConfigError, StartupExitError
from conf.logging_setup import configure_logging, log_directory
from ipc.clock import SystemClock
from store.errors import StoreError

_SECOND_BROKER: Final = (
    " (a second broker on this host: -n 127.0.0.1:9876 and a settings file with its own"
    " listenPort, storePathRootDir and metricsPort=0)"
)


def main(arguments: list[str]) -> int:
    """Returns the exit code of the broker."""
    try:
        options = load_startup_options(arguments, os.environ)
        check_home(options.broker.rocketmq_home)
        check_promotion(options)
        return _run(options)
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


def _run(options: StartupOptions) -> int:
    setproctitle.setproctitle("mqbroker: supervisor")
    broker = options.broker
    directory = log_directory(options.logging, broker.broker_name, broker.broker_id)
    configure_logging("supervisor", directory, level=options.logging.log_level, console=True)
    raise_descriptor_limit()
    process = BrokerProcess(options, str(directory), SystemClock())
    process.open()
    complete_promotion(options)
    return process.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
