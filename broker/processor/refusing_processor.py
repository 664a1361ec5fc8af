"""RefusingProcessor: requests whose feature this version does not have yet, refused in clear words.

Runs on the loop thread. Without it they would be answered as unknown codes, which says less.
"""

from __future__ import annotations

from broker.processor.table_processor import TableProcessor
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode


class RefusingProcessor(TableProcessor):
    """Code 37 (end of a transaction)."""

    def __init__(self) -> None:
        super().__init__(
            {
                RequestCode.END_TRANSACTION: self.refuse_end_transaction,
            }
        )

    def refuse_end_transaction(
        self, _connection: ConnectionLike, _request: RemotingCommand
    ) -> RemotingCommand:
        """37: half messages are refused, so there is nothing to end."""
        raise RequestError(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "transactional messages are not served by this version of the broker",
        )
