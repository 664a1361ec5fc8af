"""What EndTransactionRoute reads and answers: a JSON header of code 37, and the answer that waits.

Used on the loop thread of `remoting`. In a module of its own because msgspec makes these classes
(docs/compiled_modules.md). Knows no half.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from broker.metrics.path_stats import PathStats
from remoting.connection import Connection
from remoting.frame import JsonAnswer
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.typed_numbers import Int32

END_TRANSACTION: Final = int(RequestCode.END_TRANSACTION)
SUCCESS: Final = int(ResponseCode.SUCCESS)
COMMITTED: Final = JsonAnswer(None)
"""Its values: SUCCESS and the opaque."""


class EndHeader(msgspec.Struct, gc=False):
    """EndTransactionRequestHeader; wire names. All text: numbers are read as Java reads them."""

    producerGroup: str  # noqa: N815
    tranStateTableOffset: str  # noqa: N815
    commitLogOffset: str  # noqa: N815
    commitOrRollback: str  # noqa: N815
    msgId: str  # noqa: N815


class EndFrame(msgspec.Struct, gc=False):
    """The JSON header of an end."""

    code: Literal[37]
    opaque: Int32
    extFields: EndHeader  # noqa: N815
    flag: Int32 = 0


decode_end_frame: Final = msgspec.json.Decoder(EndFrame).decode


class SafeCommit(msgspec.Struct, frozen=True, gc=False):
    """The answer to a commit that waits for flush or replicas: an Answer. Their timeouts are no
    failures."""

    stats: PathStats
    connection: Connection
    opaque: int
    oneway: bool
    came_ns: int

    def __call__(self, _code: ResponseCode) -> None:
        if not self.oneway:
            self.connection.write(COMMITTED.render((SUCCESS, self.opaque)))
        self.stats.add_timed_answer(END_TRANSACTION, SUCCESS, self.came_ns, oneway=self.oneway)
