"""Composition root of process `remoting`: the remoting server and all broker logic.

Runs on the child's main thread, which becomes the loop's. Waits until the `store` process has
recovered (or goes on at once when it had: the log's writer may be restarted alone), then writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.broker_controller import BrokerController
from broker.processes.child import Child, run_child
from broker.settings.startup_options import StartupOptions
from broker.supervisor.control_slots import REMOTING_READY
from ipc.clock import SystemClock

_CHANNELS: Final = ("remoting->store", "remoting->ha", "remoting<-ha")


def main(child: Child) -> None:
    """Serve until stopped."""
    child.page.counters[REMOTING_READY] = 0  # A predecessor's word.
    options = StartupOptions.from_settings(child.settings())
    controller = BrokerController(
        options,
        child.page,
        child.boot.queue_table_fd,
        {name: child.bell(name) for name in ("store", "remoting", "ha")},
        {name: child.socket("channel", name) for name in _CHANNELS},
        SystemClock(),
        child.metrics,
        config_file=Path(child.boot.config_file) if child.boot.config_file else None,
        changed=child.changed_settings,
    )
    if not child.wait_for_store():
        return
    child.on_stop(controller.request_stop)
    controller.open(child.socket("listen", "main"), child.socket("listen", "vip"))
    controller.run()
    controller.close()


if __name__ == "__main__":
    run_child(main)
