"""own_end: which address of this machine a connection to a peer would come from. Any thread."""

from __future__ import annotations

import socket
from typing import Any


def own_end(family: int, target: Any) -> str | None:
    """The IP that a connection to the socket address `target` would have here; None if there is no
    way. No packet is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(target)
            return str(probe.getsockname()[0])
        except OSError:
            return None
