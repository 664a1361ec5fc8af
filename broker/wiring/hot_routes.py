"""HotRoutes: the requests that are served from their bytes, without a command being made of them.

The one list of them, for the server (wiring/server.py) and for the worlds of the tests, which leave
out what they do not have. Whoever is not sure that a frame is an ordinary one says False, and the
general path serves it. Pure; composed once, on the main thread. Knows no access control: the server
puts guards in front.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.known_heartbeat_route import HEARTBEAT_PREFIX
from broker.pop.ack_message_processor import ACK_PREFIX
from broker.pop.pop_message_processor import POP_PREFIX
from broker.pull.pull_message_processor import (
    LITE_PULL_PREFIX,
    PULL_PREFIX,
    PullMessageProcessor,
)
from broker.send.batch_send_route import SEND_BATCH_PREFIX
from broker.send.send_message_processor import SendMessageProcessor
from broker.send.send_route import SEND_V1_PREFIX, SEND_V2_PREFIX
from broker.transaction.end_transaction_route import END_TRANSACTION_PREFIX
from remoting.remoting_command import SerializeType
from remoting.remoting_server import FastHandler, Run
from remoting.request_code import RequestCode
from remoting.rocketmq_serializable import code_bytes

JsonRoutes = tuple[tuple[bytes, FastHandler], ...]
"""By what the header begins with."""
BinaryRoutes = tuple[tuple[int, FastHandler], ...]
"""By request code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRoutes:
    """See the module. What is None is served by the general path alone."""

    send: SendMessageProcessor
    pull: PullMessageProcessor
    pop: FastHandler | None = None
    ack: FastHandler | None = None
    heartbeat: FastHandler | None = None
    end_transaction: FastHandler | None = None

    def guarded(self) -> JsonRoutes:
        """Those whose rights are known from their headers; the most frequent ones first."""
        return _present(
            (SEND_V2_PREFIX, self.send.singles.process_fast),
            (PULL_PREFIX, self.pull.process_fast),
            (LITE_PULL_PREFIX, self.pull.process_fast),
            (POP_PREFIX, self.pop),
            (ACK_PREFIX, self.ack),
            (HEARTBEAT_PREFIX, self.heartbeat),
            (SEND_V1_PREFIX, self.send.singles.process_fast),
            (SEND_BATCH_PREFIX, self.send.batches.process_fast),
        )

    def unguarded(self) -> JsonRoutes:
        """Those that need a right on a message that they name by its place."""
        return _present((END_TRANSACTION_PREFIX, self.end_transaction))

    def binary(self) -> BinaryRoutes:
        """Those of clients that write their headers in RocketMQ's binary form."""
        return (
            (RequestCode.SEND_MESSAGE_V2, self.send.singles.process_fast),
            (RequestCode.SEND_MESSAGE, self.send.singles.process_fast),
            (RequestCode.SEND_BATCH_MESSAGE, self.send.batches.process_fast),
            (RequestCode.PULL_MESSAGE, self.pull.process_binary),
            (RequestCode.LITE_PULL_MESSAGE, self.pull.process_binary),
        )

    def runs(self) -> tuple[Run, ...]:
        """Those that take a run of frames at once."""
        singles, binary_prefix = self.send.singles, code_bytes(RequestCode.SEND_MESSAGE_V2)
        return (
            Run(SerializeType.JSON, SEND_V2_PREFIX, singles.process_run),
            Run(SerializeType.ROCKETMQ, binary_prefix, singles.process_binary_run),
        )


def _present(*routes: tuple[bytes, FastHandler | None]) -> JsonRoutes:
    return tuple((prefix, handler) for prefix, handler in routes if handler is not None)
