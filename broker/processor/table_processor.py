"""TableProcessor: what all table-driven processors of this room share. Stateless, any thread.

A subclass gives a table request code -> bound method; the composition root reads `table` to
register its routes, each code with the pool it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

Handler = Callable[[ConnectionLike, RemotingCommand], RemotingCommand | None]


class TableProcessor:
    """A RequestProcessor over a table."""

    def __init__(self, table: Mapping[int, Handler]) -> None:
        self.table: dict[int, Handler] = {int(code): handler for code, handler in table.items()}

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Serve one of the codes in `table`."""
        return self.table[request.code](connection, request)


def refuse_on_slave(is_slave: bool) -> None:
    """Raises RequestError(SYSTEM_ERROR): a slave's tables are its master's."""
    if is_slave:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, "
            "please execute it from master broker.",
        )


def require_saved(saved: bool, what: str) -> None:
    """Raises RequestError(SYSTEM_ERROR) for a change that is in force but not on disk."""
    if not saved:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{what} is in force but could not be saved, which is tried again every few seconds; "
            f"see the broker's log, a restart before that would lose it",
        )
