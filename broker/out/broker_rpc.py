"""BrokerRpc: requests about static topics to the masters of other broker names.

Called by pool threads; waits forwardTimeout for an answer. Who the master of a broker name is, the
name servers say (106); that is asked again when it is older than half a minute, and for a name that
is not known: by one thread at a time, for which only those wait that know no master. Follows
RpcClientImpl of RocketMQ 5.3.3.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ipc.clock import Clock
from remoting.errors import RemotingError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI
    from remoting.remoting_client import RemotingClient

FRESH_MS: Final = 30_000
_ASK_AGAIN_MS: Final = 1_000
_MASTER_ID: Final = 0


class BrokerRpc:
    """See the module. Guarded by: `_lock`, which is not held while anybody is asked; `_asking` is,
    by who asks the name servers."""

    def __init__(
        self, client: RemotingClient, source: BrokerOuterAPI, clock: Clock, *, timeout_ms: int
    ) -> None:
        self._client = client
        self._source = source
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._masters: Mapping[str, str] = {}
        self._asked_ms: int | None = None
        self._rounds = 0

    def ask(self, broker_name: str, code: int, ext_fields: Mapping[str, str]) -> RemotingCommand:
        """The answer of the master of `broker_name`, whatever its code. Raises RequestError
        (SYSTEM_ERROR) if it cannot be asked."""
        address = self._find_master(broker_name)
        if address is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"cannot find addr for broker {broker_name}"
            )
        command = RemotingCommand.request(code, ext_fields)
        try:
            return self._client.invoke_sync(address, command, self._timeout_ms)
        except RemotingError as error:
            with self._lock:
                self._asked_ms = None
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"broker {broker_name} does not answer: {error}"
            ) from error

    def _find_master(self, broker_name: str) -> str | None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            found = self._masters.get(broker_name)
            limit_ms = _ASK_AGAIN_MS if found is None else FRESH_MS
            if self._asked_ms is not None and now_ms - self._asked_ms < limit_ms:
                return found
            known_round = self._rounds
        if not self._asking.acquire(blocking=found is None):
            return found
        try:
            return self._asked_anew(broker_name, known_round)
        finally:
            self._asking.release()

    def _asked_anew(self, broker_name: str, known_round: int) -> str | None:
        """The master after `known_round` rounds of questions to the name servers and one more,
        which may have been another thread's."""
        with self._lock:
            if self._rounds != known_round:
                return self._masters.get(broker_name)
        asked_ms = self._clock.monotonic_ms()
        infos = self._source.get_broker_cluster_info()
        masters = {
            name: data.broker_addrs[_MASTER_ID]
            for info in reversed(infos)
            for name, data in info.broker_addr_table.items()
            if _MASTER_ID in data.broker_addrs
        }
        with self._lock:
            self._rounds += 1
            self._asked_ms = asked_ms
            if infos:
                self._masters = masters
            return self._masters.get(broker_name)
