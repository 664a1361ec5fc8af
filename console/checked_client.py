"""CheckedClient: an account's client that first asks whether a broker checks accounts at all.

Any thread. A broker without access control would obey the console and not the account (see
console/access/access.py, require_judge). Shares the connections of the client it is made from.

Tested by tests/console/test_actions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from remoting.command_custom_header import CommandCustomHeader
from remoting.language_code import LanguageCode
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import TIMEOUT_MS, AdminClient


class CheckedClient(AdminClient):
    """Made for one action; needs no end of its own."""

    def __init__(self, client: AdminClient, check: Callable[[str], None]) -> None:
        """`check` raises for an address that must not be asked."""
        self.name_servers = client.name_servers
        self.now_ms = client.now_ms
        self._client = client
        self._check = check

    def call(
        self,
        address: str,
        code: RequestCode,
        header: CommandCustomHeader | None = None,
        body: bytes = b"",
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
        extra: dict[str, str] | None = None,
        language: LanguageCode = LanguageCode.PYTHON,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        """Ask one peer, if it may be asked."""
        self._check(address)
        return self._client.call(
            address,
            code,
            header,
            body,
            accept=accept,
            extra=extra,
            language=language,
            timeout_ms=timeout_ms,
        )
