"""PopAnswer: what a pop has got so far, its answer's templates, and a refusal. Loop thread."""

from __future__ import annotations

from typing import Final

from broker.pop.pop_stats import PopStats
from remoting.connection import Buffer, Connection
from remoting.errors import RequestError
from remoting.frame import JsonAnswer
from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand
from remoting.request_code import RequestCode

_NUMBER: Final = b'"%d"'
_FIELDS: Final = {
    "popTime": _NUMBER,
    "invisibleTime": _NUMBER,
    "reviveQid": _NUMBER,
    "restNum": _NUMBER,
    "startOffsetInfo": b'"%b"',
    "msgOffsetInfo": b'"%b"',
}
ANSWER: Final = JsonAnswer(_FIELDS, remark=True)
ORDER_ANSWER: Final = JsonAnswer({**_FIELDS, "orderCountInfo": b'"%b"'}, remark=True)


class PopAnswer:
    """What a request has got so far."""

    __slots__ = (
        "count", "items", "offsets", "order_items", "pop_time_ms", "records", "rest",
        "revive_queue_id", "size",
    )  # fmt: skip

    def __init__(self, pop_time_ms: int, revive_queue_id: int) -> None:
        self.pop_time_ms = pop_time_ms
        self.revive_queue_id = revive_queue_id
        self.rest = 0
        """Messages that are left in the queues."""
        self.count = 0
        self.size = 0
        self.records: list[Buffer] = []
        self.items: list[str] = []
        self.offsets: list[str] = []
        self.order_items: list[str] = []


def refuse(
    stats: PopStats, connection: Connection, opaque: int, code: RequestCode, error: RequestError
) -> None:
    """Answer a request of which only its number is at hand, and count the answer."""
    stats.add_answers(code, error.code)
    connection.send_command(
        RemotingCommand(int(error.code), opaque=opaque, flag=RESPONSE_FLAG, remark=error.remark)
    )
