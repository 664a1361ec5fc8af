"""MemberEvents: what the HA connections of controller mode tell the member of the group.

A Protocol, implemented by whoever hosts the member. Called on threads of the room's services;
no call may block or raise. It knows no sockets.
"""

from __future__ import annotations

from typing import Protocol

from ha.epochs import EpochList


class MemberEvents(Protocol):
    """See the module. `connection`: a number that is never used again in this process."""

    def replica_connected(self, connection: int, broker_id: int, async_learner: bool) -> None:
        """A slave has said who it is."""

    def replica_reported(self, connection: int, ack_offset: int) -> None:
        """What that slave has got (and flushed, if its reports mean that)."""

    def replica_gone(self, connection: int) -> None:
        """That connection has ended; nothing more comes of it."""

    def master_hello(self, master_epoch: int, epochs: EpochList, max_offset: int) -> None:
        """The answer of the master that is followed; nothing goes on before `transfer` or
        `hang_up`, nor is another one asked."""

    def frame_taken(self, confirm_offset: int) -> None:
        """Up to there the master's consumers may read; what came with it is published."""

    def log_grew(self) -> None:
        """The own log has grown, or was flushed."""
