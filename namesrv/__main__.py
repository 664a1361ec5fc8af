"""The stand-alone name server: `python -m namesrv` (bin/mqnamesrv).

How it starts and ends is in conf/standalone_program.py; here is what it opens: port and KV file,
and a controller if its settings ask for one.
Kin: NamesrvStartup.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Final

from conf.installation import enter_program
from conf.standalone_program import Opened, Program, run_program
from namesrv.controller_in_namesrv import ERRORS, with_controller_beside
from namesrv.kv_config_manager import KVConfigError
from namesrv.namesrv_controller import NamesrvController
from namesrv.namesrv_startup import PROGRAM, NamesrvOptions, load_namesrv_options
from remoting.listening_socket import bind_server
from remoting.server_tls import ServerTls


def run() -> int:
    """The console script `mqnamesrv` of an installed wheel."""
    enter_program(PROGRAM, sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the name server with this process's command line; returns the exit code."""
    return run_program(_PROGRAM)


def _open(options: NamesrvOptions, stack: ExitStack) -> Opened:
    listening = bind_server(PROGRAM, options.server)
    stack.callback(listening.close)
    tls = ServerTls(options.tls)
    server = NamesrvController(options.namesrv, options.server, listening, tls=tls)
    server.open()
    address, port = listening.getsockname()
    line = f"The Name Server boot success. serializeType=JSON, address {address}:{port}"
    if options.controller is not None:
        beside = with_controller_beside(PROGRAM, server, options.controller, stack)
        return Opened(beside[0], f"{line}; {beside[1]}")
    return Opened(server, line)


_PROGRAM: Final = Program(
    PROGRAM,
    "namesrv",
    load_namesrv_options,
    _open,
    (*ERRORS, KVConfigError),
)


if __name__ == "__main__":
    sys.exit(main())
