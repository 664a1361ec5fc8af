"""Composition root of process `ha`: replication's place; its services come with their own issue.

Runs on the child's main thread. It keeps the HA port: a slave that connects is told why in the
log and closed at once, before a byte of the log leaves, so that it tries again later. No replica
is ever counted, so a SYNC_MASTER answers SLAVE_NOT_AVAILABLE, which is true.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from broker.processes.child import Child, run_child
from remoting.selector_loop import EVENT_READ, SelectorLoop
from store.control_page import REPLICA_COUNT, REPLICATED_OFFSET, ProcessIndex

log = logging.getLogger(__name__)

_BEAT_MS: Final = 200


def main(child: Child) -> None:
    """Hold the port until stopped."""
    loop = SelectorLoop("HaLoop")
    counters = child.page.counters
    counters[REPLICA_COUNT] = counters[REPLICATED_OFFSET] = 0
    listening = child.socket("listen", "ha")
    loop.register(listening, EVENT_READ, lambda _events: _refuse(listening))
    loop.call_every(_BEAT_MS, lambda: child.page.beat(ProcessIndex.HA))
    child.on_stop(lambda: loop.stop(0))
    loop.run()


def _refuse(listening: socket.socket) -> None:
    try:
        sock, address = listening.accept()
    except (BlockingIOError, InterruptedError, ConnectionAbortedError):
        return
    log.warning("slave %s:%s: refused, this version does not replicate yet", *address[:2])
    sock.close()


if __name__ == "__main__":
    run_child(main)
