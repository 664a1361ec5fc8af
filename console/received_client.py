"""ReceivedClient: one question's client, which counts what its answers have and refuses too much.

Owned by: a worker of console/lanes.py. A peer may answer 16 MiB to anything, and JSON becomes
twenty times as much in memory and takes seconds to be read: it is refused before it is. Messages
are bytes and stay bytes: as large as the protocol allows. Shares the connections of the client it
is made from.

Tested by tests/console/test_lanes.py.
"""

from __future__ import annotations

from typing import Any, Final

from remoting.command_custom_header import CommandCustomHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.errors import AdminError

MESSAGES: Final = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}
)
"""Requests whose answers are messages."""


class ReceivedClient(AdminClient):
    """Made for one question; needs no end of its own."""

    def __init__(self, client: AdminClient, most_bytes: int) -> None:
        """`most_bytes`: of an answer that has no messages."""
        self.name_servers = client.name_servers
        self.now_ms = client.now_ms
        self.received = 0
        """Bytes of all answers."""
        self._client = client
        self._most_bytes = most_bytes

    def call(
        self,
        address: str,
        code: RequestCode,
        header: CommandCustomHeader | None = None,
        body: bytes = b"",
        **how: Any,
    ) -> RemotingCommand:
        """Ask one peer. AdminError: its answer is too large."""
        response = self._client.call(address, code, header, body, **how)
        size = len(response.body) + sum(map(len, response.ext_fields.values()))
        if size > self._most_bytes and code not in MESSAGES:
            raise AdminError(
                f"{address} answered {size:,} bytes to {code.name}: the console reads at most "
                f"{self._most_bytes:,}"
            )
        self.received += size
        return response
