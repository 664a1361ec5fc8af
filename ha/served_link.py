"""ServedLink: what the two threads of one served slave share.

Made by HAConnections, read by ReadSocketService and WriteSocketService, who know no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ha.refusals import RefusalReason
from ha.slave_progress import SlaveProgress
from ha.transport import Transport

EndLink = Callable[[RefusalReason, str], None]
"""Ends the connection (any thread, once): the transport is shut, both services stop."""


@dataclass(frozen=True, slots=True)
class ServedLink:
    """A slave's transport and progress, and how its services end it and say that they ended."""

    transport: Transport
    progress: SlaveProgress
    end: EndLink
    finished: Callable[[], None]
    """The last action of each of the two services, on its thread."""
