"""Composition root of process `remoting`: the remoting server and all broker logic.

Runs on the child's main thread, which becomes the loop's. Reads config/*.json first: one that
cannot be read ends the broker, since to start again would not help. Waits until process `store` has
recovered (which may already be the case, since the log's writer can be restarted alone), then
serves.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.broker_controller import BrokerController
from broker.json_config_manager import ConfigFileError
from broker.metrics.kept_sends import KeptSends
from broker.processes.child import Child, run_child
from broker.processes.records_aside import keep_records_aside
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.process_end import service_guard
from broker.wiring.process_resources import ProcessResources
from ipc.clock import process_clock

log = logging.getLogger(__name__)

_CHANNELS: Final = ("remoting->store", "remoting->ha", "remoting<-ha", "remoting<-lent")


def main(child: Child) -> None:
    """Serve until stopped."""
    child.page.counters[REMOTING_READY] = 0  # A predecessor's word.
    options = StartupOptions.from_settings(child.settings())
    keep_records_aside(child, options.store)
    controller = BrokerController(
        ProcessResources(
            options=options,
            page=child.page,
            queue_table_fd=child.boot.queue_table_fd,
            bells={name: child.bell(name) for name in ("store", "remoting", "ha")},
            channels={name: child.socket("channel", name) for name in _CHANNELS},
            clock=process_clock(),
            metric_slots=child.metrics,
            metrics_fd=child.boot.metrics_fd,
            kept_sends=KeptSends(child.boot.kept_sends_fd),
            config_file=Path(child.boot.config_file) if child.boot.config_file else None,
            changed=child.changed_settings,
            on_failure=service_guard("remoting"),
        )
    )
    try:
        controller.load_tables()
    except ConfigFileError as error:
        log.critical("%s", error)
        child.say(f"mqbroker: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error
    if not child.wait_for_store():
        return
    child.on_stop(controller.request_stop)
    controller.open(child.socket("listen", "main"), child.socket("listen", "vip"))
    controller.run()
    controller.close()


if __name__ == "__main__":
    run_child(main)
