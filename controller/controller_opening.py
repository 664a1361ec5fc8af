"""Opens a controller from its options: ports, store, metrics.

Called once, on the main thread: of its own process (controller/__main__.py), or of a name server's
(namesrv/controller_in_namesrv.py).
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Final

from conf.errors import ConfigError
from controller.controller_server import ControllerServer
from controller.controller_startup import ControllerOptions
from controller.group_store import ControllerStoreError
from remoting.client_tls import ClientTls
from remoting.listening_socket import ListenError, Place, bind_place, bind_server
from remoting.server_tls import ServerTls

log = logging.getLogger(__name__)

ERRORS: Final = (ConfigError, ControllerStoreError, ListenError, OSError)
"""Why it cannot be opened: one line for the user each."""
_METRICS_BACKLOG: Final = 1_024


def open_controller(
    program: str, options: ControllerOptions, stack: ExitStack
) -> tuple[ControllerServer, str]:
    """A controller that is open, and the line that says so. What the stack holds is undone at the
    end. Raises ERRORS."""
    listening = bind_server(program, options.server)
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
    config = options.controller
    if config.metrics_port >= 0:
        address = config.metrics_address or options.server.bind_address
        place = Place(address, config.metrics_port, "metricsAddress", "metricsPort")
        metrics = bind_place(program, place, _METRICS_BACKLOG)
        stack.callback(metrics.close)
        server.show_metrics(metrics)
        log.info("metrics on %s:%s", *metrics.getsockname())
    server.open()
    host, port = listening.getsockname()
    return (
        server,
        f"The Controller Server boot success. serializeType=JSON, address {host}:{port}",
    )
