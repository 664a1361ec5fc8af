"""LossRule: what happens when messages that were to be read are gone.

Driver and executors. By failOnDataLoss it is an error, or a warning in the log of the worker: it is
never silent.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from remoting.body.message_queue import MessageQueue
from spark.sources.errors import DataLossError

log = logging.getLogger(__name__)

_WAY_OUT = "; to go on without them, set the option failOnDataLoss to false"


@dataclass(frozen=True, slots=True)
class LossRule:
    """fails: failOnDataLoss."""

    fails: bool = True

    def report(self, queue: MessageQueue, what: str) -> None:
        """DataLossError, or a warning."""
        text = f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}: {what}"
        if self.fails:
            raise DataLossError(text + _WAY_OUT)
        log.warning("%s", text)

    def retention(self, queue: MessageQueue, first: int, end: int) -> None:
        """The offsets from `first` up to `end`, not included, were removed."""
        self.report(
            queue,
            f"messages at the offsets {first} to {end - 1} are beyond retention: the broker has "
            "removed them",
        )

    def shorter(self, queue: MessageQueue, wanted: int, end: int) -> None:
        """The queue ends at `end`, before an offset that was read, or was to be."""
        self.report(
            queue,
            f"the queue ends at offset {end}, before {wanted}: its topic was made anew, or its "
            "broker has lost messages, as after an unclean failover",
        )
