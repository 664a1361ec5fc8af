"""Composition root of process `remoting`: the remoting server and all broker logic.

Runs on the child's main thread, which becomes the loop's. Waits until the `store` process has
recovered (or goes on at once when it had: the log's writer may be restarted alone), then writes.
"""

from __future__ import annotations

import threading
from typing import Final

from broker.broker_controller import BrokerController
from broker.broker_startup import StartupOptions
from broker.processes.child import Child, run_child
from store.clock import SystemClock
from store.control_page import REMOTING_READY, STORE_STATE, ProcessIndex, StoreState

_POLL_S: Final = 0.01


def main(child: Child) -> None:
    """Serve until stopped."""
    child.page.counters[REMOTING_READY] = 0  # A predecessor's word.
    options = StartupOptions.from_settings(child.boot.settings)
    controller = BrokerController(
        options,
        child.page,
        child.boot.queue_table_fd,
        {name: child.bell(name) for name in ("store", "remoting", "ha")},
        child.socket("channel", "remoting->store"),
        SystemClock(),
    )
    if not _wait_for_store(child):
        return
    child.on_stop(controller.request_stop)
    controller.open(child.socket("listen", "main"), child.socket("listen", "vip"))
    controller.run()
    controller.close()


def _wait_for_store(child: Child) -> bool:
    """True when the store is ready; False when this process was asked to stop before."""
    pause = threading.Event()
    while child.page.counters[STORE_STATE] != StoreState.READY:
        if child.stopping.is_set():
            return False
        child.page.beat(ProcessIndex.REMOTING)
        pause.wait(_POLL_S)
    return True


if __name__ == "__main__":
    run_child(main)
