"""The controller: `python -m controller` (bin/mqcontroller).

How it starts and ends is in conf/standalone_program.py; here is what it opens: port and store.
Kin: ControllerStartup.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Final

from conf.errors import ConfigError
from conf.installation import enter_program
from conf.standalone_program import Opened, Program, run_program
from controller.controller_server import ControllerServer
from controller.controller_startup import PROGRAM, ControllerOptions, load_controller_options
from controller.group_store import ControllerStoreError
from remoting.client_tls import ClientTls
from remoting.listening_socket import ListenError, bind_server
from remoting.server_tls import ServerTls


def run() -> int:
    """The console script `mqcontroller` of an installed wheel."""
    enter_program(PROGRAM, sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the controller with this process's command line; returns the exit code."""
    return run_program(_PROGRAM)


def _open(options: ControllerOptions, stack: ExitStack) -> Opened:
    listening = bind_server(PROGRAM, options.server)
    stack.callback(listening.close)
    server = ControllerServer(
        options.controller,
        options.server,
        options.client,
        listening,
        tls=ServerTls(options.tls),
        client_tls=ClientTls(options.tls) if options.client.use_tls else None,
        etcd=options.etcd,
    )
    server.open()
    address, port = listening.getsockname()
    line = f"The Controller Server boot success. serializeType=JSON, address {address}:{port}"
    return Opened(server, line)


_PROGRAM: Final = Program(
    PROGRAM,
    "controller",
    load_controller_options,
    _open,
    (ConfigError, ControllerStoreError, ListenError, OSError),
)


if __name__ == "__main__":
    sys.exit(main())
