"""AdminClients: one client for each account that asks, shared by its readers.

Any thread. A client is opened when its account first asks, and closed after ten minutes in which it
asked nothing. There are at most fifty besides the console's own, which stays open; then the one
that is idle for longest closes early, unless all are in use.

Tested by tests/console/access/test_clients.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Final

from console.access.account import Account
from remoting.client_tls import ClientTls
from remoting.command_custom_header import CommandCustomHeader
from remoting.language_code import LanguageCode
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tools.admin_client import TIMEOUT_MS, AdminClient, NameServers
from tools.errors import AdminError

MAX_CLIENTS: Final = 50
IDLE_MS: Final = 600_000
IN_USE_MS: Final = 60_000
"""Longer than any call: what asked since may still wait for its answer."""


class AccountClient(AdminClient):
    """An AdminClient that notes when it was last used: a job may hold it for hours."""

    def __init__(
        self, maker: ClientMaker, signer: RequestSigner | None, clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms`: monotonic."""
        super().__init__(maker.name_servers, maker.now_ms, signer, maker.tls)
        self.may_ask: Callable[[str], bool] = lambda _address: True
        self._clock_ms = clock_ms
        self.used_ms = clock_ms()

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
        """Ask one peer. AdminError: nothing is signed for it."""
        self.used_ms = self._clock_ms()
        if not self.may_ask(address):
            raise AdminError(
                f"{address} has not answered this console yet: nothing is asked there with an "
                "account that somebody signed in with"
            )
        return super().call(
            address,
            code,
            header,
            body,
            accept=accept,
            extra=extra,
            language=language,
            timeout_ms=timeout_ms,
        )


@dataclass(frozen=True, slots=True)
class ClientMaker:
    """Makes clients of the one cluster."""

    name_servers: NameServers
    now_ms: Callable[[], int]
    """Wall clock, as commands use it."""
    clock_ms: Callable[[], int]
    """Monotonic."""
    own: RequestSigner | None = None
    """The console's own account (tools/account.py)."""
    tls: ClientTls | None = None

    def new(self, signer: RequestSigner | None) -> AccountClient:
        """With connections of its own; not yet running."""
        return AccountClient(self, signer, self.clock_ms)


class AdminClients:
    """The clients, by account. Owned by: the console's main thread, which closes it."""

    def __init__(
        self, maker: ClientMaker, knows: Callable[[str], bool] = lambda _address: True
    ) -> None:
        """`knows`: whether a broker has answered at an address. A name server may list any, and
        what is signed with a reader's account is of use to whoever gets it."""
        self._maker = maker
        self._knows = knows
        self._lock = threading.Lock()
        self._clients: dict[Account, AccountClient] = {}
        self._own: AccountClient | None = None
        self._closed = False

    def of(self, key: Hashable) -> AdminClient:
        """The client of an Account.key; None: the console's own. AdminError: too many are in use,
        or the console is being stopped."""
        now_ms = self._maker.clock_ms()
        leaving: list[AccountClient] = []
        try:
            with self._lock:
                if self._closed:
                    raise AdminError("the console is being stopped")
                leaving += self._idle(now_ms, IDLE_MS)
                client = self._found(key, now_ms, leaving)
                client.used_ms = now_ms
                return client
        finally:
            _close(leaving)

    def close(self) -> None:
        """All of them; what they still ask fails."""
        with self._lock:
            self._closed = True
            leaving = list(self._clients.values())
            self._clients.clear()
            if self._own is not None:
                leaving.append(self._own)
                self._own = None
        _close(leaving)

    def __len__(self) -> int:
        return len(self._clients)

    def _found(self, key: Hashable, now_ms: int, leaving: list[AccountClient]) -> AccountClient:
        if not isinstance(key, Account):
            if self._own is None:
                self._own = self._started(self._maker.own)
            return self._own
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                leaving += self._idle(now_ms, IN_USE_MS, at_most=1)
            if len(self._clients) >= MAX_CLIENTS:
                raise AdminError(f"{MAX_CLIENTS} accounts use this console now; try again soon")
            client = self._clients[key] = self._started(key.signer)
            client.may_ask = self._may_ask
        return client

    def _may_ask(self, address: str) -> bool:
        return address in self._maker.name_servers.addresses or self._knows(address)

    def _started(self, signer: RequestSigner | None) -> AccountClient:
        client = self._maker.new(signer)
        client.__enter__()
        return client

    def _idle(self, now_ms: int, for_ms: int, at_most: int = MAX_CLIENTS) -> list[AccountClient]:
        """Takes those out that have been idle for so long, the idlest first."""
        idle = [key for key, one in self._clients.items() if now_ms - one.used_ms >= for_ms]
        idle.sort(key=lambda key: self._clients[key].used_ms)
        return [self._clients.pop(key) for key in idle[:at_most]]


def _close(clients: list[AccountClient]) -> None:
    for client in clients:
        client.__exit__(None, None, None)
