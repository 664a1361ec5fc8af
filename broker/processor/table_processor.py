"""TableProcessor: base of the table-driven processors. Stateless, any thread.

A subclass provides a table request code -> bound method; the composition root reads `table` to
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
    """Raises RequestError(SYSTEM_ERROR) on a slave, since its tables are copies of its master's."""
    if is_slave:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, "
            "please execute it from master broker.",
        )


def require_saved(saved: bool, what: str) -> None:
    """Raises RequestError(SYSTEM_ERROR) for a change that is in effect but not saved."""
    if not saved:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{what} is in effect but could not be saved; saving is retried every few seconds "
            "(see the broker's log), and a restart before it succeeds loses the change",
        )
